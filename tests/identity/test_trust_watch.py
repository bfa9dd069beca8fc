from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from fedfair.errors import IdentityError
from fedfair.identity.authority_store import load_authority, load_register, revoke
from fedfair.identity.development import issue_all
from fedfair.identity.identity_watch import RECHECK, TrustWatch
from fedfair.identity.revocation import revoked_serials
from fedfair.identity.store import REVOCATION_LIST, trust_folder
from tests.identity.identity_makers import NOW

SECOND = timedelta(seconds=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    issue_all(tmp_path / "cert", "heart", ["clinic-a", "clinic-b"], ["localhost"], NOW)
    return tmp_path / "cert"


def test_a_list_is_read_when_it_is_another_one_and_once_a_minute(folder: Path) -> None:
    watch = TrustWatch(folder)
    assert watch.renewed(NOW) is not None
    assert watch.renewed(NOW + SECOND) is None
    (serial,) = (issued.serial for issued in load_register(folder) if issued.name == "clinic-a")
    revoke(folder, load_authority(folder, NOW, None), frozenset({serial}), NOW)
    assert revoked_serials(watch.renewed(NOW + 2 * SECOND).crl) == {serial}
    assert watch.renewed(NOW + 3 * SECOND) is None
    assert watch.renewed(NOW + 2 * SECOND + RECHECK) is not None


@pytest.mark.parametrize("content", [b"junk", None], ids=["damaged", "missing"])
def test_a_list_that_cannot_be_relied_upon_is_told_once_a_minute(folder: Path, content: bytes | None) -> None:
    watch, file = TrustWatch(folder), trust_folder(folder) / REVOCATION_LIST
    good = file.read_bytes()
    assert watch.renewed(NOW) is not None
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(IdentityError):
        watch.renewed(NOW)
    assert watch.renewed(NOW + SECOND) is None
    with pytest.raises(IdentityError):
        watch.renewed(NOW + RECHECK)
    file.unlink(missing_ok=True)
    file.write_bytes(good)
    assert watch.renewed(NOW + RECHECK) is not None
