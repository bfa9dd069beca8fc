"""Authorities, keys and requests for the tests of this folder."""

from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.identity.authority import Authority, create_authority, sign_request
from fedfair.identity.certificate import parse_participant
from fedfair.identity.request import SiteRequest, make_request, parse_request
from fedfair.ids import FederationName

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)
HEART = FederationName("heart")


def new_tls_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def authority(federation: str = "heart") -> Authority:
    return create_authority(FederationName(federation), NOW)


def request_of(name: str, federation: str = "heart") -> SiteRequest:
    participant = parse_participant(federation, name)
    return parse_request(make_request(participant, new_tls_key(), Ed25519PrivateKey.generate()))


def certificate_of(name: str, signer: Authority, now: datetime = NOW, days: int = 365) -> x509.Certificate:
    hosts = ["localhost"] if name == "aggregator" else []
    return sign_request(signer, request_of(name, signer.federation), hosts=hosts, now=now, days=days)
