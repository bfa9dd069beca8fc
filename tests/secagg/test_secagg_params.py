from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import PlanError
from fedfair.secagg.params import Mode, drop_outs_survived, guarantee_in_words, least_survivors, threshold
from fedfair.secagg.session import renewal_reason
from fedfair.secagg.shape import HeaderRun, SumShape, layout_digest, packed_bytes
from fedfair.secagg.signing import Member, Roster
from tests.secagg.federation_in_memory import roster_of, shape_of


@pytest.mark.parametrize(
    ("members", "colluders", "needed", "dropped"),
    [
        (3, 0, 2, 1),
        (3, 1, 3, 0),
        (4, 1, 3, 1),
        (5, 1, 4, 1),
        (7, 2, 5, 2),
        (10, 3, 7, 3),
        (20, 6, 14, 6),
        (50, 16, 34, 16),
        (100, 33, 67, 33),
    ],
)
def test_the_table_of_thresholds(members: int, colluders: int, needed: int, dropped: int) -> None:
    assert threshold(Mode.MALICIOUS, members, colluders) == needed
    assert drop_outs_survived(Mode.MALICIOUS, members, colluders) == dropped


@given(st.integers(2, 200), st.integers(0, 198))
def test_two_sets_of_survivors_can_never_both_be_opened(members: int, colluders: int) -> None:
    if colluders > members - 2:
        with pytest.raises(PlanError):
            threshold(Mode.MALICIOUS, members, colluders)
        return
    t = threshold(Mode.MALICIOUS, members, colluders)
    assert 2 * t > members + colluders
    assert t <= least_survivors(Mode.MALICIOUS, members, colluders) <= members
    assert least_survivors(Mode.SEMI_HONEST, members, colluders) == colluders + 2


def test_a_round_of_more_than_a_thousand_is_refused_in_words() -> None:
    assert threshold(Mode.MALICIOUS, 1000, 0) == 501
    with pytest.raises(PlanError, match="at most 1000"):
        threshold(Mode.MALICIOUS, 1001, 0)


def test_the_guarantee_is_said_in_words() -> None:
    assert guarantee_in_words(Mode.MALICIOUS, 5, 1) == (
        "an aggregator that may do anything, together with up to 1 of 5 collaborators, learns one sum over at "
        "least 4 sites a round; 1 drop-out is survived in every training round"
    )
    assert "no drop-out is survived: if one of 3 vanishes" in guarantee_in_words(Mode.MALICIOUS, 3, 1)
    assert guarantee_in_words(Mode.SEMI_HONEST, 4, 0) == (
        "an aggregator that follows the protocol, alone, learns one sum over at least 2 sites a round; "
        "2 drop-outs are survived in every training round"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"rounds": 100}, "100 rounds"),
        ({"hours": 24.0}, "24.0 hours"),
        ({"present": frozenset({1, 2, 9})}, "no keys"),
        ({"present": frozenset({1})}, ""),
        ({"restarted": True}, "restarted"),
    ],
)
def test_when_a_session_is_renewed(changes: dict[str, object], reason: str) -> None:
    calm: dict[str, object] = {
        "rounds": 99,
        "hours": 1.0,
        "members": frozenset({1, 2, 3}),
        "present": frozenset({1, 2}),
        "restarted": False,
    }
    found = renewal_reason(**{**calm, **changes})  # type: ignore[arg-type]
    assert (reason in found) if reason else found == ""


@pytest.mark.parametrize(
    "members",
    [
        [Member(1, "a", b"k" * 32)],
        [Member(1, "a", b"k" * 32), Member(1, "b", b"l" * 32)],
        [Member(1, "a", b"k" * 32), Member(2, "a", b"l" * 32)],
        [Member(1, "a", b"k" * 32), Member(2, "b", b"k" * 32)],
        [Member(0, "a", b"k" * 32), Member(2, "b", b"l" * 32)],
        [Member(1, "a", b"k" * 31), Member(2, "b", b"l" * 32)],
    ],
    ids=["alone", "index", "name", "key", "zero", "short key"],
)
def test_a_roster_that_cannot_be_is_refused(members: list[Member]) -> None:
    with pytest.raises(PlanError):
        Roster(members)


def test_a_rosters_digest_says_who_is_in_it() -> None:
    assert roster_of(3).digest == roster_of(3).digest != roster_of(4).digest
    assert len(roster_of(3)) == 3
    assert roster_of(3).name(2) == "clinic-2"


def test_shapes_differ_in_their_digests() -> None:
    shapes = [
        shape_of(0),
        shape_of(5),
        shape_of(5, 2),
        SumShape((HeaderRun(1, 100.0, whole=True),), (5,)),
        SumShape((), (2, 3)),
    ]
    assert len({shape.digest() for shape in shapes}) == len(shapes)
    assert layout_digest({"a": shapes[0]}) != layout_digest({"b": shapes[0]})


def test_a_shape_that_cannot_be_encoded_is_refused() -> None:
    for runs, groups in ((-1, (1,)), (1, (-1,)), (1 << 17, ())):
        with pytest.raises(PlanError):
            SumShape((HeaderRun(runs, 1.0, whole=True),), groups)
    with pytest.raises(PlanError):
        SumShape((HeaderRun(1, float("inf"), whole=False),), ())
    with pytest.raises(PlanError):
        packed_bytes(10, 31)
