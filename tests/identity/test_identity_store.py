import stat
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fedfair.errors import IdentityError
from fedfair.identity import register
from fedfair.identity.authority_store import found_authority, issue, load_authority, load_register
from fedfair.identity.certificate import fingerprint, parse_participant
from fedfair.identity.development import issue_all
from fedfair.identity.files import certificate_pem, private_pem
from fedfair.identity.request import parse_request
from fedfair.identity.signing import format_signing_key
from fedfair.identity.store import (
    create_site,
    install_certificate,
    load_signing_key,
    load_site_identity,
    load_trust,
    renew_site,
)
from tests.identity.identity_makers import HEART, NOW

LATER = NOW + timedelta(days=340)


@pytest.fixture
def cert(tmp_path: Path) -> Path:
    issue_all(tmp_path, "heart", ["clinic-a", "clinic-b"], ["localhost"], NOW)
    return tmp_path


def sign_renewal(cert: Path, name: str) -> None:
    request = parse_request(renew_site(cert, name))
    certificate = issue(cert, load_authority(cert, NOW, None), request, hosts=(), now=NOW, days=365)
    install_certificate(cert, certificate)


def test_no_private_key_may_be_read_by_others(cert: Path) -> None:
    keys = list(cert.glob("*/*.key"))
    assert (len(keys), {stat.S_IMODE(path.stat().st_mode) for path in keys}) == (7, {0o600})


def test_an_identity_is_warned_about_a_month_before_it_ends(cert: Path) -> None:
    assert load_site_identity(cert, "clinic-a", NOW).warnings == ()
    warnings = load_site_identity(cert, "clinic-a", LATER).warnings
    assert warnings == ("this site's certificate expires on 2031-05-01, in 25 days",)


def test_a_key_that_others_may_read_is_warned_about(cert: Path) -> None:
    key = cert / "clinic-a" / "signing.key"
    key.chmod(0o644)
    assert load_site_identity(cert, "clinic-a", NOW).warnings == (
        f"the signing key may be read by others on this machine (mode 0644): chmod 600 {key}",
    )


def test_an_expired_certificate_is_told_although_the_list_is_stale_too(cert: Path) -> None:
    far = NOW + timedelta(days=9000)
    with pytest.raises(IdentityError, match=r"revocation list is stale|authority's certificate expired"):
        load_trust(cert, far)
    with pytest.raises(IdentityError, match="the certificate of clinic-a expired"):
        load_site_identity(cert, "clinic-a", far)


def test_a_certificate_beside_another_key_is_refused(cert: Path) -> None:
    (cert / "clinic-a" / "tls.key").write_bytes(private_pem(ec.generate_private_key(ec.SECP256R1())))
    with pytest.raises(IdentityError, match=r"does not belong to the key tls\.key beside it"):
        load_site_identity(cert, "clinic-a", NOW)


def test_a_certificate_of_somebody_else_is_refused(cert: Path) -> None:
    for name in ("tls.key", "tls.crt"):
        (cert / "clinic-b" / name).write_bytes((cert / "clinic-a" / name).read_bytes())
    with pytest.raises(IdentityError, match="is for clinic-a, not for clinic-b"):
        load_site_identity(cert, "clinic-b", NOW)


def test_a_certificate_of_another_authority_is_refused(cert: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    issue_all(other, "heart", [], ["localhost"], NOW)
    for name in ("ca.crt", "revoked.crl"):
        (cert / "authority" / name).write_bytes((other / "authority" / name).read_bytes())
    with pytest.raises(IdentityError, match="was not signed by the authority"):
        load_site_identity(cert, "clinic-a", NOW)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("clinic-a/signing.key", "the signing key of clinic-a is missing"),
        ("clinic-a/tls.key", "the TLS key of clinic-a is missing"),
        ("clinic-a/tls.crt", "the certificate of clinic-a is missing"),
        ("authority/ca.crt", "the authority's certificate is missing"),
        ("authority/revoked.crl", "the revocation list is missing"),
    ],
)
def test_a_missing_file_is_named_with_what_to_do(cert: Path, file: str, message: str) -> None:
    (cert / file).unlink()
    with pytest.raises(IdentityError, match=message) as caught:
        load_site_identity(cert, "clinic-a", NOW)
    assert "fedfair certs" in caught.value.remedy
    if file.endswith(".key"):
        assert "restore the folder from a backup" in caught.value.remedy
        assert "nobody's roster" in caught.value.remedy


FILES = [
    "clinic-a/signing.key", "clinic-a/tls.key", "clinic-a/tls.crt", "authority/ca.crt",
    "authority/revoked.crl",
]  # fmt: skip
EMPTY_PEM = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("content", [b"", b"\0" * 100, EMPTY_PEM])
def test_a_damaged_file_is_refused_by_name(cert: Path, file: str, content: bytes) -> None:
    (cert / file).write_bytes(content)
    with pytest.raises(IdentityError, match=str(cert / file)):
        load_site_identity(cert, "clinic-a", NOW)


def test_keys_of_the_wrong_kind_are_refused(cert: Path) -> None:
    site = cert / "clinic-a"
    swapped = (site / "signing.key").read_bytes(), (site / "tls.key").read_bytes()
    (site / "tls.key").write_bytes(swapped[0])
    with pytest.raises(IdentityError, match="the TLS key of clinic-a is not a P-256 key"):
        load_site_identity(cert, "clinic-a", NOW)
    (site / "signing.key").write_bytes(swapped[1])
    with pytest.raises(IdentityError, match="the signing key of clinic-a is not an Ed25519 key"):
        load_site_identity(cert, "clinic-a", NOW)


def test_making_keys_twice_leaves_the_first_alone(cert: Path) -> None:
    before = (cert / "clinic-a" / "signing.key").read_bytes()
    with pytest.raises(IdentityError, match="clinic-a has keys already"):
        create_site(cert, parse_participant("heart", "clinic-a"))
    assert (cert / "clinic-a" / "signing.key").read_bytes() == before


def test_a_renewal_keeps_the_signing_key_and_changes_the_certificate_only_once_it_is_signed(cert: Path) -> None:
    before, request = load_site_identity(cert, "clinic-a", NOW), renew_site(cert, "clinic-a")
    assert load_site_identity(cert, "clinic-a", NOW).certificate == before.certificate
    signer = load_authority(cert, NOW, None)
    install_certificate(cert, issue(cert, signer, parse_request(request), hosts=(), now=NOW, days=365))
    after = load_site_identity(cert, "clinic-a", NOW)
    assert after.certificate != before.certificate
    assert after.tls_key.public_key() != before.tls_key.public_key()
    assert after.signing_key.public_key() == before.signing_key.public_key()
    assert not (cert / "clinic-a" / "tls.next.key").exists()


def test_a_renewal_that_was_interrupted_is_mended_by_installing_again(cert: Path) -> None:
    request = parse_request(renew_site(cert, "clinic-a"))
    certificate = issue(cert, load_authority(cert, NOW, None), request, hosts=(), now=NOW, days=365)
    # The power fails after the key was put in place and before the certificate was.
    (cert / "clinic-a" / "tls.next.key").replace(cert / "clinic-a" / "tls.key")
    install_certificate(cert, certificate)
    assert load_site_identity(cert, "clinic-a", NOW).certificate == certificate


def test_an_aggregator_s_renewal_takes_its_hosts_over(cert: Path) -> None:
    sign_renewal(cert, "aggregator")
    assert load_register(cert)[-1].hosts == ("localhost",)


def test_a_certificate_without_its_key_is_not_installed(cert: Path) -> None:
    certificate = load_site_identity(cert, "clinic-a", NOW).certificate
    (cert / "clinic-a" / "tls.key").unlink()
    with pytest.raises(IdentityError, match=r"no key in .*clinic-a belongs to this certificate"):
        install_certificate(cert, certificate)


def test_the_register_says_what_was_signed(cert: Path) -> None:
    entries = load_register(cert)
    assert [(entry.name, entry.role) for entry in entries] == [
        ("aggregator", "aggregator"),
        ("clinic-a", "collaborator"),
        ("clinic-b", "collaborator"),
    ]
    certificate = load_site_identity(cert, "clinic-a", NOW).certificate
    assert entries[1].serial == certificate.serial_number
    assert entries[1].not_after == certificate.not_valid_after_utc
    assert entries[1].fingerprint == fingerprint(certificate).hex()


@pytest.mark.parametrize("line", ["{", "[]", "7", '{"serial": "zz"}', "\xff"])
def test_a_damaged_register_is_refused_with_its_line(cert: Path, line: str) -> None:
    path = cert / "authority" / "issued.jsonl"
    path.write_bytes(path.read_bytes() + line.encode("latin-1") + b"\n")
    with pytest.raises(IdentityError, match=r"issued\.jsonl:4: the register is damaged here"):
        load_register(cert)


def test_a_name_that_comes_back_with_another_signing_key_is_noticed(cert: Path, tmp_path: Path) -> None:
    request = parse_request(create_site(tmp_path / "elsewhere", parse_participant("heart", "clinic-a")))
    with pytest.raises(IdentityError, match=r"clinic-a had the signing key ed25519:.* before"):
        register.check_same_signing_key(load_register(cert), request)
    register.check_same_signing_key(load_register(cert), parse_request(renew_site(cert, "clinic-a")))


def test_an_encrypted_authority_opens_with_its_passphrase_only(tmp_path: Path) -> None:
    made = found_authority(tmp_path, HEART, NOW, b"correct horse")
    assert load_authority(tmp_path, NOW, b"correct horse").certificate == made.certificate
    assert b"ENCRYPTED" in (tmp_path / "authority" / "ca.key").read_bytes()
    with pytest.raises(IdentityError, match="does not open with this passphrase"):
        load_authority(tmp_path, NOW, b"wrong")
    with pytest.raises(IdentityError, match="is encrypted"):
        load_authority(tmp_path, NOW, None)


def test_an_authority_with_another_s_key_is_refused(cert: Path) -> None:
    (cert / "authority" / "ca.key").write_bytes(private_pem(ec.generate_private_key(ec.SECP256R1())))
    with pytest.raises(IdentityError, match=r"ca\.key is not the key of ca\.crt"):
        load_authority(cert, NOW, None)


def test_a_participant_s_certificate_is_not_trusted_as_an_authority(cert: Path) -> None:
    (cert / "authority" / "ca.crt").write_bytes(
        certificate_pem(load_site_identity(cert, "clinic-a", NOW).certificate)
    )
    with pytest.raises(IdentityError, match="is not the certificate of a federation's authority"):
        load_trust(cert, NOW)


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
