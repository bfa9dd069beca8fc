from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedfair.errors import IdentityError
from fedfair.identity.certificate import (
    Role,
    check_validity,
    expiry_warning,
    grouped,
    parse_uri,
    participant_of,
    role_of,
)
from tests.identity.identity_makers import NOW, authority, certificate_of, new_tls_key

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLINIC = "fedfair://heart/clinic-a"


def home_made(uris: list[str], usages: list[x509.ObjectIdentifier]) -> x509.Certificate:
    """Return a certificate that `authority.py` would never make."""
    key = new_tls_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clinic-a")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
    )
    if uris:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
        builder = builder.add_extension(names, critical=False)
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(key, hashes.SHA256())


@pytest.mark.parametrize(("name", "role"), [("clinic-a", Role.COLLABORATOR), ("aggregator", Role.AGGREGATOR)])
def test_a_certificate_names_one_participant_in_one_role(name: str, role: Role) -> None:
    certificate = certificate_of(name, authority())
    participant = participant_of(certificate)
    assert (participant.federation, participant.name, participant.role) == ("heart", name, role)
    assert role_of(certificate) is role
    assert parse_uri(participant.uri) == participant


def test_a_common_name_without_a_uri_names_nobody() -> None:
    with pytest.raises(IdentityError, match="no subject alternative name, so it names nobody"):
        participant_of(home_made([], [CLIENT]))


def test_a_certificate_that_names_two_participants_is_refused() -> None:
    with pytest.raises(IdentityError, match="has 2 URIs"):
        participant_of(home_made([CLINIC, "fedfair://heart/clinic-b"], [CLIENT]))


@pytest.mark.parametrize(
    "uri",
    [
        "https://heart/clinic-a",
        "fedfair://heart",
        "fedfair://heart/",
        "fedfair:///clinic-a",
        "fedfair://heart/clinic-a/",
        "fedfair://heart/clinic-a?x=1",
        "fedfair://heart/Clinic-A",
        "fedfair://heart/clinic%2da",
        "FEDFAIR://heart/clinic-a",
    ],
)
def test_a_uri_outside_the_scheme_is_refused(uri: str) -> None:
    with pytest.raises(IdentityError):
        participant_of(home_made([uri], [CLIENT]))


@pytest.mark.parametrize(
    ("usages", "message"),
    [
        ([], "does not say what it may be used for"),
        ([CLIENT, SERVER], "only one"),
        ([ExtendedKeyUsageOID.CODE_SIGNING], "expected client authentication"),
        ([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE], "expected client authentication"),
        ([SERVER], "has the role collaborator"),
    ],
)
def test_a_certificate_for_any_other_use_is_refused(usages: list[x509.ObjectIdentifier], message: str) -> None:
    with pytest.raises(IdentityError, match=message):
        participant_of(home_made([CLINIC], usages))


def test_validity_begins_and_ends_to_the_second() -> None:
    certificate = certificate_of("clinic-a", authority(), days=1)
    second = timedelta(seconds=1)
    check_validity(certificate, certificate.not_valid_before_utc, "it")
    check_validity(certificate, certificate.not_valid_after_utc, "it")
    with pytest.raises(IdentityError, match="it is not valid before 2030-05-01 11:55 UTC"):
        check_validity(certificate, certificate.not_valid_before_utc - second, "it")
    with pytest.raises(IdentityError, match="it expired on 2030-05-02 12:00 UTC"):
        check_validity(certificate, certificate.not_valid_after_utc + second, "it")


@pytest.mark.parametrize(
    ("days_left", "warning"),
    [
        (31, None),
        (30, "it expires on 2030-05-31, in 30 days"),
        (1, "it expires on 2030-05-31, in 1 days"),
        (-1, "it expired on 2030-05-31"),
    ],
)
def test_expiry_is_announced_a_month_ahead(days_left: int, warning: str | None) -> None:
    certificate = certificate_of("clinic-a", authority(), days=30)
    now = certificate.not_valid_after_utc - timedelta(days=days_left)
    assert expiry_warning(certificate, now, "it") == warning


def test_fingerprints_are_grouped_for_reading_aloud() -> None:
    assert grouped(bytes.fromhex("0123456789ab")) == "0123 4567 89ab"
