"""A signing key that is not the plan's is blamed itself, before anything that it has signed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from fedfair.errors import IdentityError
from fedfair.identity.store import SIGNING_KEY, load_site_identity
from tests.plans import small_plan
from tests.site_reading import read_site


def test_a_signing_key_of_which_bytes_have_changed_is_named_and_not_the_approval(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1))
    site = read_site("clinic-a", tmp_path / "clinic-a.yaml", workspace.plan, None)
    assert site.identity().participant.name == "clinic-a"
    path, other = tmp_path / "cert" / "clinic-a" / SIGNING_KEY, tmp_path / "cert" / "clinic-b" / SIGNING_KEY
    whole = path.read_bytes()
    # A key of 32 bytes is a key whatever they are, so nothing but the plan tells that some have changed.
    path.write_bytes(other.read_bytes())
    with pytest.raises(IdentityError, match=r"clinic-a/signing\.key is not the one that the plan pins") as fault:
        site.identity()
    assert "the file is damaged" in fault.value.message
    assert "copy signing.key back from a backup" in fault.value.remedy
    path.write_bytes(whole[:40] + b"\n" + whole[60:])
    with pytest.raises(
        IdentityError, match=r"the signing key of clinic-a is not a private key in PEM form"
    ) as cut:
        load_site_identity(tmp_path / "cert", "clinic-a", datetime.now(UTC))
    assert "the file is damaged: copy it back from a backup" in cut.value.remedy
