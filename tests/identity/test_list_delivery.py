"""A list counts because the authority has signed it and it is newer, whoever carries it."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import IdentityError
from fedfair.identity import revocation
from fedfair.identity.authority import Authority
from fedfair.identity.authority_store import load_authority
from fedfair.identity.bundle import carried_list, keep_list, newer_list
from fedfair.identity.development import issue_all
from fedfair.identity.revocation import (
    LIST_DAYS,
    check_list,
    check_not_revoked,
    empty_list,
    list_number,
    list_warning,
    revoke,
    revoked_serials,
)
from fedfair.identity.store import Trust, load_trust
from tests.identity.identity_makers import NOW, authority, certificate_of
from tests.interop.own_folders import copy_site


@pytest.fixture
def lead(tmp_path: Path) -> Path:
    issue_all(tmp_path / "lead", "heart", ["clinic-a"], ["localhost"], NOW)
    return tmp_path / "lead"


@pytest.fixture
def site(lead: Path, tmp_path: Path) -> Path:
    return copy_site(lead, "clinic-a", tmp_path / "site")


def signed(authority: Authority, crl: x509.CertificateRevocationList, *serials: int) -> Trust:
    return Trust(authority.certificate, revocation.revoke(authority, crl, frozenset(serials), NOW))


def test_a_newer_list_is_taken_also_across_a_gap_and_survives_a_restart(lead: Path, site: Path) -> None:
    authority, first = load_authority(lead, NOW, None), load_trust(lead, NOW)
    assert newer_list(site, carried_list(first), NOW) is None
    later = first
    for serial in (7, 8, 9):
        later = signed(authority, later.crl, serial)
    found = newer_list(site, carried_list(later), NOW)
    assert load_trust(site, NOW).crl == first.crl, "to look is not to take"
    keep_list(site, found.crl)
    kept = load_trust(site, NOW).crl
    assert (list_number(kept), revoked_serials(kept)) == (4, {7, 8, 9})
    assert newer_list(site, carried_list(later), NOW) is None


def refused(site: Path, trust: Trust, now: datetime = NOW) -> str:
    before = (site / "revoked.crl").read_bytes()
    with pytest.raises(IdentityError) as caught:
        newer_list(site, carried_list(trust), now)
    assert (site / "revoked.crl").read_bytes() == before
    return caught.value.message


def test_an_older_list_is_refused_although_the_authority_has_signed_it(lead: Path, site: Path) -> None:
    authority, first = load_authority(lead, NOW, None), load_trust(lead, NOW)
    keep_list(site, signed(authority, first.crl, 7).crl)
    assert refused(site, first) == "the list that the aggregator carries is number 1, this site has number 2"


def test_another_list_of_the_same_number_is_refused(lead: Path, site: Path) -> None:
    authority, first = load_authority(lead, NOW, None), load_trust(lead, NOW)
    keep_list(site, signed(authority, first.crl, 7).crl)
    assert "has number 2 like this site's, but says something else" in refused(
        site, signed(authority, first.crl, 8)
    )


def test_a_list_of_another_authority_of_the_same_name_is_refused(site: Path, tmp_path: Path) -> None:
    issue_all(tmp_path / "other", "heart", ["clinic-a"], ["localhost"], NOW)
    other = load_authority(tmp_path / "other", NOW, None)
    forged = signed(other, load_trust(tmp_path / "other", NOW).crl, 7)
    assert "was not signed by the authority" in refused(site, forged)


def test_a_list_that_is_stale_or_from_the_future_is_refused(lead: Path, site: Path) -> None:
    newer = signed(load_authority(lead, NOW, None), load_trust(lead, NOW).crl, 7)
    assert "is stale" in refused(site, newer, NOW + timedelta(days=401))
    assert "begins on" in refused(site, newer, NOW - timedelta(days=1))


@pytest.mark.parametrize("content", [b"", b"junk", b"-----BEGIN X509 CRL-----"])
def test_bytes_that_are_no_list_are_refused(site: Path, content: bytes) -> None:
    with pytest.raises(IdentityError, match="the list that the aggregator carries is malformed"):
        newer_list(site, content, NOW)


def test_every_bit_of_a_carried_list_counts(lead: Path, site: Path) -> None:
    good = signed(load_authority(lead, NOW, None), load_trust(lead, NOW).crl, 7).crl
    raw = good.public_bytes(serialization.Encoding.DER)
    # The count of unused bits before the signature is part of nothing that is said or signed.
    unused = raw.rindex(good.signature) - 1
    for place in set(range(len(raw))) - {unused}:
        bad = bytearray(raw)
        bad[place] ^= 1
        with pytest.raises(IdentityError):
            newer_list(site, bytes(bad), NOW)


def test_where_the_authority_is_kept_nothing_replaces_its_own_list(lead: Path) -> None:
    newer = signed(load_authority(lead, NOW, None), load_trust(lead, NOW).crl, 7)
    found = newer_list(lead, carried_list(newer), NOW)
    assert found is not None
    with pytest.raises(IdentityError, match="newer than the one of the authority that this folder keeps"):
        keep_list(lead, found.crl)


SIGNER = authority()


def test_only_the_revoked_certificate_is_refused() -> None:
    one, two = certificate_of("clinic-a", SIGNER), certificate_of("clinic-b", SIGNER)
    crl = revoke(SIGNER, empty_list(SIGNER, NOW), frozenset({one.serial_number}), NOW)
    check_not_revoked(two, crl, SIGNER.certificate, NOW)
    words = rf"'CN=clinic-a,O=heart' was revoked on 2030-05-01 \(serial {one.serial_number:x}\)"
    with pytest.raises(IdentityError, match=words):
        check_not_revoked(one, crl, SIGNER.certificate, NOW)


@settings(deadline=None, max_examples=25)
@given(steps=st.lists(st.frozensets(st.integers(1, 2**159 - 1), max_size=3), max_size=5))
def test_a_list_only_ever_grows_and_counts_its_editions(steps: list[frozenset[int]]) -> None:
    crl = empty_list(SIGNER, NOW)
    expected: frozenset[int] = frozenset()
    for serials in steps:
        crl = revoke(SIGNER, crl, serials, NOW)
        expected |= serials
        assert revoked_serials(crl) == expected
    assert list_number(crl) == 1 + len(steps)
    check_list(crl, SIGNER.certificate, NOW)


def test_a_list_of_another_authority_is_refused_even_under_the_same_name() -> None:
    forger, certificate = authority(), certificate_of("clinic-a", SIGNER)
    with pytest.raises(IdentityError, match="was not signed by the authority"):
        check_not_revoked(certificate, empty_list(forger, NOW), SIGNER.certificate, NOW)
    with pytest.raises(IdentityError, match="was not signed by the authority"):
        revoke(SIGNER, empty_list(forger, NOW), frozenset(), NOW)


def test_a_stale_list_is_refused_and_a_list_about_to_go_stale_announced() -> None:
    crl, end = empty_list(SIGNER, NOW), NOW + timedelta(days=LIST_DAYS)
    check_list(crl, SIGNER.certificate, end)
    with pytest.raises(IdentityError, match="is stale: it was good until 2031-06-05"):
        check_list(crl, SIGNER.certificate, end + timedelta(seconds=1))
    assert list_warning(crl, end - timedelta(days=31)) is None
    assert "is good until 2031-06-05 only" in (list_warning(crl, end - timedelta(days=30)) or "")


def test_signing_a_list_anew_makes_a_stale_one_good_again() -> None:
    later, certificate = NOW + timedelta(days=LIST_DAYS + 1), certificate_of("clinic-a", SIGNER)
    stale = revoke(SIGNER, empty_list(SIGNER, NOW), frozenset({certificate.serial_number}), NOW)
    fresh = revoke(SIGNER, stale, frozenset(), later)
    check_list(fresh, SIGNER.certificate, later)
    with pytest.raises(IdentityError, match="was revoked on 2030-05-01"):
        check_not_revoked(certificate, fresh, SIGNER.certificate, later)
