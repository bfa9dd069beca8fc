"""Drop-outs at every step by every subset; the unit vectors say who is in the sum, an oracle says who must be."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from fedfair.secagg.messages import Kind
from fedfair.secagg.params import Mode, SecaggPolicy, least_survivors, threshold
from tests.secagg.federation_in_memory import ANY_COHORT, Wire, shape_of, terms_of, unit_update

# The step at which a member vanishes. Only the moment at which the aggregator learns of it differs between "after
# upload" and "before masks": at once, or when a wait is over.
STEPS = ("before upload", "after upload", "before masks", "before vote", "before answer")


def _expected(steps: dict[int, str], colluders: int, mode: Mode) -> tuple[int, ...] | None:
    """Return the survivors of a round, or None where it must be aborted."""
    members = len(steps)
    survivors = tuple(m for m, step in steps.items() if step != "before upload")
    needed = threshold(mode, members, colluders)
    if len(survivors) < least_survivors(mode, members, colluders):
        return None
    if len(survivors) < members:
        # Only they know the masks that they share with the missing, so they are missing too.
        survivors = tuple(m for m in survivors if steps[m] not in {"after upload", "before masks"})
        if len(survivors) < least_survivors(mode, members, colluders):
            return None
    voting = [m for m in survivors if steps[m] not in {"after upload", "before masks", "before vote"}]
    voted = len(survivors) == members or mode is Mode.SEMI_HONEST or len(voting) >= needed
    answering = [m for m in voting if steps[m] != "before answer"]
    return survivors if voted and len(answering) >= needed else None


def _run(wire: Wire, steps: dict[int, str]) -> tuple[int, ...] | None:
    """Run one round in which members vanish, and return who is in the sum."""
    wire.silent = set()
    for member, step in steps.items():
        kinds = {
            "before upload": (Kind.UPLOAD, Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES),
            "after upload": (Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES),
            "before masks": (Kind.PAIR_MASKS, Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES),
            "before vote": (Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES),
            "before answer": (Kind.UNMASK_SHARES,),
            "": (),
        }[step]
        wire.silent |= {(member, kind) for kind in kinds}
    wire.leaving = {(member, Kind.UPLOAD) for member, step in steps.items() if step == "after upload"}
    opened = wire.round({m: unit_update(m, len(steps)) for m in steps})
    for member in steps:
        wire.server.returned(member)
    if opened is None:
        return None
    counted = np.rint(opened.body).astype(int)
    assert np.abs(opened.body - counted).max() < opened.errors[0]
    assert set(counted) <= {0, 1}
    assert opened.weight == opened.contributors == counted.sum()
    return tuple(int(m) for m in np.flatnonzero(counted) + 1)


def _wire(members: int, colluders: int, mode: Mode) -> Wire:
    policy = SecaggPolicy(greatest_attempts=1_000_000, any_cohort=ANY_COHORT)
    wire = Wire(members, terms_of(members, colluders, mode=mode), {"training": shape_of(members)}, policy)
    wire.set_up()
    return wire


def _matrix(members: int, colluders: int, mode: Mode, cases: list[dict[int, str]]) -> Counter[str]:
    """Run every case against the oracle and count the outcomes."""
    outcomes: Counter[str] = Counter()
    wire = _wire(members, colluders, mode)
    for number, steps in enumerate(cases):
        if number % 100 == 99:
            wire.set_up()  # a session is renewed every hundred rounds
        expected = _expected(steps, colluders, mode)
        assert _run(wire, steps) == expected, steps
        outcomes["aborted" if expected is None else "summed"] += 1
    return outcomes


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("members", "colluders"),
    [
        (4, 0),
        (4, 1),
        pytest.param(5, 0, marks=pytest.mark.slow),
        pytest.param(5, 1, marks=pytest.mark.slow),
    ],
)
def test_every_subset_at_every_step(members: int, colluders: int, mode: Mode) -> None:
    everybody = range(1, members + 1)
    cases = [
        {member: step if member in gone else "" for member in everybody}
        for size in range(members + 1)
        for gone in itertools.combinations(everybody, size)
        for step in STEPS
    ]
    outcomes = _matrix(members, colluders, mode, cases)
    # A subset that vanishes at one step is survived exactly up to n - max(t, n_C + 2) members.
    survived = members - least_survivors(mode, members, colluders)
    sums = sum(len(list(itertools.combinations(everybody, size))) for size in range(survived + 1))
    steps = len(STEPS)
    assert outcomes == Counter(summed=steps * sums, aborted=steps * (2**members - sums))


@pytest.mark.parametrize(
    ("members", "summed"),
    # By hand for 3 members (2 needed) and 4 (3 needed): nobody, or one of them at one of 5 steps.
    [(3, 1 + 3 * 5), pytest.param(4, 1 + 4 * 5, marks=pytest.mark.slow)],
)
def test_every_member_at_any_step_of_its_own(members: int, summed: int) -> None:
    everybody = range(1, members + 1)
    each = itertools.product(("", *STEPS), repeat=members)
    cases = [dict(zip(everybody, steps, strict=True)) for steps in each]
    outcomes = _matrix(members, 0, Mode.MALICIOUS, cases)
    assert outcomes == Counter(summed=summed, aborted=6**members - summed)


@pytest.mark.slow
def test_two_of_five_members_at_any_step_of_their_own() -> None:
    everybody = range(1, 6)
    cases = [
        {member: dict(zip(gone, steps, strict=True)).get(member, "") for member in everybody}
        for gone in itertools.combinations(everybody, 2)
        for steps in itertools.product(STEPS, repeat=2)
    ]
    # Three answers are needed, so that every two may vanish.
    assert _matrix(5, 0, Mode.MALICIOUS, cases) == Counter(summed=10 * 25)


def test_the_departure_of_the_last_one_waited_for_closes_the_phase() -> None:
    wire = _wire(4, 0, Mode.MALICIOUS)
    wire.updates = {m: unit_update(m, 4) for m in (1, 2, 3)}
    wire.deliver(wire.server.start_round("training", wire.model, (1.0,), (1, 2, 3, 4)))
    assert wire.opened is None
    wire.deliver(wire.server.gone(4))
    assert wire.opened is not None
    assert wire.opened.survivors == (1, 2, 3)


def test_a_member_that_returns_is_asked_again_and_answers_byte_for_byte() -> None:
    wire = _wire(4, 0, Mode.MALICIOUS)
    wire.updates = {m: unit_update(m, 4) for m in (1, 2, 3, 4)}
    wire.silent = {(4, Kind.UPLOAD)}
    wire.deliver(wire.server.start_round("training", wire.model, (1.0,), (1, 2, 3, 4)))
    wire.silent = set()
    wire.deliver(wire.server.returned(4))
    assert wire.opened is not None
    assert wire.opened.survivors == (1, 2, 3, 4)


def test_a_round_below_the_threshold_is_aborted_in_words() -> None:
    wire = _wire(5, 1, Mode.MALICIOUS)
    wire.silent = {(member, Kind.UPLOAD) for member in (1, 2)}
    assert wire.round({m: unit_update(m, 5) for m in range(1, 6)}) is None
    assert wire.aborted is not None
    assert wire.aborted.reason == "3 of 5 contributed, 4 are needed"
    assert not wire.aborted.answered
