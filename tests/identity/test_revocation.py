from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import IdentityError
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
from tests.identity.identity_makers import NOW, authority, certificate_of

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
