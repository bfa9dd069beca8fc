import base64
import json
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import IdentityError
from fedfair.identity.certificate import parse_participant
from fedfair.identity.request import MAX_REQUEST_BYTES, make_request, parse_request, read_request
from fedfair.identity.signing import format_signing_key
from fedfair.signed_message import labelled_message
from tests.identity.identity_makers import new_tls_key

CLINIC = parse_participant("heart", "clinic-a")
SIGNING_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
RAW = make_request(CLINIC, new_tls_key(), SIGNING_KEY)


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(RAW), **fields}).encode()


def signed_anew(document: dict[str, str]) -> bytes:
    """Return a request whose Ed25519 signature is right whatever its other fields hold."""
    csr = x509.load_pem_x509_csr(document["csr"].encode()).public_bytes(serialization.Encoding.DER)
    fields = [document[name].encode() for name in ("federation", "name", "role")]
    signature = SIGNING_KEY.sign(labelled_message("fedfair/request/v1", [*fields, csr]))
    return json.dumps({**document, "signature": base64.b64encode(signature).decode()}).encode()


def csr_of(key: CertificateIssuerPrivateKeyTypes) -> str:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def test_a_request_is_read_as_it_was_made(tmp_path: Path) -> None:
    path = tmp_path / "clinic-a.request.json"
    path.write_bytes(RAW)
    request = read_request(path)
    assert (request.name, request.federation, request.role.value) == ("clinic-a", "heart", "collaborator")
    assert format_signing_key(request.signing_public_key) == format_signing_key(SIGNING_KEY.public_key())
    assert len(request.fingerprint) == 32


def test_the_fingerprint_is_the_same_however_the_file_is_laid_out() -> None:
    again = json.dumps(dict(reversed(json.loads(RAW).items()))).encode()
    assert parse_request(again).fingerprint == parse_request(RAW).fingerprint


def test_another_key_or_name_or_federation_has_another_fingerprint() -> None:
    tls_key, other_key = new_tls_key(), Ed25519PrivateKey.generate()
    requests = [
        make_request(CLINIC, tls_key, SIGNING_KEY),
        make_request(CLINIC, tls_key, other_key),
        make_request(CLINIC, new_tls_key(), SIGNING_KEY),
        make_request(parse_participant("heart", "clinic-b"), tls_key, SIGNING_KEY),
        make_request(parse_participant("lungs", "clinic-a"), tls_key, SIGNING_KEY),
    ]
    assert len({parse_request(raw).fingerprint for raw in requests}) == len(requests)


@settings(deadline=None, max_examples=50)
@given(place=st.integers(0, len(RAW) - 1), flip=st.integers(1, 255))
def test_a_damaged_request_is_refused_or_unchanged_in_meaning(place: int, flip: int) -> None:
    damaged = bytearray(RAW)
    damaged[place] ^= flip
    try:
        request = parse_request(bytes(damaged))
    except IdentityError:
        return
    # Only white space, and the line breaks inside the PEM text, may differ without a meaning.
    assert request.fingerprint == parse_request(RAW).fingerprint


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "fedfair/request/2"}, "this version reads 'fedfair/request/1'"),
        ({"name": "clinic-b"}, "does not verify under its own signing key"),
        ({"federation": "lungs"}, "does not verify under its own signing key"),
        ({"name": "../authority"}, "is not usable in a certificate"),
        ({"role": "aggregator"}, "has the role 'collaborator'"),
        ({"name": "aggregator"}, "has the role 'aggregator'"),
        ({"role": 7}, "must be texts; not one: role"),
        ({"extra": "x"}, "does not have exactly the fields"),
        ({"csr": "no"}, "malformed"),
        ({"csr": csr_of(new_tls_key())}, "does not verify under its own signing key"),
        ({"signing_key": format_signing_key(Ed25519PrivateKey.generate().public_key())}, "does not verify"),
        ({"signing_key": "ed25519:AAAA"}, "is not 'ed25519:'"),
        ({"signature": "!"}, "is not base64"),
        ({"signature": ""}, "does not verify under its own signing key"),
    ],
)
def test_a_changed_request_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(IdentityError, match=message):
        parse_request(changed(**fields))


def test_a_field_that_stands_twice_is_refused() -> None:
    with pytest.raises(IdentityError, match="a field stands twice"):
        parse_request(RAW.replace(b'"name": "clinic-a"', b'"name": "clinic-b", "name": "clinic-a"'))


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b'"x"', b"{}", b"[" * 10_000, b"\xff\xfe{}", "{ü}".encode()])
def test_what_is_no_request_at_all_is_refused(raw: bytes) -> None:
    with pytest.raises(IdentityError):
        parse_request(raw)


def test_an_endless_request_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "long.request.json"
    path.write_bytes(b" " * (MAX_REQUEST_BYTES + 1) + RAW)
    with pytest.raises(IdentityError, match="longer than 16384 bytes"):
        read_request(path)


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())], ids=["rsa", "p-384"]
)
def test_a_tls_key_of_another_kind_or_size_is_refused(key: CertificateIssuerPrivateKeyTypes) -> None:
    with pytest.raises(IdentityError, match="is not a P-256 key"):
        parse_request(signed_anew({**json.loads(RAW), "csr": csr_of(key)}))


def test_a_signing_request_for_somebody_else_s_key_is_refused() -> None:
    # The body of one CSR under the signature of another: its sender does not hold the private key.
    first = x509.load_pem_x509_csr(json.loads(RAW)["csr"].encode())
    der = bytearray(first.public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    text = base64.encodebytes(bytes(der)).decode()
    pem = f"-----BEGIN CERTIFICATE REQUEST-----\n{text}-----END CERTIFICATE REQUEST-----\n"
    with pytest.raises(IdentityError, match="is not signed by its own key"):
        parse_request(signed_anew({**json.loads(RAW), "csr": pem}))


def test_a_request_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match=r"cannot read the request .*none\.json"):
        read_request(tmp_path / "none.json")
