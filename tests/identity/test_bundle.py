import base64
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import FedfairError, IdentityError
from fedfair.identity.authority_store import found_authority, issue, load_authority, revoke
from fedfair.identity.bundle import (
    Bundle,
    check_bundle,
    install_bundle,
    installed_authority,
    make_bundle,
    read_bundle,
)
from fedfair.identity.certificate import parse_participant
from fedfair.identity.files import certificate_pem
from fedfair.identity.request import parse_request
from fedfair.identity.revocation import empty_list, list_number
from fedfair.identity.store import Trust, create_site, load_site_identity, load_trust
from tests.identity.identity_makers import HEART, NOW, authority, certificate_of

SIGNER = authority()
COMPLETE = make_bundle(certificate_of("clinic-a", SIGNER), Trust(SIGNER.certificate, empty_list(SIGNER, NOW)))


@pytest.fixture
def lead(tmp_path: Path) -> Path:
    folder = tmp_path / "lead"
    found_authority(folder, HEART, NOW, None)
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


def sent_back(lead: Path, request: bytes, path: Path) -> Bundle:
    """Sign a request at the lead and return the bundle as the site reads it."""
    signer = load_authority(lead, NOW, None)
    certificate = issue(lead, signer, parse_request(request), hosts=(), now=NOW, days=365)
    path.write_bytes(make_bundle(certificate, load_trust(lead, NOW)))
    return read_bundle(path)


def test_a_first_bundle_brings_a_site_everything_it_needs(lead: Path, site: Path, tmp_path: Path) -> None:
    bundle = sent_back(lead, create_site(site, parse_participant("heart", "clinic-a")), tmp_path / "b.pem")
    assert installed_authority(site) is None
    install_bundle(site, bundle, NOW)
    assert load_site_identity(site, "clinic-a", NOW).trust.ca == load_trust(lead, NOW).ca
    assert sorted(path.name for path in site.iterdir()) == ["ca.crt", "clinic-a", "revoked.crl"]


def test_a_later_bundle_of_another_authority_is_refused(lead: Path, site: Path, tmp_path: Path) -> None:
    request = create_site(site, parse_participant("heart", "clinic-a"))
    install_bundle(site, sent_back(lead, request, tmp_path / "b.pem"), NOW)
    other = tmp_path / "other"
    found_authority(other, HEART, NOW, None)
    forged = sent_back(other, request, tmp_path / "forged.pem")
    before = (site / "ca.crt").read_bytes()
    with pytest.raises(IdentityError, match=r"the bundle comes from the authority .*, this workspace trusts"):
        install_bundle(site, forged, NOW)
    assert (site / "ca.crt").read_bytes() == before


def test_a_bundle_for_another_site_is_refused_and_nothing_written(lead: Path, site: Path, tmp_path: Path) -> None:
    create_site(site, parse_participant("heart", "clinic-a"))
    other = create_site(tmp_path / "other", parse_participant("heart", "clinic-b"))
    with pytest.raises(IdentityError, match=r"no key in .*clinic-b belongs to this certificate"):
        install_bundle(site, sent_back(lead, other, tmp_path / "b.pem"), NOW)
    assert installed_authority(site) is None


def test_a_bundle_whose_parts_come_from_two_authorities_is_refused(site: Path) -> None:
    one, two = authority(), authority()
    certificate = certificate_of("clinic-a", one)
    with pytest.raises(IdentityError, match="the revocation list was not signed"):
        install_bundle(site, Bundle(certificate, one.certificate, empty_list(two, NOW)), NOW)
    with pytest.raises(IdentityError, match=r"the certificate .* was not signed"):
        install_bundle(site, Bundle(certificate, two.certificate, empty_list(two, NOW)), NOW)


def test_a_newer_list_alone_is_installed_and_an_older_one_refused(lead: Path, site: Path, tmp_path: Path) -> None:
    request = create_site(site, parse_participant("heart", "clinic-a"))
    first = sent_back(lead, request, tmp_path / "b.pem")
    install_bundle(site, first, NOW)
    serial = load_site_identity(site, "clinic-a", NOW).certificate.serial_number
    revoke(lead, load_authority(lead, NOW, None), frozenset({serial}), NOW)
    install_bundle(site, read_bundle(lead / "authority" / "revoked.crl"), NOW)
    with pytest.raises(IdentityError, match="was revoked on"):
        load_site_identity(site, "clinic-a", NOW)
    with pytest.raises(IdentityError, match="is number 1, this workspace has number 2"):
        install_bundle(site, first, NOW)
    assert list_number(load_trust(site, NOW).crl) == 2


def test_a_list_alone_cannot_found_trust(site: Path) -> None:
    with pytest.raises(IdentityError, match="knows no authority yet"):
        install_bundle(site, Bundle(None, None, empty_list(authority(), NOW)), NOW)


def test_a_list_of_another_authority_is_not_installed(lead: Path, site: Path, tmp_path: Path) -> None:
    request = create_site(site, parse_participant("heart", "clinic-a"))
    install_bundle(site, sent_back(lead, request, tmp_path / "b.pem"), NOW)
    with pytest.raises(IdentityError, match="the revocation list was not signed"):
        install_bundle(site, Bundle(None, None, empty_list(authority(), NOW)), NOW)


@settings(deadline=None, max_examples=30)
@given(end=st.integers(0, len(COMPLETE) - 2))
def test_a_bundle_that_was_cut_off_is_refused(tmp_path_factory: pytest.TempPathFactory, end: int) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.pem"
    path.write_bytes(COMPLETE[:end])
    with pytest.raises(IdentityError):
        read_bundle(path)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")  # a flipped sign bit; refused by the signature
@settings(deadline=None, max_examples=100)
@given(part=st.integers(0, 2), place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_bundle_with_one_signed_byte_changed_is_refused(
    tmp_path_factory: pytest.TempPathFactory, part: int, place: float, flip: int
) -> None:
    certificate, ca, crl = read_whole()
    ders = [item.public_bytes(serialization.Encoding.DER) for item in (certificate, ca, crl)]
    signed = [certificate.tbs_certificate_bytes, ca.tbs_certificate_bytes, crl.tbs_certlist_bytes][part]
    damaged = bytearray(ders[part])
    damaged[ders[part].index(signed) + int(place * len(signed))] ^= flip
    ders[part] = bytes(damaged)
    folder = tmp_path_factory.getbasetemp()
    path = folder / "changed.pem"
    path.write_bytes(b"".join(map(pem, ("CERTIFICATE", "CERTIFICATE", "X509 CRL"), ders)))
    with pytest.raises(FedfairError):
        check_bundle(folder / "nowhere", read_bundle(path), NOW)


def read_whole() -> tuple[x509.Certificate, x509.Certificate, x509.CertificateRevocationList]:
    leaf, ca = x509.load_pem_x509_certificates(COMPLETE)
    return leaf, ca, x509.load_pem_x509_crl(COMPLETE[COMPLETE.index(b"-----BEGIN X509 CRL") :])


def pem(label: str, der: bytes) -> bytes:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n".encode()


@pytest.mark.parametrize("extra", [COMPLETE, certificate_pem(SIGNER.certificate)])
def test_a_bundle_with_parts_to_spare_is_refused(tmp_path: Path, extra: bytes) -> None:
    path = tmp_path / "long.pem"
    path.write_bytes(COMPLETE + extra)
    with pytest.raises(IdentityError, match="is neither a bundle nor a revocation list"):
        read_bundle(path)
