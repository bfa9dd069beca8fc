"""Runs that name slices, against tables of pandas over the pooled people; and plans that may not."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.slice_search import SliceSearch
from fedfair.aggregation.slice_sums import LEVELS, SliceQuestion, slice_header, slice_layout
from fedfair.ids import RoundNumber
from fedfair.plan.description import summary
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import AskedTerms, terms
from fedfair.report.run_page import run_page
from fedfair.report.slice_section import slice_parts
from fedfair.results.slices import SliceFigures, ToldSlice, is_higher, slice_sentences, slice_words
from fedfair.results.warnings import reassurance
from fedfair.run.progress import FinalStage
from fedfair.run.rules import RunRules
from fedfair.simulation.simulate import SimulationOutcome, simulate
from fedfair.statistics.table import Purpose
from tests.plans import NAMES, parsed, stated

RECORDS = 1800
COLUMNS = {"numeric": ["age", "dose"], "categorical": {"sex": ["f", "m"], "ward": ["a", "b", "rare"]}}
MASKED = {"mode": "malicious"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People of whom one kind has the opposite outcome: old men, whom a linear model cannot serve."""
    folder, draws = tmp_path_factory.mktemp("table"), np.random.default_rng(5)
    age, sex = draws.integers(20, 90, RECORDS), draws.choice(["f", "m"], RECORDS)
    ward = draws.choice(["a", "b", "rare"], RECORDS, p=[0.6, 0.398, 0.002])
    dose = draws.exponential(1.0, RECORDS).round(2)
    chance = np.where((sex == "m") & (age >= 72), 0.9, np.where(dose > 1.0, 0.2, 0.05))
    ill = (draws.random(RECORDS) < chance).astype(int)
    people = pd.DataFrame({"age": age, "dose": dose, "sex": sex, "ward": ward, "ill": ill})
    people.loc[3, "dose"] = np.nan
    people.to_csv(folder / "table.csv", index=False)
    return folder


def sections(**evaluation: object) -> dict[str, Mapping[str, object]]:
    csv = {"train": "table.csv", "label": "ill", "label_values": [0, 1], "missing": "mean", **COLUMNS}
    return {
        "task": {
            "data": {"csv": csv},
            "partition": {"scheme": "random"},
            "standardize": "secure",
            "test_fraction": 0.4,
        },
        "objective": {"worst_group_size": 1.0},
        "training": {"rounds": 30, "batch_size": "full", "learning_rate": 0.5, "precision": "fp64"},
        "secure_aggregation": MASKED,
        "evaluation": {"slices": {}, **evaluation},
    }


def plan_of(**evaluation: object) -> Plan:
    return parsed(**sections(**evaluation))


@pytest.fixture(scope="module")
def found(table: Path) -> SimulationOutcome:
    return simulate(plan_of(), table, engine="vectorised")


def told(outcome: SimulationOutcome) -> SliceFigures:
    fields = outcome.result.slices
    assert fields is not None
    assert fields.given_up is None
    return fields


def pooled(outcome: SimulationOutcome, table: Path) -> pd.DataFrame:
    """Return the test records of all sites with their losses, as one table."""
    from fedfair.tables.source import load_federation

    people = []
    for name, own in load_federation(plan_of(), table).items():
        assert own.test is not None
        columns = dict(zip(own.test.schema.names, own.test.features.T, strict=True))
        losses = outcome.losses[name]["test"].measured
        people.append(pd.DataFrame({**columns, "loss": losses}))
    return pd.concat(people)


def members(people: pd.DataFrame, one: ToldSlice) -> pd.Series:
    """Return who is in a slice, by the words of the result alone."""
    chosen = pd.Series(data=True, index=people.index)
    for cell in one.cells:
        if (named := cell.values) is not None:  # noqa: PD011
            chosen &= sum(people[f"{cell.column}={value}"] for value in named) > 0
            continue
        # A number that is missing counts as the mean of all.
        values = people[cell.column].fillna(1.0)
        chosen &= (values >= (-np.inf if cell.at_least is None else cell.at_least)) & (
            values < (np.inf if cell.below is None else cell.below)
        )
    return chosen


def test_every_figure_is_that_of_pandas_over_the_pooled_people(found: SimulationOutcome, table: Path) -> None:
    fields, people = told(found), pooled(found, table).reset_index(drop=True)
    assert (fields.split, fields.n, fields.measure) == ("test", len(people), "loss")
    # A measure is rounded at random to a step of 8 log(2) / 64: the error of n of them is at most 5 deviations.
    step = 8 * np.log(2) / LEVELS
    assert fields.counted_up_to == pytest.approx(8 * np.log(2))
    assert fields.mean == pytest.approx(people.loss.mean(), abs=2.5 * step / np.sqrt(len(people)))
    assert len(fields.slices) == 10
    for one in fields.slices:
        chosen = people[members(people, one)]
        assert one.n == len(chosen) >= 5
        assert one.mean == pytest.approx(chosen.loss.mean(), abs=2.5 * step / np.sqrt(len(chosen)))
        assert one.interval[0] <= one.mean <= one.interval[1]
    lows = [one.interval[0] for one in fields.slices]
    assert lows == sorted(lows, reverse=True)


def test_the_people_whom_the_model_serves_worst_are_named(found: SimulationOutcome) -> None:
    fields = told(found)
    first = fields.slices[0]
    words = slice_words(first)
    assert words.startswith("age from 7")
    assert words.endswith("on, sex m")
    assert is_higher(first, fields)
    (sentence,) = slice_sentences(fields)
    assert sentence.startswith(
        f"Of {fields.looked_at} slices these are served worst: {words}: {first.n} people, loss "
    )
    assert sentence in reassurance(found.result)
    page = run_page({"result.json": found.result})
    assert "Who is served worst" in page
    assert words in page
    assert "Why a slice lies high is not known" in page


def test_a_slice_whose_interval_holds_the_mean_of_everybody_is_not_told_of_as_higher() -> None:
    """Such as one of few people, or where nobody is served worse."""
    about = {"column": "age", "below": 30.0}
    sure, unsure = (
        {"cells": ({**about},), "n": 9, "mean": 0.4, "interval": ends} for ends in ((0.21, 0.6), (0.2, 0.6))
    )
    rest = {"split": "train", "n": 90, "mean": 0.2, "counted_up_to": 5.0, "columns": ("age",), "untold": ("sex",)}
    for slices, words in (
        (
            (sure, unsure),
            "Of 8 slices these are served worst: age below 30: 9 people, loss 0.400 (0.210 to 0.600).",
        ),
        ((unsure,), "Of 8 slices none has a mean loss above that of everybody, 0.200, beyond doubt."),
    ):
        fields = SliceFigures(measure="loss", looked_at=8, slices=slices, **rest)
        (sentence,) = slice_sentences(fields)
        assert sentence.startswith(words)
        page = slice_parts(fields)
        assert "The model was trained on these very records" in page
        assert "Nothing could be asked of sex without telling of few people" in page
        assert ("Served worst:" in page) == (sure in slices)
        assert page.count("not sure") == 1


def test_a_rare_value_is_among_those_of_another_cell(found: SimulationOutcome) -> None:
    wards = {cell.values for one in told(found).slices for cell in one.cells if cell.column == "ward"}  # noqa: PD011
    assert wards <= {("a",), ("b", "rare", "other")}
    assert told(found).untold == ()


def test_both_engines_have_one_result_and_no_slices_change_no_model(found: SimulationOutcome, table: Path) -> None:
    loop = simulate(plan_of(), table, engine="loop")
    one, other = told(loop), told(found)
    assert [(each.cells, each.n) for each in one.slices] == [(each.cells, each.n) for each in other.slices]
    # Losses differ by rounding, which a draw may turn into a step of one record.
    assert [each.mean for each in one.slices] == pytest.approx([each.mean for each in other.slices], abs=1e-3)
    without = simulate(plan_of(slices=None), table, engine="vectorised")
    assert without.model.vector.tobytes() == found.model.vector.tobytes()
    assert without.result.slices is None
    assert without.result.train == found.result.train


def test_an_exact_evaluation_comes_before_slices(table: Path) -> None:
    outcome = simulate(plan_of(method="exact", slices={"pairs": False, "columns": ["age"]}), table)
    assert outcome.result.evaluation.method == "exact"
    assert {len(one.cells) for one in told(outcome).slices} == {1}
    assert told(outcome).columns == ("age",)


def test_people_of_whom_nothing_may_be_told_end_the_search_and_not_the_run(table: Path) -> None:
    outcome = simulate(plan_of(min_group=500), table)
    fields = outcome.result.slices
    assert fields is not None
    assert (fields.slices, fields.n) == ((), 0)
    (sentence,) = slice_sentences(fields)
    assert "no column has two cells" in sentence
    assert sentence in slice_parts(fields)


def test_the_excess_over_references_is_what_is_measured_where_training_follows_it(table: Path) -> None:
    stated_ = sections()
    stated_["objective"] = {"measure": "excess", "reference": {"rounds": 4, "local_steps": 4, "hidden": [4]}}
    stated_["training"] = {**stated_["training"], "rounds": 2}
    outcome = simulate(parsed(**stated_), table, engine="vectorised")
    fields = told(outcome)
    excess = np.concatenate([own["test"].excess for own in outcome.losses.values()])
    assert fields.measure == "excess"
    assert fields.mean == pytest.approx(np.minimum(excess, 2 * np.log(2)).mean(), abs=2e-3)


def test_slices_of_losses_that_were_replaced_are_given_up() -> None:
    plan = parsed(evaluation={"slices": {"bins": 2}}, secure_aggregation=MASKED)
    schema = FeatureSchema((2,), 2, (0, 1))
    layout = Layout((LayoutEntry("weight", (1,)),), np.dtype(np.float64))
    rules = RunRules(plan, layout, schema)
    state = replace(
        rules.initial(np.zeros(1)),
        stage=Purpose.SLICES,
        rounds_done=RoundNumber(1),
        slices=SliceSearch.of((40, 0, 0), 5),
    )
    request = rules.next_request(state)
    assert request is not None
    sliced = slice_layout(plan, schema)
    places = np.arange(40)[:, None].repeat(2, axis=1)
    header = slice_header(SliceQuestion.of(request.asked, sliced), places, None, sliced)
    honest, spoilt = (
        rules.step(state, Totals(header, np.zeros(0), 3, replaced), NAMES).state for replaced in (0, 2)
    )
    assert honest.stage is Purpose.SLICES
    assert spoilt.stage is FinalStage.FINISHED
    assert spoilt.slices is not None
    assert "2 losses could not be summed" in spoilt.slices.fault
    assert rules.sliced(spoilt) is None


# ------------------------------------------------------------------ plans


PRIVATE = {"sample_level": {"noise_multiplier": 1.0, "clip": 0.5}}
REFUSED: Mapping[str, tuple[dict[str, Mapping[str, object]], str]] = {
    "in the clear": ({"secure_aggregation": {"mode": "off"}}, "the aggregator would see each site's own cells"),
    "noise for records": (
        {"privacy": PRIVATE, "task": {"standardize": "none"}},
        r"slices are sums without noise, which privacy\.sample_level does not allow",
    ),
    "lone people": ({"evaluation": {"slices": {}, "min_group": 2}}, "no slice may be of fewer than 3 people"),
    "some sites": ({"federation": {"min_collaborators": 2}}, "slices of different sites can be subtracted"),
    "colluders": (
        {"secure_aggregation": {"mode": "malicious", "colluders": 2},
         "federation": {"collaborators": ["a", "b", "c", "d"], "min_collaborators": 3}},
        "slices of different sites can be subtracted",
    ),
    "two sites": (
        {"federation": {"collaborators": ["clinic-a", "clinic-b"]}},
        "is stated for 2 collaborators, and 3 are the fewest",
    ),
    "images": ({"task": {"data": {"mnist": {}}}}, "these data have no columns that the plan declares"),
    "a function": ({"task": {"data": "site:records"}}, "these data have no columns that the plan declares"),
    "columns of files": (
        {"task": {"data": {"csv": {"label": "y", "numeric": "all"}}}},
        "numeric: all leaves the columns to the files",
    ),
    "no such column": (
        {"task": {"data": {"csv": {"label": "y", "numeric": ["age"]}}},
         "evaluation": {"slices": {"columns": ["age", "sex"]}}},
        "column 'sex' is no feature",
    ),
    "too many cells": (
        {"task": {"data": {"csv": {"label": "y", "numeric": [f"c{place}" for place in range(60)]}}}},
        "sums 85681 numbers, and a masked sum has room for 60000 of them",
    ),
    "a column twice": (
        {"evaluation": {"slices": {"columns": ["age", "age"]}}}, "column 'age' is listed twice",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_a_plan_whose_slices_would_tell_of_few_or_have_no_columns_is_refused(why: str) -> None:
    changed, words = REFUSED[why]
    sections_ = {"evaluation": {"slices": {}}, "secure_aggregation": MASKED, **changed}
    with pytest.raises(ValidationError, match=words):
        parsed(**sections_)
    without = {**sections_, "evaluation": {**sections_["evaluation"], "slices": None}}
    assert parsed(**without).evaluation.slices is None


def test_a_plan_and_a_policy_say_what_leaves_and_a_site_has_to_allow_it() -> None:
    plan = parsed(evaluation={"slices": {}}, secure_aggregation=MASKED)
    assert (
        "how many in each cell of every two columns, also where that is one person"
        in dict(summary(plan))["leaves a site"]
    )
    broken = [term for term in terms(AskedTerms(plan, b"\0" * 32), SitePolicy()) if not term.kept]
    (term,) = (one for one in broken if one.key == "reveals")
    assert term.asked == "slice-sums"
    assert "evaluation.slices reveals slice-sums" in term.fault
    allowed = SitePolicy(reveals=(*SitePolicy().reveals, "slice-sums"))
    assert [
        one.key for one in terms(AskedTerms(plan, b"\0" * 32), allowed) if not one.kept and one.key == "reveals"
    ] == []


def test_a_plan_without_slices_is_the_plan_that_it_was() -> None:
    assert parsed() == Plan.model_validate({**stated(), "evaluation": {"slices": None}})
    assert len(NAMES) == 3
