import base64
import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from fedfair.cli.loopback import prepare
from fedfair.errors import IdentityError
from fedfair.identity.authority import create_authority, federation_of, sign_request
from fedfair.identity.certificate import (
    Role,
    check_issued_by,
    check_validity,
    expiry_warning,
    grouped,
    parse_participant,
    parse_uri,
    participant_of,
    role_of,
)
from fedfair.identity.request import SiteRequest
from fedfair.identity.signing import parse_signing_key
from fedfair.identity.store import SIGNING_KEY, load_site_identity
from fedfair.plan.public_keys import check_public_key, format_public_key, parse_public_key
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.keys import EphemeralKey
from fedfair.secagg.keys import check_public_key as check_session_key
from fedfair.secagg.params import Suite
from tests.identity.identity_makers import HEART, NOW, authority, certificate_of, new_tls_key, request_of
from tests.plans import small_plan
from tests.site_reading import read_site


def test_the_authority_may_only_sign_certificates_and_lists_and_only_directly() -> None:
    certificate = create_authority(HEART, NOW).certificate
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    assert usage.critical
    assert (usage.value.key_cert_sign, usage.value.crl_sign, usage.value.digital_signature) == (True, True, False)
    assert federation_of(certificate) == "heart"
    assert certificate.not_valid_after_utc == NOW + timedelta(days=3650)


@pytest.mark.parametrize(
    ("name", "hosts", "usage", "names"),
    [
        (
            "clinic-a",
            [],
            ExtendedKeyUsageOID.CLIENT_AUTH,
            [x509.UniformResourceIdentifier("fedfair://heart/clinic-a")],
        ),
        (
            "aggregator",
            ["agg.example.org", "10.0.0.5"],
            ExtendedKeyUsageOID.SERVER_AUTH,
            [
                x509.UniformResourceIdentifier("fedfair://heart/aggregator"),
                x509.DNSName("agg.example.org"),
                x509.IPAddress(ipaddress.ip_address("10.0.0.5")),
            ],
        ),
    ],
)
def test_a_certificate_says_who_it_is_for_and_allows_nothing_more(
    name: str, hosts: list[str], usage: x509.ObjectIdentifier, names: list[x509.GeneralName]
) -> None:
    signer = authority()
    certificate = sign_request(signer, request_of(name), hosts=hosts, now=NOW, days=90)
    extensions = certificate.extensions
    key_usage = extensions.get_extension_for_class(x509.KeyUsage)
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    assert list(extensions.get_extension_for_class(x509.SubjectAlternativeName).value) == names
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [usage]
    assert key_usage.critical
    assert key_usage.value.digital_signature
    assert not key_usage.value.key_cert_sign
    assert constraints.critical
    assert not constraints.value.ca
    assert certificate.not_valid_after_utc == NOW + timedelta(days=90)
    assert NOW - timedelta(minutes=10) < certificate.not_valid_before_utc < NOW
    check_issued_by(certificate, signer.certificate)


def test_key_identifiers_tie_a_certificate_to_its_authority() -> None:
    signer = authority()
    theirs = (
        certificate_of("clinic-a", signer).extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    )
    ours = signer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    assert theirs.key_identifier == ours.digest


def test_serial_numbers_do_not_repeat_and_cannot_be_guessed() -> None:
    signer = authority()
    serials = {certificate_of("clinic-a", signer).serial_number for _ in range(20)}
    assert len(serials) == 20
    # 159 random bits: one in 2**32 of them is below 2**127.
    assert min(serials) > 2**64


def test_a_subject_and_names_that_a_request_asks_for_are_ignored() -> None:
    key = new_tls_key()
    wanted = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("fedfair://heart/aggregator")])
    csr = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "aggregator")]))
        .add_extension(wanted, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public_key = Ed25519PrivateKey.generate().public_key()
    request = SiteRequest(parse_participant("heart", "clinic-a"), csr, public_key, bytes(32))
    certificate = sign_request(authority(), request, hosts=[], now=NOW)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.UniformResourceIdentifier("fedfair://heart/clinic-a")]
    assert certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "clinic-a"
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_request_for_another_federation_is_refused() -> None:
    with pytest.raises(IdentityError, match="is for the federation 'lungs', this authority signs for 'heart'"):
        sign_request(authority("heart"), request_of("clinic-a", "lungs"), hosts=[], now=NOW)


def test_an_aggregator_without_hosts_could_never_be_verified_and_is_refused() -> None:
    with pytest.raises(IdentityError, match="must name the hosts"):
        sign_request(authority(), request_of("aggregator"), hosts=[], now=NOW)


def test_a_collaborator_gets_no_host_name() -> None:
    with pytest.raises(IdentityError, match="needs no host name"):
        sign_request(authority(), request_of("clinic-a"), hosts=["agg.example.org"], now=NOW)


@pytest.mark.parametrize(
    "host", ["", "agg.example.org:8443", "*.example.org", "-a.org", "a..b", "Agg.org", "a b", "ä.de"]
)
def test_a_host_that_no_client_could_compare_is_refused(host: str) -> None:
    with pytest.raises(IdentityError, match="neither an IP address nor a host name"):
        sign_request(authority(), request_of("aggregator"), hosts=[host], now=NOW)


@pytest.mark.parametrize("days", [0, -1, 3651])
def test_a_certificate_never_outlives_its_authority(days: int) -> None:
    with pytest.raises(IdentityError, match="the days that the authority itself has left"):
        certificate_of("clinic-a", authority(), days=days)


def test_a_participant_s_certificate_is_not_taken_for_an_authority_s() -> None:
    with pytest.raises(IdentityError, match="is not the certificate of a federation's authority"):
        federation_of(certificate_of("clinic-a", authority()))


def test_a_certificate_under_the_authority_s_name_but_by_another_key_is_refused() -> None:
    with pytest.raises(IdentityError, match="was not signed by the authority"):
        check_issued_by(certificate_of("clinic-a", authority()), authority().certificate)


CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLINIC = "fedfair://heart/clinic-a"


def home_made(uris: list[str], usages: list[x509.ObjectIdentifier]) -> x509.Certificate:
    """Return a certificate that `authority.py` would never make."""
    key, name = new_tls_key(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clinic-a")])
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
    with pytest.raises(IdentityError, match="no subject alternative name, so it names no participant"):
        participant_of(home_made([], [CLIENT]))


def test_a_certificate_that_names_two_participants_is_refused() -> None:
    with pytest.raises(IdentityError, match="has 2 URIs"):
        participant_of(home_made([CLINIC, "fedfair://heart/clinic-b"], [CLIENT]))


@pytest.mark.parametrize(
    "uri",
    [
        "https://heart/clinic-a", "fedfair://heart", "fedfair://heart/", "fedfair:///clinic-a",
        "fedfair://heart/clinic-a/", "fedfair://heart/clinic-a?x=1", "fedfair://heart/Clinic-A",
        "fedfair://heart/clinic%2da", "FEDFAIR://heart/clinic-a",
    ],
)  # fmt: skip
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
    certificate, second = certificate_of("clinic-a", authority(), days=1), timedelta(seconds=1)
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


# ---- each public key has one spelling: in base64, and as a point of the curve

P = 2**255 - 19
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def spelt(y: int, sign: int = 0) -> bytes:
    return (y | sign << 255).to_bytes(32, "little")


SMALL_ORDER = [
    spelt(1), spelt(P - 1), spelt(0), spelt(0, 1),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
]  # fmt: skip
OTHER_SPELLINGS = [spelt(P + y, sign) for y in range(19) for sign in (0, 1)] + [spelt(1, 1), spelt(P - 1, 1)]


@pytest.mark.parametrize("key", OTHER_SPELLINGS + SMALL_ORDER)
def test_a_key_that_is_another_spelling_or_that_anybody_can_sign_for_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="is not the one spelling of a key"):
        parse_public_key(format_public_key(key))
    with pytest.raises(IdentityError, match="is not the one spelling of a key"):
        parse_signing_key(format_public_key(key))


@given(st.binary(min_size=32, max_size=32))
def test_every_key_that_somebody_has_made_is_taken(seed: bytes) -> None:
    key = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    check_public_key(key)
    assert parse_public_key(format_public_key(key)) == key


@given(st.binary(min_size=32, max_size=32))
def test_no_other_base64_of_a_key_is_taken(seed: bytes) -> None:
    raw = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    text = format_public_key(raw)
    last = ALPHABET.index(text[-2])
    assert last % 4 == 0
    # The last letter has two bits that mean nothing.
    others = [text[:-2] + ALPHABET[last + step] + "=" for step in (1, 2, 3)]
    others += [text.rstrip("="), text + "\n", text + "=", " " + text, text[:20] + "\n" + text[20:], text.upper()]
    others += ["ed25519:ed25519:" + base64.b64encode(raw).decode(), base64.b64encode(raw).decode()]
    for other in others:
        with pytest.raises(ValueError, match="is not 'ed25519:'"):
            parse_public_key(other)


@given(st.binary(min_size=32, max_size=32))
def test_a_session_key_has_one_spelling_too(seed: bytes) -> None:
    made = EphemeralKey(Suite.X25519, lambda _: seed).public
    check_session_key(made, Suite.X25519, "clinic-a")
    value = int.from_bytes(made, "little")
    for other in (value | 1 << 255, value + P):
        if other < 1 << 256:
            with pytest.raises(SecaggError, match="not below 2\\^255 - 19") as refusal:
                check_session_key(other.to_bytes(32, "little"), Suite.X25519, "clinic-a")
            assert refusal.value.check is Check.KEY


# ---- a signing key that is not the plan's is blamed itself, before anything that it has signed


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
