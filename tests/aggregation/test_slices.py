"""Slices as sums: who shares a cell, which tables may be asked for, and totals that no people have."""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.slice_columns import FinePlaces, SliceColumn, slice_columns
from fedfair.aggregation.slice_findings import FoundSlice, slice_findings
from fedfair.aggregation.slice_safety import asked_tables, is_full, least_cut
from fedfair.aggregation.slice_search import SliceSearch
from fedfair.aggregation.slice_sums import (
    LEVELS,
    STEPS,
    SliceLayout,
    SliceQuestion,
    levels_of,
    slice_header,
)
from fedfair.errors import LocalProtocolError, PlanError, RemoteProtocolError
from fedfair.plan.schema import Plan
from fedfair.tables.source_modules import declared_schema
from tests import plans

FEWEST = 5
MEMBERS = ("a", "b", "c")


def number(name: str = "age", most: int = 3, fine: int = 10) -> SliceColumn:
    return SliceColumn(name, (0,), (), (0.0, 10.0), None, fine, most)


def category(*values: str) -> SliceColumn:
    return SliceColumn("ward", tuple(range(len(values))), values, None, None, len(values), len(values))


def layout_of(*columns: SliceColumn, with_pairs: bool = True) -> SliceLayout:
    return SliceLayout(columns, with_pairs)


def searched(
    layout: SliceLayout,
    places: np.ndarray,
    levels: np.ndarray,
    fewest: int = FEWEST,
    answers: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Iterator[tuple[SliceSearch, np.ndarray]]:
    """Yield each search of people in one place, with the total that it is given."""
    search = SliceSearch.of((0, 0, len(places)), fewest)
    while search.question is not None:
        header = slice_header(search.question, places, levels, layout, answers)
        yield search, header
        search = search.apply_aggregate(header, MEMBERS, layout, fewest)
    yield search, np.zeros(0)


def people(count: int, columns: int, seed: int = 5, fine: int = 10) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, fine, (count, columns))


# ------------------------------------------------------------------ what may be asked for


def bipartitions(table: np.ndarray) -> Iterator[float]:
    """Yield over how many people each combination of two columns is that is 0 or 1 on every side; never 0."""
    rows, columns = table.shape
    for sides in itertools.product((0, 1), repeat=rows + columns):
        across = np.array(sides[:rows])[:, None] != np.array(sides[rows:])[None, :]
        if table[across].sum():
            yield float(table[across].sum())


@pytest.mark.parametrize("seed", range(12))
def test_no_combination_of_two_columns_is_over_fewer_people_than_the_least_cut(seed: int) -> None:
    source = np.random.default_rng(seed)
    table = source.integers(0, 9, (source.integers(2, 5), source.integers(2, 5))) * (source.random((1, 1)) < 2)
    table = table * (source.random(table.shape) < 0.6)
    table = table[table.any(axis=1)][:, table.any(axis=0)].astype(float)
    assert least_cut(table) == min(bipartitions(table), default=math.inf)
    # Any real combination: what is not 0 are at least so many people.
    left, right = (source.integers(-2, 3, length) for length in table.shape)
    found = table[(left[:, None] - right[None, :]) != 0].sum()
    assert found == 0 or found >= least_cut(table)


NESTED = np.array([[8.0, 1.0], [0.0, 9.0]])
"""All but one of the people of the second cell of one column are in the second of the other."""


def test_two_columns_whose_difference_shows_one_person_are_not_both_asked_for() -> None:
    columns = [NESTED.sum(axis=1), NESTED.sum(axis=0)]
    assert all(is_full(cells, FEWEST) for cells in columns)
    kept, joined = asked_tables(columns, {(0, 1): NESTED}, FEWEST, with_pairs=True)
    assert (kept, joined) == ([0], [])
    # With the sums of both the one person's value would be what the second cells differ by.
    value = np.array([[3.0, 40.0], [0.0, 5.0]])
    assert (value.sum(axis=0)[1] - value.sum(axis=1)[1]) == value[0, 1]


def test_a_pair_with_a_small_or_an_empty_cell_is_not_asked_for_though_its_columns_are() -> None:
    for table in (np.array([[60.0, 40.0], [40.0, 4.0]]), np.array([[60.0, 40.0], [40.0, 0.0]])):
        assert least_cut(table) >= FEWEST
        columns = [table.sum(axis=1), table.sum(axis=0)]
        assert asked_tables(columns, {(0, 1): table}, FEWEST, with_pairs=True) == ([0, 1], [])
    full = np.array([[60.0, 40.0], [40.0, 5.0]])
    columns = [full.sum(axis=1), full.sum(axis=0)]
    assert asked_tables(columns, {(0, 1): full}, FEWEST, with_pairs=True) == ([0, 1], [(0, 1)])
    assert asked_tables(columns, {(0, 1): full}, FEWEST, with_pairs=False) == ([0, 1], [])


def test_a_cell_of_a_column_with_too_few_people_is_not_asked_for() -> None:
    table = np.array([[50.0, 50.0], [2.0, 2.0]])
    kept, _ = asked_tables([table.sum(axis=1), table.sum(axis=0)], {(0, 1): table}, FEWEST, with_pairs=True)
    assert kept == [1]


def test_tables_of_two_are_those_of_columns_that_all_have_full_tables_with_each_other() -> None:
    full, holed = np.full((2, 2), 50.0), np.array([[100.0, 0.0], [50.0, 50.0]])
    pairs = {(0, 1): full, (0, 2): full, (1, 2): holed}
    columns = [np.full(2, 100.0)] * 3
    # The second lies within a cell of the third, as everybody sees: 0 and 1 less 0 and 2 would be a few people.
    assert asked_tables(columns, pairs, FEWEST, with_pairs=True) == ([0, 1, 2], [(0, 1)])


def test_a_column_that_is_not_asked_for_is_in_no_table_of_two_either() -> None:
    full, holed = np.full((2, 2), 50.0), np.array([[100.0, 0.0], [50.0, 50.0]])
    columns = [np.full(2, 100.0)] * 3
    # The table of 0 and 2 would show the sums of 2, whose difference from those of 1 is one person's value.
    pairs = {(0, 1): holed, (0, 2): full, (1, 2): NESTED}
    assert asked_tables(columns, pairs, FEWEST, with_pairs=True) == ([0, 1], [])


def test_there_are_never_more_sums_than_a_fraction_of_the_people() -> None:
    columns = [np.full(4, 10.0)] * 3
    pairs = dict.fromkeys(itertools.combinations(range(3), 2), np.full((4, 4), 2.5))
    kept, joined = asked_tables(columns, pairs, 5, with_pairs=True)
    assert (kept, joined) == ([0, 1], [])
    few, joined = asked_tables(columns, pairs, 2, with_pairs=True)
    assert (few, joined) == ([0, 1, 2], [])
    wide = [np.full(4, 100.0)] * 3
    more = dict.fromkeys(pairs, np.full((4, 4), 25.0))
    assert asked_tables(wide, more, 5, with_pairs=True)[1] == [(0, 1), (0, 2), (1, 2)]


# ------------------------------------------------------------------ whoever is asked for is enough people


@pytest.mark.parametrize("seed", range(8))
def test_no_value_of_fewer_people_is_asked_for_in_any_table(seed: int) -> None:
    """People at random, with a rare value and a column that nearly follows from another."""
    source = np.random.default_rng(seed)
    places = people(int(source.integers(30, 400)), 4, seed)
    places[:, 1] = np.where(source.random(len(places)) < 0.02, places[:, 1], places[:, 0])
    places[:, 3] = np.minimum(places[:, 3], 3) * (source.random(len(places)) < 0.1)
    layout = layout_of(number("a"), number("b"), number("c", 4), category("x", "y", "z", "other"))
    (*_, (third, header), (last, _)) = searched(layout, places, np.zeros(len(places), np.int64))
    assert third.number == STEPS
    assert last.is_over
    counts = layout.tables_of(layout.header.read(header)["counts"])
    for at, wanted in enumerate(third.asked):
        held = counts[at][counts[at] > 0]
        assert wanted == bool(held.size)
        assert (held >= FEWEST).all()
    # By brute force over the people: no two asked columns have a combination over fewer.
    for left, right in itertools.combinations(range(4), 2):
        if third.asked[left] and third.asked[right]:
            cells = [layout.columns[at].cells_of(places[:, at], third.cuts[at]) for at in (left, right)]
            joint = np.zeros([layout.columns[at].cells(third.cuts[at]) for at in (left, right)])
            np.add.at(joint, tuple(cells), 1)
            assert min(bipartitions(joint), default=math.inf) >= FEWEST


def test_cells_of_a_number_have_about_as_many_people_each_and_end_where_bins_do() -> None:
    places = np.repeat(np.arange(10), [40, 1, 1, 1, 20, 20, 20, 1, 1, 15])[:, None]
    layout = layout_of(number(most=4))
    (_, (second, _), *_) = searched(layout, places, np.zeros(len(places), np.int64))
    assert second.cuts == ((0, 1, 5, 7),)
    tied = np.repeat([0, 1, 2], [40, 40, FEWEST - 1])[:, None]
    (_, (second, _), *_) = searched(layout_of(number(most=3)), tied, np.zeros(len(tied), np.int64))
    assert second.cuts == ((0, 1),)
    lone = np.repeat(np.arange(10), [40, 0, 0, 0, 0, 0, 0, 0, 0, 3])[:, None]
    with pytest.raises(RemoteProtocolError, match="no column has two cells"):
        list(searched(layout, lone, np.zeros(len(lone), np.int64)))


def test_rare_values_of_a_category_share_a_cell_and_too_few_of_them_the_smallest_other() -> None:
    column = category("x", "y", "z", "w", "other")
    for counts, cut in (
        ([30, 20, 3, 3, 0], (0, 1, 2, 2, 2)),
        ([30, 20, 3, 1, 0], (0, 1, 1, 1, 1)),
        ([30, 20, 0, 0, 0], (0, 1, 1, 1, 1)),
        ([30, 20, 9, 9, 9], (0, 1, 2, 3, 4)),
    ):
        places = np.repeat(np.arange(5), counts)[:, None]
        (_, (second, _), *_) = searched(layout_of(column), places, np.zeros(len(places), np.int64))
        assert second.cuts == (cut,)


# ------------------------------------------------------------------ totals that no people have


def at_step(number_of_step: int) -> tuple[SliceLayout, SliceSearch, np.ndarray]:
    """Return a search at a step, and an honest total."""
    layout = layout_of(number("a"), number("b", 2))
    places = people(200, 2)
    levels = np.random.default_rng(1).integers(0, LEVELS, 200)
    found = [each for each in searched(layout, places, levels) if each[0].number == number_of_step]
    return layout, *found[0]


def spoilt(header: np.ndarray, layout: SliceLayout, name: str, place: int, by: float) -> np.ndarray:
    changed = header.copy()
    field = layout.header.read(changed)[name]
    if field.shape:
        field[place] += by
    else:
        layout.header.read(changed)[name] = field + by
    return changed


@pytest.mark.parametrize("name", ["records", "counts", "sums", "squares"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_total_that_the_people_of_the_step_before_do_not_have_ends_the_search(step: int, name: str) -> None:
    layout, search, header = at_step(step)
    search.apply_aggregate(header, MEMBERS, layout, FEWEST)
    by = -1e6 if name == "squares" and step == 3 else 1e5
    with pytest.raises(RemoteProtocolError):
        search.apply_aggregate(spoilt(header, layout, name, 0, by), MEMBERS, layout, FEWEST)


def test_values_of_other_people_in_another_table_end_the_search() -> None:
    layout, search, header = at_step(3)
    with pytest.raises(RemoteProtocolError, match="step 3 of slices"):
        search.apply_aggregate(spoilt(header, layout, "sums", 0, 1.0), MEMBERS, layout, FEWEST)


@pytest.mark.parametrize("by", [0.5, 1e3])
def test_counts_that_are_none_are_refused_though_they_add_up(by: float) -> None:
    layout, search, header = at_step(1)
    moved = spoilt(spoilt(header, layout, "counts", 0, by), layout, "counts", 1, -by)
    with pytest.raises(RemoteProtocolError, match="step 1 of slices"):
        search.apply_aggregate(moved, MEMBERS, layout, FEWEST)


@pytest.mark.parametrize(
    ("total", "square"), [(300, 65 * 300), (300, 299), (300, 2999), (7, 6), (65 * 30, 65 * 65 * 30)]
)
def test_sums_that_no_levels_of_thirty_people_have_are_refused(total: int, square: int) -> None:
    layout = layout_of(number("a", 2))
    places = np.repeat([0, 9], 30)[:, None]
    *_, (search, header), _ = searched(layout, places, np.full(60, 1))
    found = layout.header.read(header)
    found["sums"][0], found["squares"][0] = 300, 3000
    search.apply_aggregate(header, MEMBERS, layout, FEWEST)
    found["sums"][0], found["squares"][0] = total, square
    with pytest.raises(RemoteProtocolError, match="step 3 of slices"):
        search.apply_aggregate(header, MEMBERS, layout, FEWEST)


@pytest.mark.parametrize("by", [0.5, -1e4])
def test_a_count_that_is_none_ends_the_search(by: float) -> None:
    layout, search, header = at_step(2)
    with pytest.raises(RemoteProtocolError, match="numbers that the people"):
        search.apply_aggregate(spoilt(header, layout, "counts", 0, by), MEMBERS, layout, FEWEST)


def test_values_of_a_table_that_is_not_asked_for_are_refused() -> None:
    layout, search, header = at_step(3)
    unasked = replace(search, asked=(True, False, False))
    with pytest.raises(RemoteProtocolError, match="numbers that the people"):
        unasked.apply_aggregate(header, MEMBERS, layout, FEWEST)


@pytest.mark.parametrize("step", [2, 3])
def test_every_step_has_the_members_of_the_first(step: int) -> None:
    layout, search, header = at_step(step)
    with pytest.raises(
        RemoteProtocolError, match=f"step {step} of slices was answered by a, b, step 1 by a, b, c"
    ):
        search.apply_aggregate(header, ("a", "b"), layout, FEWEST)


def test_too_few_people_and_a_finished_search_are_refused() -> None:
    layout = layout_of(number())
    few = people(FEWEST - 1, 1)
    with pytest.raises(RemoteProtocolError, match="slices of 4 records were asked for"):
        list(searched(layout, few, np.zeros(len(few), np.int64)))
    layout, search, header = at_step(3)
    done = search.apply_aggregate(header, MEMBERS, layout, FEWEST)
    with pytest.raises(LocalProtocolError, match="finished search"):
        done.apply_aggregate(header, MEMBERS, layout, FEWEST)
    assert slice_findings(search, layout, 1.0, None, FEWEST) is None
    assert slice_findings(search.given_up("no quorum"), layout, 1.0, None, FEWEST) is None


def test_the_split_is_the_held_out_one_where_it_has_enough_people() -> None:
    splits = {(90, 0, 0): 0, (90, 20, 4): 1, (90, 20, 5): 2, (90, 4, 0): 0}
    assert {held: SliceSearch.of(held, FEWEST).split for held in splits} == splits


# ------------------------------------------------------------------ what is asked


def test_a_question_is_what_its_step_says_and_nothing_else_is_one() -> None:
    for step in (1, 2, 3):
        layout, search, _ = at_step(step)
        assert search.question is not None
        asked = search.question.step
        assert SliceQuestion.of(asked, layout) == search.question
        for changed in (
            replace(asked, number=asked.number % 3 + 1),
            replace(asked, prefixes=(*asked.prefixes, 1)),
            replace(asked, prefixes=(7, *asked.prefixes[1:])),
            replace(asked, prefixes=()),
        ):
            with pytest.raises(RemoteProtocolError, match="cells that this plan does not have"):
                SliceQuestion.of(changed, layout)


@pytest.mark.parametrize("cut", [(), (1, 2), (0, 0), (0, 5, 3), (0, 10), (0, 1, 2, 3)])
def test_cells_that_a_column_cannot_have_are_refused(cut: tuple[int, ...]) -> None:
    assert number().may_be((0, 4, 7))
    assert not number().may_be(cut)
    assert category("x", "y").may_be((0, 1))
    assert not category("x", "y").may_be((0, 2))


# ------------------------------------------------------------------ measures


def test_a_value_of_one_person_tells_six_bits() -> None:
    lone = layout_of(number()).header
    told = {path[-1]: field.lone for path, field in lone.leaves()}
    assert [told[name].most for name in ("sums", "squares")] == pytest.approx([6.02, 6.02], abs=0.01)


def test_a_measure_is_rounded_without_bias_and_never_by_more_than_a_step() -> None:
    source = np.random.default_rng(2)
    values = np.repeat([0.0, 0.013, 0.5, 0.99, 1.0, 7.0], 20_000)
    levels = levels_of(values, 1.0, source.random(len(values)))
    assert levels.min() == 0
    assert levels.max() == LEVELS
    assert (np.abs(levels / LEVELS - np.minimum(values, 1.0)) < 1 / LEVELS).all()
    # Five deviations of a mean of 20,000 whose error is at most half a step.
    means = levels.reshape(6, -1).mean(axis=1) / LEVELS
    np.testing.assert_allclose(means, np.minimum(values[::20_000], 1.0), atol=5 * 0.5 / LEVELS / math.sqrt(20_000))


# ------------------------------------------------------------------ columns of a plan


def sliced(csv: dict[str, object], **slices: object) -> Plan:
    data = {"csv": {"label": "y", "label_values": [0, 1], **csv}}
    evaluation = {"slices": slices}
    masked = {"mode": "malicious"}
    return plans.parsed(task={"data": data, "standardize": "secure"}, evaluation=evaluation,
                        secure_aggregation=masked)  # fmt: skip


def columns_of(plan: Plan) -> tuple[SliceColumn, ...]:
    schema = declared_schema(plan)
    assert schema is not None
    return slice_columns(plan, schema)


def test_numbers_have_bins_over_their_range_or_about_their_mean_and_categories_their_values() -> None:
    plan = sliced(
        {"numeric": ["age", "dose"], "ranges": {"age": [0, 128]}, "categorical": {"sex": ["f", "m"]}}, bins=3
    )
    age, dose, sex = columns_of(plan)
    scaling = FeatureScaling(np.array([60.0, 2.0]), np.array([9.0, 0.5]))
    np.testing.assert_allclose(age.grid(scaling).edges[:2], [2.0, 4.0])
    np.testing.assert_allclose(dose.grid(scaling).edges[:2], [0.0625, 0.125])
    assert (age.most, dose.most, sex.most) == (3, 3, 3)
    assert sex.values == ("f", "m", "other")
    rows = np.array([[5.0, 2.0, 0, 1, 0], [500.0, -9.0, 1, 0, 0], [0.0, np.nan, 0, 0, 1]])
    places = FinePlaces(plan, (age, dose, sex)).of(lambda place: rows[:, place], 3, scaling)
    # The mean is the border of two bins, and in the upper one.
    assert places.tolist() == [[2, 32, 1], [63, 0, 0], [0, 32, 2]]


def test_numbers_that_were_scaled_by_ranges_have_the_same_places() -> None:
    csv = {"numeric": ["age"], "ranges": {"age": [0, 128]}}
    raw, scaled = np.array([0.0, 5.0, 64.0, 127.0]), np.array([-1.0, -0.921875, 0.0, 0.984375])
    plan = sliced(csv)
    by_ranges = plan.with_(task={"standardize": "ranges"})
    columns = columns_of(plan)
    one = FinePlaces(plan, columns).of(lambda _: raw, 4, FeatureScaling(np.zeros(1), np.ones(1)))
    other = FinePlaces(by_ranges, columns_of(by_ranges)).of(lambda _: scaled, 4, None)
    assert one.tolist() == other.tolist() == [[0], [2], [32], [63]]


def test_columns_are_those_that_are_named_and_a_name_of_none_is_refused() -> None:
    csv = {"numeric": ["age", "dose"], "categorical": {"sex": ["f", "m"]}}
    assert [column.name for column in columns_of(sliced(csv, columns=["sex", "age"]))] == ["age", "sex"]
    built_in = plans.parsed(evaluation={"slices": {"columns": ["age"]}}, secure_aggregation={"mode": "malicious"})
    with pytest.raises(PlanError, match="column 'age' is no feature"):
        columns_of(built_in)


# ------------------------------------------------------------------ a population whose worst slice is known


POPULATION = (number("a", 3, 64), category("x", "y", "z", "other"), number("c", 4, 64))


def true_means(places: np.ndarray) -> np.ndarray:
    """Return the expected measures of people: .05, and .25 in one corner of two columns, a ninth of all."""
    return np.where((places[:, 0] >= 43) & (places[:, 1] == 2), 0.25, 0.05)


def members(one: FoundSlice, places: np.ndarray) -> np.ndarray:
    """Return who is in a slice by its words, where the bins of a number are those of 0 to 10."""
    chosen = np.ones(len(places), bool)
    for cell in one.cells:
        at = next(at for at, column in enumerate(POPULATION) if column.name == cell.column)
        if POPULATION[at].values:
            wanted = [POPULATION[at].values.index(value) for value in cell.values]
            chosen &= np.isin(places[:, at], wanted)
            continue
        numbers = places[:, at] * 10 / 64
        chosen &= numbers >= (-np.inf if cell.lowest is None else cell.lowest)
        chosen &= numbers < (np.inf if cell.below is None else cell.below)
    return chosen


def test_the_worst_slice_is_named_and_all_named_intervals_hold_their_true_means() -> None:
    """The whole search 60 times over 1200 people."""
    layout, runs, missed = layout_of(*POPULATION), 60, 0
    for seed in range(runs):
        draws = np.random.default_rng(seed)
        places = np.stack([draws.integers(0, length, 1200) for length in (64, 3, 64)], axis=1)
        truth = true_means(places)
        # Measures above 1.4 count as that; next to nobody has one.
        levels = levels_of(draws.exponential(truth), 1.4, draws.random(1200))
        *_, (last, _) = searched(layout, places, levels)
        found = slice_findings(last, layout, 1.4, None, FEWEST)
        assert found is not None
        assert (found.looked_at, found.untold) == (10 + 9 + 12 + 12, ())
        assert [cell.column for cell in found.slices[0].cells] == ["a", "ward"]
        assert truth[members(found.slices[0], places)].mean() > 0.2
        held = []
        for one in found.slices:
            chosen = members(one, places)
            assert one.count == chosen.sum()
            held.append(one.interval[0] <= truth[chosen].mean() <= one.interval[1])
        missed += not all(held)
    assert missed <= 0.1 * runs
