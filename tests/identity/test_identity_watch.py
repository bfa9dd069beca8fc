"""A renewed certificate on the disk counts only as a whole identity of the same participant."""

import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fedfair.errors import IdentityError, RenewableIdentityError
from fedfair.identity.authority import BACKDATE
from fedfair.identity.authority_store import load_authority, load_register, revoke
from fedfair.identity.development import issue_all
from fedfair.identity.expiry import ENDED, ExpiryWatch, days_until, warning_stage
from fedfair.identity.files import certificate_pem, private_pem, write_private
from fedfair.identity.identity_watch import RECHECK, IdentityWatch, TrustWatch
from fedfair.identity.revocation import revoked_serials
from fedfair.identity.store import REVOCATION_LIST, load_site_identity, trust_folder
from tests.identity.identity_makers import NOW, authority, certificate_of
from tests.interop.own_folders import renew


@pytest.fixture
def cert(tmp_path: Path) -> Path:
    issue_all(tmp_path / "cert", "heart", ["clinic-a", "clinic-b"], ["localhost"], NOW)
    return tmp_path / "cert"


def watching(cert: Path, passphrase: bytes | None = None) -> IdentityWatch:
    return IdentityWatch(load_site_identity(cert, "clinic-a", NOW, passphrase), passphrase)


def test_a_renewed_certificate_is_found_once(cert: Path) -> None:
    watch = watching(cert)
    before = watch.present.certificate
    assert watch.renewed(NOW) is None
    renew(cert, cert, "clinic-a", NOW)
    found = watch.renewed(NOW)
    assert found.certificate != before
    assert watch.present is found
    assert watch.renewed(NOW) is None


def test_a_half_installed_renewal_keeps_the_present_one_and_the_whole_one_is_found(cert: Path) -> None:
    watch, site = watching(cert), cert / "clinic-a"
    present = watch.present
    assert watch.renewed(NOW) is None
    old = (site / "tls.crt").read_bytes()
    renew(cert, cert, "clinic-a", NOW)
    new = (site / "tls.crt").read_bytes()
    (site / "tls.crt").write_bytes(old)
    with pytest.raises(RenewableIdentityError, match="does not belong to the key"):
        watch.renewed(NOW)
    assert watch.present is present
    assert watch.renewed(NOW) is None, "said once"
    (site / "tls.crt").unlink()
    (site / "tls.crt").write_bytes(new)
    assert certificate_pem(watch.renewed(NOW).certificate) == new


def test_a_certificate_that_has_expired_or_is_of_somebody_else_replaces_none(cert: Path) -> None:
    watch = watching(cert)
    renew(cert, cert, "clinic-a", NOW, days=1)
    with pytest.raises(RenewableIdentityError, match="expired on"):
        watch.renewed(NOW + timedelta(days=2))
    for file in ("tls.key", "tls.crt"):
        shutil.copy(cert / "clinic-b" / file, cert / "clinic-a" / file)
    with pytest.raises(IdentityError, match="is for clinic-b, not for clinic-a"):
        watch.renewed(NOW)
    assert watch.present.certificate.not_valid_after_utc == NOW + timedelta(days=365)


def test_an_encrypted_renewal_opens_with_the_passphrase_of_the_start(cert: Path) -> None:
    plain = load_site_identity(cert, "clinic-a", NOW)
    write_private(plain.folder / "tls.key", private_pem(plain.tls_key, b"correct horse"))
    write_private(plain.folder / "signing.key", private_pem(plain.signing_key, b"correct horse"))
    watch = watching(cert, b"correct horse")
    renew(cert, cert, "clinic-a", NOW, passphrase=b"correct horse")
    assert b"ENCRYPTED" in (plain.folder / "tls.key").read_bytes()
    assert watch.renewed(NOW) is not None


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


END = NOW + timedelta(days=365)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("before", "stage"),
    [
        (31 * DAY, None), (30 * DAY + SECOND, None), (30 * DAY, 30), (7 * DAY + SECOND, 30), (7 * DAY, 7),
        (DAY + SECOND, 7), (DAY, 1), (timedelta(0), 1), (-SECOND, ENDED), (-400 * DAY, ENDED),
    ],
)  # fmt: skip
def test_a_warning_is_due_30_7_and_1_days_ahead_and_after_the_end(before: timedelta, stage: int | None) -> None:
    assert warning_stage(END, END - before) == stage


def test_the_days_that_a_certificate_has_left_are_whole_days() -> None:
    certificate = certificate_of("clinic-a", authority(), days=365)
    assert days_until(certificate.not_valid_after_utc, NOW) == 365
    assert days_until(certificate.not_valid_after_utc, NOW + SECOND) == 364
    assert days_until(certificate.not_valid_after_utc, NOW + 365 * DAY) == 0
    assert days_until(certificate.not_valid_after_utc, NOW + 365 * DAY + SECOND) == -1
    assert days_until(certificate.not_valid_after_utc, NOW - BACKDATE) == 365


def test_a_year_of_hourly_looks_gives_each_warning_once_and_again_for_the_renewed_certificate() -> None:
    watch, said = ExpiryWatch(), []
    ends = {"this host's certificate": END}
    now: datetime = NOW
    while now < END + 2 * DAY:
        said += [(ending.what, ending.days_left) for ending in watch.due(ends, now)]
        now += timedelta(hours=1)
    what = "this host's certificate"
    assert said == [(what, 30), (what, 7), (what, 1), (what, -1)]
    ends[what] = now + 365 * DAY
    assert not tuple(watch.due(ends, now))
    (ending,) = watch.due(ends, now + 340 * DAY)
    assert (ending.days_left, ending.until) == (25, ends[what])
    assert "in 25 days -> `fedfair certs renew`" in ending.words
