"""A renewed certificate on the disk counts only as a whole identity of the same participant."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from fedfair.errors import IdentityError, RenewableIdentityError
from fedfair.identity.development import issue_all
from fedfair.identity.files import certificate_pem, private_pem, write_private
from fedfair.identity.identity_watch import IdentityWatch
from fedfair.identity.store import load_site_identity
from tests.identity.identity_makers import NOW
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
