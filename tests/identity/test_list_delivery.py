"""A list counts because the authority has signed it and it is newer, whoever carries it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fedfair.errors import IdentityError
from fedfair.identity import revocation
from fedfair.identity.authority import Authority
from fedfair.identity.authority_store import load_authority
from fedfair.identity.bundle import carried_list, keep_list, newer_list
from fedfair.identity.development import issue_all
from fedfair.identity.revocation import list_number, revoked_serials
from fedfair.identity.store import Trust, load_trust
from tests.identity.identity_makers import NOW
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
