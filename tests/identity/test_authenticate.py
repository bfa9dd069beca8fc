from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.errors import IdentityError
from fedfair.identity.certificate import fingerprint
from fedfair.identity.files import certificate_pem
from fedfair.identity.revocation import empty_list, revoke
from fedfair.identity.tls import AuthenticatedPeer, authenticate
from fedfair.ids import FederationName, ParticipantId
from tests.identity.identity_makers import HEART, NOW, authority, certificate_of

SIGNER = authority()
CRL = empty_list(SIGNER, NOW)
ROSTER = {ParticipantId("clinic-a"): Ed25519PrivateKey.generate().public_key()}
CLINIC = certificate_of("clinic-a", SIGNER)


def context(certificate: x509.Certificate = CLINIC, version: bytes = b"TLSv1.3") -> dict[str, list[bytes]]:
    return {"ssl_tls_version": [version], "x509_pem_cert": [certificate_pem(certificate)]}


def ask(
    auth_context: dict[str, list[bytes]],
    federation: FederationName = HEART,
    crl: x509.CertificateRevocationList = CRL,
    days: int = 0,
) -> AuthenticatedPeer:
    now = NOW + timedelta(days=days)
    return authenticate(
        auth_context, federation=federation, roster=ROSTER, ca=SIGNER.certificate, crl=crl, now=now
    )


def test_a_member_is_known_by_the_certificate_of_its_connection() -> None:
    assert ask(context()) == AuthenticatedPeer(ParticipantId("clinic-a"), fingerprint(CLINIC))


@pytest.mark.parametrize("version", [b"TLSv1.2", b"TLSv1", b"", b"\xff"])
def test_a_version_below_1_3_is_refused(version: bytes) -> None:
    with pytest.raises(IdentityError, match=r"this service speaks TLSv1\.3 only"):
        ask(context(version=version))


@pytest.mark.parametrize(
    "auth_context",
    [
        {},
        {"transport_security_type": [b"insecure"]},
        {"ssl_tls_version": [], "x509_pem_cert": [certificate_pem(CLINIC)]},
        {"ssl_tls_version": [b"TLSv1.3", b"TLSv1.2"], "x509_pem_cert": [certificate_pem(CLINIC)]},
    ],
)
def test_a_connection_that_does_not_say_its_version_is_refused(auth_context: dict[str, list[bytes]]) -> None:
    with pytest.raises(IdentityError, match="the connection uses"):
        ask(auth_context)


@pytest.mark.parametrize(
    ("certificates", "message"),
    [
        ([], "shows 0 certificates"),
        ([certificate_pem(CLINIC)] * 2, "shows 2 certificates"),
        ([b"junk"], "is malformed"),
    ],
)
def test_a_connection_without_one_readable_certificate_is_refused(certificates: list[bytes], message: str) -> None:
    with pytest.raises(IdentityError, match=message):
        ask({"ssl_tls_version": [b"TLSv1.3"], "x509_pem_cert": certificates})


@pytest.mark.parametrize(
    ("certificate", "options", "message"),
    [
        (certificate_of("clinic-b", SIGNER), {}, r"clinic-b has a certificate .* but is not in the roster"),
        (certificate_of("clinic-a", authority()), {}, "was not signed by the authority"),
        (CLINIC, {"federation": FederationName("lungs")}, "is of the federation 'heart', this one is 'lungs'"),
        (CLINIC, {"days": 366}, "the certificate of clinic-a expired"),
        (CLINIC, {"crl": revoke(SIGNER, CRL, frozenset({CLINIC.serial_number}), NOW)}, "was revoked"),
        (certificate_of("clinic-a", SIGNER, days=500), {"days": 401}, "the revocation list is stale"),
        (certificate_of("aggregator", SIGNER), {}, "only collaborators may connect"),
    ],
    ids=["no member", "authority", "federation", "expired", "revoked", "stale list", "aggregator"],
)
def test_what_lets_nobody_in(certificate: x509.Certificate, options: dict[str, object], message: str) -> None:
    with pytest.raises(IdentityError, match=message):
        ask(context(certificate), **options)
