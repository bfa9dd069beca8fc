"""In which runs persons counted, what follows from these, and by how few persons two sums may differ."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import StateError
from fedfair.plan.schema import Plan
from fedfair.policy.answered_facts import Rows
from fedfair.policy.site_config import SitePolicy, WithdrawalsSection
from fedfair.withdrawal.lineage import CountedRun, CountedRuns, following, least_difference, round_of_ceasing
from fedfair.withdrawal.together import together_term
from tests import plans

PLAN = plans.parsed(("clinic-a", "clinic-b"))
NOISED = plans.parsed(
    ("clinic-a", "clinic-b"),
    task={"standardize": "none"},
    privacy={"sample_level": {"noise_multiplier": 1.0, "clip": 1.0, "delta": 1e-5}},
)


def start(run: str, *follows: str, done: int = 0, noised: bool = False) -> CountedRun:
    return CountedRun(
        run, "sha256:" + "0" * 64, "heart", done, "2030-01-01T00:00:00+00:00", noised, False, follows
    )


class Table(dict[bytes, bytes]):
    """Rows as a file would have them."""

    def note(self, run: CountedRun, **names: list[int]) -> Rows:
        rows = CountedRuns(self).noted(run, {split: np.array(found, np.int64) for split, found in names.items()})
        self.update(rows)
        return rows


def test_what_is_noted_is_read_back_and_the_same_persons_are_kept_once() -> None:
    table = Table()
    assert len(table.note(start("one"), train=[5, 3, 3, 0, -9], test=[4])) == 3
    assert len(table.note(start("two", "one"), train=[3, 5, -9], test=[3, 5, -9])) == 1
    assert table.note(start("two", "one", done=4), train=[-9, 5, 3], test=[5, 3, -9]) == ()
    counted = CountedRuns(table)
    assert [(run.run, run.follows, run.round) for run in counted.runs] == [("one", (), 0), ("two", ("one",), 0)]
    first, second = counted.runs
    assert [counted.splits(first, name) for name in (5, 4, 0, 7)] == [("train",), ("test",), (), ()]
    assert counted.splits(second, -9) == ("train", "test")
    assert counted.names(first.persons["train"]) == {-9, 3, 5}
    del table[next(place for place, raw in table.items() if raw == np.array([4], "<i8").tobytes())]
    with pytest.raises(StateError, match=r"the persons .* of a run are gone"):
        CountedRuns(table).splits(first, 4)


@pytest.mark.parametrize("damaged", [b"{", b"{}", b'[{"run": "one"}]', b'[["one"]]', b"[1]", b"[" * 99999])
def test_a_list_that_is_no_list_of_runs_is_a_fault(damaged: bytes) -> None:
    table = Table()
    table.note(start("one"), train=[1])
    (place,) = (key for key, raw in table.items() if raw.startswith(b"[{"))
    table[place] = damaged
    with pytest.raises(StateError, match="cannot be read"):
        CountedRuns(table)


def test_records_of_a_run_that_is_started_again_without_some_counted_until_then() -> None:
    table = Table()
    table.note(start("one"), train=[1, 2])
    table.note(start("one", done=7), train=[1])
    runs = CountedRuns(table).runs
    assert [round_of_ceasing(runs, place) for place in (0, 1)] == [7, None]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[CountedRun], set[str]]:
    """Draw starts, of which some begin with earlier runs, with one this site does not know, or with each other."""
    names = [f"run {number}" for number in range(draw(st.integers(1, 8)))]
    origins = st.lists(st.sampled_from([*names, "another site's"]), max_size=3, unique=True)
    runs = [start(name, *draw(origins)) for name in draw(st.permutations(names * 2))]
    return runs, set(draw(st.lists(st.sampled_from(names), max_size=3)))


def slowly_following(runs: list[CountedRun], of: set[str]) -> set[str]:
    """Return whoever a walk against the arrows leads from to one of `of`."""

    def leads(run: str, passed: frozenset[str]) -> bool:
        origins = {each for one in runs if one.run == run for each in one.follows} - passed
        return any(each in of or leads(each, passed | {each}) for each in origins)

    return {one.run for one in runs if one.run not in of and leads(one.run, frozenset({one.run}))}


@given(histories())
def test_runs_that_follow_are_those_from_which_a_walk_leads_back(drawn: tuple[list[CountedRun], set[str]]) -> None:
    runs, of = drawn
    found = following(runs, of)
    assert found.keys() == slowly_following(runs, of)
    for through in found.values():
        assert through
        assert all(each in of or each in found for each in through)


@given(
    st.lists(st.tuples(st.sets(st.integers(1, 12)), st.sets(st.integers(1, 12)), st.booleans()), max_size=6),
    st.sets(st.integers(1, 14)),
)
def test_the_least_difference_is_over_all_earlier_runs_without_noise(
    held: list[tuple[set[int], set[int], bool]], withdrawn: set[int]
) -> None:
    table = Table()
    for number, (train, test, noised) in enumerate(held):
        table.note(start(f"run {number}", noised=noised), train=[*train], test=[*test])
    differences = [len((train | test) & withdrawn) for train, test, noised in held if not noised]
    expected = min((each for each in differences if each), default=0)
    assert least_difference(CountedRuns(table), frozenset(withdrawn)) == expected


def counted(*held: range) -> CountedRuns:
    table = Table()
    for number, names in enumerate(held):
        table.note(start(f"run {number}"), train=[*names])
    return CountedRuns(table)


def broken(runs: CountedRuns, withdrawn: range, together: int | None = None, plan: Plan = PLAN) -> str:
    policy = SitePolicy() if together is None else SitePolicy(withdrawals=WithdrawalsSection(together=together))
    term = together_term(plan, policy, runs, frozenset(withdrawn))
    return "" if term is None else f"{term.key}: {term.asked}, {term.allowed}"


@pytest.mark.parametrize(
    ("gone", "together", "expected"),
    [
        (range(1, 1), None, ""),
        (range(1, 2), None, "withdrawals: 1 persons, 20 or more"),
        (range(1, 20), None, "withdrawals: 19 persons, 20 or more"),
        (range(1, 21), None, ""),
        (range(1, 2), 1, ""),
        (range(1, 3), 3, "withdrawals: 2 persons, 3 or more"),
        # Persons who never counted make no difference.
        (range(200, 201), None, ""),
    ],
)
def test_a_site_waits_until_enough_have_withdrawn(gone: range, together: int | None, expected: str) -> None:
    assert broken(counted(range(1, 101)), gone, together) == expected


def test_a_second_wave_is_compared_with_the_run_between_the_two() -> None:
    runs = counted(range(1, 101), range(21, 101))
    assert broken(runs, range(1, 21)) == ""
    assert broken(runs, range(1, 22)) == "withdrawals: 1 persons, 20 or more"
    assert broken(runs, range(1, 41)) == ""


def test_noise_of_the_plan_or_of_the_earlier_run_covers_the_difference() -> None:
    assert broken(counted(range(1, 101)), range(1, 2), plan=NOISED) == ""
    table = Table()
    table.note(start("one", noised=True), train=[*range(1, 101)])
    assert broken(CountedRuns(table), range(1, 2)) == ""
