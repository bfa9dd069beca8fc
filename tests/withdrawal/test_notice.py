"""A site's notice of withdrawals, what the lead makes of it, and where a chain of runs begins again."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import ApprovalError
from fedfair.withdrawal.notice import (
    BEGINS,
    COUNTED,
    AffectedRun,
    WithdrawalNotice,
    verified_notice,
    withdrawal_sentences,
)
from fedfair.withdrawal.rerun import rerun_place

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
ROSTER = {"clinic-b": KEY.public_key(), "clinic-c": Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()}


def plan(number: int) -> str:
    return f"sha256:{number:064x}"


def notice(*runs: AffectedRun, site: str = "clinic-b") -> WithdrawalNotice:
    return WithdrawalNotice("heart", site, "2030-01-31", runs)


TOLD = notice(
    AffectedRun("run-1", plan(1), COUNTED, "run-3", (plan(50), plan(51))), AffectedRun("run-2", plan(2), BEGINS)
)


def test_a_notice_is_verified_by_the_key_that_the_plan_pins() -> None:
    for told in (TOLD, notice()):
        assert verified_notice(told.signed(KEY), "heart", ROSTER, "the file") == told
    raw = TOLD.signed(KEY)
    assert len(json.loads(raw)["runs"]) == 2
    with pytest.raises(ApprovalError, match="for federation 'heart', not for 'lung'"):
        verified_notice(raw, "lung", ROSTER, "the file")
    with pytest.raises(ApprovalError, match="of 'clinic-b', for which the plan pins no key"):
        verified_notice(raw, "heart", {"clinic-c": ROSTER["clinic-c"]}, "the file")
    with pytest.raises(ApprovalError, match="not signed with the key"):
        verified_notice(raw.replace(b"clinic-b", b"clinic-c"), "heart", ROSTER, "the file")


def test_a_notice_of_which_any_byte_is_another_is_refused() -> None:
    raw = TOLD.signed(KEY)
    for place in range(0, len(raw), 3):
        changed = bytearray(raw)
        changed[place] ^= 1
        with pytest.raises(ApprovalError):
            verified_notice(bytes(changed), "heart", ROSTER, "the file")
    for other in (
        raw[:-1],
        raw + b" ",
        b" " + raw,
        raw * 2,
        b"",
        b"[]",
        b"{}",
        b"[" * 10**6,
        b"\xff",
        raw + b"x" * 2**20,
    ):
        with pytest.raises(ApprovalError, match="the file"):
            verified_notice(other, "heart", ROSTER, "the file")
    with pytest.raises(ApprovalError, match="has the format fedfair/withdrawal-notice/2"):
        verified_notice(raw.replace(b"notice/1", b"notice/2"), "heart", ROSTER, "the file")


def test_what_a_passport_says_of_a_model() -> None:
    other = notice(AffectedRun("run-1", plan(1), models=(plan(50),)), site="clinic-c")
    said = "records that counted in this model were withdrawn, as said on 2030-01-31"
    assert withdrawal_sentences([TOLD, other], plan(50), ()) == (
        f"clinic-b: {said}; superseded by run run-3",
        f"clinic-c: {said}",
    )
    nothing = ("no withdrawal of records that counted in this model is reported",)
    # The model of the later run has the same plan and other weights.
    assert withdrawal_sentences([TOLD, notice()], plan(53), [plan(1)]) == nothing
    assert withdrawal_sentences([TOLD], plan(53), [plan(1), plan(2)]) == (f"clinic-b: {said}",)


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[str], list[set[int]], list[WithdrawalNotice]]:
    """Draw a chain of plans, at each site the runs in which a withdrawn record counted, and the sites' notices."""
    length = draw(st.integers(1, 6))
    chain = [plan(number) for number in range(length)]
    counted = draw(st.lists(st.sets(st.integers(0, length - 1)), min_size=1, max_size=3))
    notices = []
    for site, held in enumerate(counted):
        first = min(held, default=length)
        runs = [
            AffectedRun(f"run-{number}", chain[number], BEGINS if number > first else COUNTED)
            for number in range(first, length)
        ]
        superseded = [AffectedRun("older", chain[0], COUNTED, "run-0")]
        notices.append(notice(*superseded, *runs, AffectedRun("x", plan(99)), site=f"clinic-{site}"))
    return chain, counted, notices


@given(chains())
def test_a_chain_begins_again_where_nobody_had_counted_anywhere(
    drawn: tuple[list[str], list[set[int]], list[WithdrawalNotice]],
) -> None:
    chain, counted, notices = drawn
    clean = 0
    while clean < len(chain) and not any(clean in held for held in counted):
        clean += 1
    found = rerun_place(chain, notices)
    assert found.place == (None if clean == len(chain) else clean)
    assert not found.begins_affected
    assert found.sites == tuple(f"clinic-{site}" for site, held in enumerate(counted) if held)


def test_a_chain_that_begins_with_an_affected_model_cannot_begin_again_by_itself() -> None:
    chain = [plan(1), plan(2)]
    assert rerun_place(chain, [notice(AffectedRun("run-1", plan(1), BEGINS))]).begins_affected
    assert not rerun_place(chain, [notice(AffectedRun("run-1", plan(1), BEGINS, "run-2"))]).begins_affected
