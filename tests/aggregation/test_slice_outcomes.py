"""Outcomes, decisions and what references said, by slices: loops over people, a known error, and wrong sums."""

import numpy as np
import pytest
from scipy import stats

from fedfair.aggregation.slice_findings import SliceFindings, slice_findings
from fedfair.aggregation.slice_outcomes import counted_answers, may_be_told
from fedfair.aggregation.slice_search import SliceSearch
from fedfair.aggregation.slice_sums import LEVELS, STEPS, SliceLayout, slice_layout
from fedfair.errors import LocalProtocolError, PlanError, RemoteProtocolError
from fedfair.fairness.record_losses import Losses
from fedfair.plan.feature_schema import FeatureSchema
from tests import plans
from tests.aggregation.test_slices import FEWEST, MEMBERS, POPULATION, category, number, searched

LAYOUT = SliceLayout(POPULATION, with_pairs=True, decides=True, checks=True)
ERROR = 0.2
"""By how much q is too low in one corner of two columns, a ninth of all people."""


def drawn(seed: int, count: int = 4000, error: float = 0.0) -> tuple[np.ndarray, Losses]:
    """Return where people are, and their losses under a model that flags those of a chance above one half."""
    draws = np.random.default_rng(seed)
    places = np.stack([draws.integers(0, length, count) for length in (64, 3, 64)], axis=1)
    said = draws.choice([0.1, 0.3, 0.7], count, p=[0.5, 0.3, 0.2])
    chance = said + error * corner(places)
    labels = (draws.random(count) < chance).astype(np.int64)
    losses = np.abs(labels - said)
    answered = np.stack([said, labels], axis=1)
    return places, Losses(losses, labels, (said > 0.5).astype(np.int64), answered=answered)


def corner(places: np.ndarray) -> np.ndarray:
    return (places[:, 0] >= 43) & (places[:, 1] == 2)


def last(places: np.ndarray, losses: Losses, layout: SliceLayout = LAYOUT) -> tuple[SliceSearch, np.ndarray]:
    """Return the search at its last step, and the total that it is given."""
    draws = np.random.default_rng(3).random(len(places))
    answers = counted_answers(losses, layout, draws)
    levels = np.rint(losses.values * LEVELS).astype(np.int64)
    return [*searched(layout, places, levels, answers=answers)][-2]


def findings(places: np.ndarray, losses: Losses, layout: SliceLayout = LAYOUT) -> SliceFindings:
    search, header = last(places, losses, layout)
    found = slice_findings(search.apply_aggregate(header, MEMBERS, layout, FEWEST), layout, 1.0, None, FEWEST)
    assert found is not None
    return found


# ------------------------------------------------------------------ what is summed


def test_every_cell_counts_its_own_people_as_a_loop_over_them_does() -> None:
    places, losses = drawn(1, 400)
    search, header = last(places, losses)
    found = LAYOUT.header.read(header)
    names = ("outcomes", "flagged", "found")
    told = {name: LAYOUT.tables_of(found[name]) for name in names}
    steps = LAYOUT.tables_of(found["chances"])
    assert any(search.asked[3:])
    for at, wanted in enumerate(search.asked):
        columns = (at,) if at < 3 else LAYOUT.pairs[at - 3]
        slow = {name: np.zeros(LAYOUT.shapes[at]) for name in names}
        said = np.zeros(LAYOUT.shapes[at])
        for person in range(len(places) if wanted else 0):
            cell = tuple(
                int(LAYOUT.columns[one].cells_of(places[[person], one], search.cuts[one])[0]) for one in columns
            )
            ill, alarm = losses.labels[person] == 1, losses.predictions[person] == 1
            for name, counts in zip(names, (ill, alarm, ill and alarm), strict=True):
                slow[name][cell] += counts
            said[cell] += losses.answered[person, 0]
        for name in names:
            np.testing.assert_array_equal(told[name][at], slow[name])
        # Each chance is rounded at random by less than a step; five deviations of as many as there are in a cell.
        assert (np.abs(steps[at] / LEVELS - said) <= 2.5 * np.sqrt(400) / LEVELS).all()


def test_nothing_is_summed_of_what_a_plan_does_not_ask_for_and_the_header_keeps_its_length() -> None:
    masked = {"mode": "malicious"}
    schema, three = FeatureSchema((3,), 2, (0,)), FeatureSchema((3,), 3, (0,))
    excess = {"measure": "excess", "reference": {"rounds": 2}}
    lengths = {}
    for outcomes in (False, True):
        for objective in ({}, excess):
            plan = plans.parsed(
                evaluation={"slices": {"outcomes": outcomes}}, objective=objective, secure_aggregation=masked
            )
            layout = slice_layout(plan, schema)
            assert (layout.decides, layout.checks) == (outcomes, outcomes and bool(objective))
            lengths[outcomes, bool(objective)] = layout.header.length
    cells, fine = sum(int(np.prod(shape)) for shape in layout.shapes), sum(one.fine for one in layout.columns)
    assert lengths[False, False] == lengths[False, True] == 1 + max(fine, cells) + 2 * cells
    assert [lengths[True, measured] - lengths[False, False] for measured in (False, True)] == [
        3 * cells,
        4 * cells,
    ]
    assert (slice_layout(plan, three).decides, slice_layout(plan, three).checks) == (False, True)
    loss_alone = plans.parsed(evaluation={"slices": {"outcomes": True}}, secure_aggregation=masked)
    with pytest.raises(PlanError, match=r"outcomes is true, and of 3 classes no one is the outcome"):
        slice_layout(loss_alone, three)


def test_references_that_have_not_judged_are_not_checked() -> None:
    _, losses = drawn(1, 40)
    without = Losses(losses.values, losses.labels, losses.predictions)
    with pytest.raises(LocalProtocolError, match="they have not judged"):
        counted_answers(without, LAYOUT, np.zeros(40))


def test_of_more_classes_it_counts_of_whom_the_likeliest_class_came_true() -> None:
    layout = SliceLayout(POPULATION, with_pairs=True, checks=True)
    losses = Losses(np.zeros(2), np.array([2, 1]), np.array([1, 1]), answered=np.array([[1.0, 1.0], [0.0, 0.0]]))
    told = counted_answers(losses, layout, np.zeros(2))
    assert {name: values.tolist() for name, values in told.items()} == {"chances": [LEVELS, 0], "outcomes": [1, 0]}


# ------------------------------------------------------------------ totals that no people have


@pytest.mark.parametrize(
    ("name", "by", "words"),
    [
        (
            "found",
            1e4,
            "10[0-9]+ flagged people who have the outcome of [0-9]+ people who have the outcome in cell 0",
        ),
        ("flagged", 1e4, "flagged people of [0-9]+ people in cell 0"),
        ("outcomes", 1e4, "people who have the outcome of [0-9]+ people in cell 0"),
        ("chances", 1e6, "steps of the chances of references of [0-9]+ people in cell 0"),
        ("found", 1, "flagged people who have the outcome that differ between two tables"),
        ("chances", 1, "steps of the chances of references that differ between two tables"),
        ("outcomes", 0.5, "numbers that the people of the step before do not have"),
    ],
)
def test_counts_that_no_people_have_end_the_search_and_say_what_there_is_too_much_of(
    name: str, by: float, words: str
) -> None:
    search, header = last(*drawn(2, 600))
    search.apply_aggregate(header, MEMBERS, LAYOUT, FEWEST)
    LAYOUT.header.read(header)[name][0] += by
    with pytest.raises(RemoteProtocolError, match=f"step 3 of slices was answered with .*{words}"):
        search.apply_aggregate(header, MEMBERS, LAYOUT, FEWEST)


@pytest.fixture
def one_column() -> tuple[SliceLayout, SliceSearch, np.ndarray]:
    """60 people in two cells of one column, so that no other table tells of a lie."""
    layout = SliceLayout((number("a", 2),), with_pairs=True, decides=True)
    places = np.repeat([0, 9], 30)[:, None]
    labels, flags = np.tile([0, 1, 1], 20), np.tile([0, 0, 1], 20)
    return layout, *last(places, Losses(np.full(60, 0.5), labels, flags), layout)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((20, 10, 11), "11 flagged people who have the outcome of 10 flagged people in cell 0"),
        ((9, 10, 10), "10 flagged people who have the outcome of 9 people who have the outcome in cell 0"),
        ((20, 15, 4), "more people who have the outcome or are flagged than there are in a cell"),
    ],
)
def test_more_who_are_both_than_are_one_of_them_is_refused(
    one_column: tuple[SliceLayout, SliceSearch, np.ndarray], counts: tuple[int, int, int], words: str
) -> None:
    layout, search, header = one_column
    found = layout.header.read(header)
    assert [float(found[name][0]) for name in ("outcomes", "flagged", "found")] == [20, 10, 10]
    search.apply_aggregate(header, MEMBERS, layout, FEWEST)
    for name, count in zip(("outcomes", "flagged", "found"), counts, strict=True):
        found[name][0] = count
    with pytest.raises(RemoteProtocolError, match=words):
        search.apply_aggregate(header, MEMBERS, layout, FEWEST)


@pytest.mark.parametrize("name", ["outcomes", "flagged", "found", "chances"])
@pytest.mark.parametrize("step", [1, 2])
def test_outcomes_before_they_are_asked_for_are_refused(step: int, name: str) -> None:
    places, _ = drawn(1, 200)
    search, header = [*searched(LAYOUT, places, np.zeros(200, np.int64))][step - 1]
    assert search.number == step < STEPS
    LAYOUT.header.read(header)[name][0] = 1
    with pytest.raises(RemoteProtocolError, match=f"step {step} of slices"):
        search.apply_aggregate(header, MEMBERS, LAYOUT, FEWEST)


def test_a_table_that_is_not_asked_for_tells_no_outcome() -> None:
    """A rare value of a category has no table, and neither has its pair."""
    layout = SliceLayout((number("a", 2), category("x", "y")), with_pairs=True, decides=True)
    draws = np.random.default_rng(4)
    places = np.stack([draws.integers(0, 10, 200), np.arange(200) >= 197], axis=1)
    labels, flags = draws.integers(0, 2, (2, 200))
    search, header = last(places, Losses(np.full(200, 0.5), labels, flags), layout)
    assert search.asked == (True, False, False)
    found = layout.header.read(header)
    for name in ("outcomes", "flagged", "found"):
        assert [bool(table.any()) for table in layout.tables_of(found[name])] == [True, False, False]


# ------------------------------------------------------------------ what is told


def test_the_slice_that_is_served_worst_has_its_confusion_matrix_and_intervals() -> None:
    places, losses = drawn(5, error=0.25)
    found = findings(places, losses)
    (first, *_) = found.slices
    assert [cell.column for cell in first.cells] == ["a", "ward"]
    held = corner(places) if first.count == corner(places).sum() else None
    assert found.decided is not None
    (spared, alarmed), (missed, right) = found.decided.confusion
    assert spared + alarmed + missed + right == first.count
    tail = 0.05 / (2 * 3 * found.looked_at)
    for part, of, ends in (
        (right, right + missed, found.decided.sensitivity),
        (spared, spared + alarmed, found.decided.specificity),
        (right, right + alarmed, found.decided.precision),
    ):
        assert ends == pytest.approx(
            (stats.beta.ppf(tail, part, of - part + 1), stats.beta.isf(tail, part + 1, of - part)), rel=1e-8
        )
    # The cells of a number end where its people are cut in thirds, near 43.
    near = corner(places)
    assert missed == pytest.approx((losses.labels[near] > losses.predictions[near]).sum(), rel=0.1)
    assert held is None or missed == (losses.labels[near] > losses.predictions[near]).sum()


def test_no_decisions_are_told_where_no_slice_is_surely_worse() -> None:
    found = findings(*drawn(6, 600))
    assert found.slices[0].interval[0] <= found.mean
    assert found.decided is None
    assert found.checked is not None


@pytest.mark.parametrize(
    ("held", "is_told"),
    [
        ((60, 55, 30, 25), True),
        ((60, 56, 30, 26), False),
        ((60, 20, 15, 10), True),
        ((60, 5, 5, 0), True),
        ((60, 20, 0, 0), True),
        ((60, 20, 60, 20), True),
        ((60, 4, 15, 3), False),
        ((60, 0, 15, 0), False),
        ((60, 20, 4, 0), False),
        ((60, 20, 56, 18), False),
        # Of everybody else four are left.
        ((60, 36, 15, 10), False),
        ((60, 20, 27, 10), False),
    ],
)
def test_what_tells_of_few_people_in_a_slice_or_outside_it_is_not_told(
    held: tuple[int, int, int, int], is_told: bool
) -> None:
    everybody = (200, 40 if held[1] < 50 else 90, 31 if held[2] < 30 else 90, 25)
    assert may_be_told(held, everybody, FEWEST) is is_told


# ------------------------------------------------------------------ whether references are right


def test_a_known_error_of_the_references_in_one_corner_is_found_and_no_other_one() -> None:
    """Whole searches over 4000 people: q is right, or 20 points too low for a ninth of them."""
    alarms, misses = 0, 0
    for seed in range(10):
        right = findings(*drawn(seed)).checked
        assert right is not None
        assert right.furthest is not None
        alarms += right.furthest.is_off
        wrong = findings(*drawn(seed, error=ERROR)).checked
        assert wrong is not None
        assert wrong.furthest is not None
        assert [cell.column for cell in wrong.cells] == ["a", "ward"]
        # Nobody has another value, which shares the smallest cell.
        assert set(wrong.cells[1].values) - {"other"} == {"z"}
        assert wrong.furthest.is_off
        assert wrong.furthest.said == pytest.approx(0.28, abs=0.04)
        assert wrong.within >= ERROR - 0.03
        # The cell of the number begins within a bin of the corner's: a tenth of its people may be others.
        misses += not wrong.furthest.interval[0] <= ERROR <= wrong.furthest.interval[1]
    assert alarms <= 1
    assert misses <= 1


def test_errors_that_cancel_within_every_slice_are_not_found() -> None:
    """What the check does not bound: q is off by 20 points either way, whatever the columns say."""
    places, losses = drawn(8)
    off = np.where(np.random.default_rng(9).random(4000) < 0.5, 0.2, -0.2)
    said = np.clip(losses.answered[:, 0] + off, 0.0, 1.0)
    drift = (said - losses.answered[:, 0]).mean()
    answered = np.stack([said - drift, losses.answered[:, 1]], axis=1)
    found = findings(places, Losses(losses.values, losses.labels, losses.predictions, answered=answered))
    assert found.checked is not None
    assert found.checked.furthest is not None
    assert not found.checked.furthest.is_off
