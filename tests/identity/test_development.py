from __future__ import annotations

from pathlib import Path

import pytest

from fedfair.errors import IdentityError
from fedfair.identity.development import issue_all
from fedfair.identity.signing import format_signing_key
from fedfair.identity.store import load_signing_key, load_site_identity
from tests.identity.identity_makers import NOW


def test_every_participant_of_a_development_federation_has_a_complete_identity(tmp_path: Path) -> None:
    roster = issue_all(tmp_path, "heart", ["clinic-a", "clinic-b"], ["localhost", "127.0.0.1"], NOW)
    for name in ("aggregator", "clinic-a", "clinic-b"):
        identity = load_site_identity(tmp_path, name, NOW)
        assert (identity.participant.uri, identity.warnings) == (f"fedfair://heart/{name}", ())
    assert roster == {
        name: format_signing_key(load_signing_key(tmp_path, name).public_key())
        for name in ("clinic-a", "clinic-b")
    }


def test_a_second_development_federation_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    issue_all(tmp_path, "heart", [], ["localhost"], NOW)
    with pytest.raises(IdentityError, match="there is an authority already"):
        issue_all(tmp_path, "heart", [], ["localhost"], NOW)
