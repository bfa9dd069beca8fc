from __future__ import annotations

import ipaddress
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedfair.errors import IdentityError
from fedfair.identity.authority import create_authority, federation_of, sign_request
from fedfair.identity.certificate import check_issued_by, parse_participant
from fedfair.identity.request import SiteRequest
from tests.identity.identity_makers import HEART, NOW, authority, certificate_of, new_tls_key, request_of


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
