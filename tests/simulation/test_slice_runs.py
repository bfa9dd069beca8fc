"""Runs that name slices, against tables of pandas over the pooled people; and plans that may not."""

import html
from collections.abc import Iterable, Mapping
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
from fedfair.report.board_summary import board_summary
from fedfair.report.calibration_lines import calibration_lines
from fedfair.report.model_card import model_card
from fedfair.report.per_hundred import per_hundred
from fedfair.report.run_page import run_page
from fedfair.report.slice_section import slice_parts
from fedfair.report.tables import by_group_size
from fedfair.results.document import to_text
from fedfair.results.reading import parse_result
from fedfair.results.slices import (
    SliceCellFields,
    SliceFigures,
    checked_sentence,
    is_higher,
    slice_sentences,
    slice_words,
)
from fedfair.results.warnings import reassurance
from fedfair.run.progress import FinalStage
from fedfair.run.rules import RunRules
from fedfair.run.saved_model import DescribedModel
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
        "evaluation": {"slices": {"outcomes": True}, **evaluation},
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
        found = outcome.losses[name]["test"]
        told = {"loss": found.measured, "ill": found.labels, "flagged": found.predictions}
        said = {"said": found.answered[:, 0]} if found.answered.size else {}
        people.append(pd.DataFrame({**columns, **told, **said}))
    return pd.concat(people)


def members(people: pd.DataFrame, cells: Iterable[SliceCellFields]) -> pd.Series:
    """Return who is in a slice, by the words of the result alone."""
    chosen = pd.Series(data=True, index=people.index)
    for cell in cells:
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
        chosen = people[members(people, one.cells)]
        assert one.n == len(chosen) >= 5
        assert one.mean == pytest.approx(chosen.loss.mean(), abs=2.5 * step / np.sqrt(len(chosen)))
        assert one.interval[0] <= one.mean <= one.interval[1]
    lows = [one.interval[0] for one in fields.slices]
    assert lows == sorted(lows, reverse=True)
    worst = people[members(people, fields.slices[0].cells)]
    assert fields.decisions is not None
    assert fields.decisions.confusion == tuple(
        tuple(int(((worst.ill == ill) & (worst.flagged == flagged)).sum()) for flagged in (0, 1)) for ill in (0, 1)
    )
    assert fields.references is None


def test_the_people_whom_the_model_serves_worst_are_named(found: SimulationOutcome) -> None:
    fields = told(found)
    first = fields.slices[0]
    words = slice_words(first.cells)
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


def spaced(page: str) -> str:
    """Return a page as people read it."""
    return html.unescape(page).replace("\xa0", " ")


def test_how_the_model_decides_about_them_stands_on_page_and_card_in_terminal_and_summaries(
    found: SimulationOutcome,
) -> None:
    fields = told(found)
    assert fields.decisions is not None
    (spared, alarmed), (missed, right) = fields.decisions.confusion
    people = per_hundred(fields.decisions.confusion)
    assert people is not None
    first = (
        f"Of 100 people like those served worst ({slice_words(fields.slices[0].cells)}; {fields.slices[0].n} test "
        f"records), {people.found + people.missed} are of class 1; at a score of one half the model finds "
        f"{people.found} and misses {people.missed} "
    )
    _, _, line, alarms, *_ = calibration_lines(found.result)
    assert line.startswith(first)
    low, high = fields.decisions.sensitivity
    assert line.endswith(f"(sensitivity {right / (right + missed):.0%}, {low:.0%} to {high:.0%}).")
    assert f"(specificity {spared / (spared + alarmed):.0%}, " in alarms
    assert alarms.endswith(f"these ranges hold with 95 % for all {fields.looked_at} slices together.")
    described = DescribedModel(found.layout, found.saved, found.origin)
    card = model_card(described, found.result).replace("\\", "")
    for place in (run_page({"result.json": found.result}), card, by_group_size(found.result).caption):
        assert line in spaced(str(place))
        assert alarms in spaced(str(place))
    for language, words in (
        ("en", f"sex m ({fields.slices[0].n} of those it was judged on)."),
        ("de", f"sex m ({fields.slices[0].n} der Geprüften)."),
        ("fr", f"sex m ({fields.slices[0].n} de celles de l'évaluation)."),
    ):
        *_, after = spaced(board_summary(found.result, "result.json", language)).partition(words)
        numbers = [people.found + people.missed, people.found, people.missed, people.alarmed]
        assert all(f" {number}" in after.partition("</p>")[0] for number in numbers)
        assert f" {100 * low:.0f} % " in after
    without = found.result.model_copy(update={"slices": fields.model_copy(update={"decisions": None})})
    assert line not in calibration_lines(without)
    assert "sex m (" not in board_summary(without, "result.json")


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
    assert one.decisions == other.decisions
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
    stated_["objective"] = {"measure": None, "reference": {"rounds": 4, "local_steps": 4, "hidden": [4]}}
    stated_["training"] = {**stated_["training"], "rounds": 2}
    outcome = simulate(parsed(**stated_), table, engine="vectorised")
    fields = told(outcome)
    excess = np.concatenate([own["test"].excess for own in outcome.losses.values()])
    assert fields.measure == "excess"
    assert fields.mean == pytest.approx(np.minimum(excess, 2 * np.log(2)).mean(), abs=2e-3)
    check, people = fields.references, pooled(outcome, table).reset_index(drop=True)
    assert check is not None
    assert check.cells is not None
    assert check.interval is not None
    chosen = people[members(people, check.cells)]
    assert (check.n, check.found) == (len(chosen), chosen.ill.mean())
    assert check.said == pytest.approx(chosen.said.mean(), abs=2.5 / LEVELS / np.sqrt(len(chosen)))
    assert check.interval[0] < chosen.ill.mean() - chosen.said.mean() < check.interval[1]
    assert check.within >= max(map(abs, check.interval)) - 1e-12
    (sentence,) = checked_sentence(fields)
    described = DescribedModel(outcome.layout, outcome.saved, outcome.origin)
    for place in (
        run_page({"result.json": outcome.result}),
        model_card(described, outcome.result).replace("\\", ""),
        "".join(reassurance(outcome.result)),
    ):
        assert sentence in spaced(place)
    assert parse_result(to_text(outcome.result).encode(), "result.json") == outcome.result


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
    "outcomes of a number": (
        {"task": {"loss": {"name": "squared", "target_range": [0, 9]},
                  "data": {"csv": {"target": "y", "numeric": ["age"]}}},
         "evaluation": {"slices": {"outcomes": True}}},
        "squared has no classes of which one could be the outcome",
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
    assert "how many have the outcome" not in dict(summary(plan))["leaves a site"]
    allowed = SitePolicy(reveals=(*SitePolicy().reveals, "slice-sums"))
    assert [
        one.key for one in terms(AskedTerms(plan, b"\0" * 32), allowed) if not one.kept and one.key == "reveals"
    ] == []


def test_outcomes_have_a_word_of_their_own_that_a_site_has_not_given_with_slices() -> None:
    plan = parsed(evaluation={"slices": {"outcomes": True}}, secure_aggregation=MASKED)
    leaves = dict(summary(plan))["leaves a site"]
    assert "how many have the outcome, how many the model flags (two classes) and how many are both" in leaves
    assert "references gave" not in leaves
    sums_alone = SitePolicy(reveals=(*SitePolicy().reveals, "slice-sums"))
    (term,) = (
        one for one in terms(AskedTerms(plan, b"\0" * 32), sums_alone) if one.key == "reveals" and not one.kept
    )
    assert term.asked == "slice-outcomes"
    assert "evaluation.slices.outcomes: true reveals slice-outcomes" in term.fault
    excess = parsed(
        evaluation={"slices": {"outcomes": True}}, secure_aggregation=MASKED,
        objective={"measure": "excess", "reference": {"rounds": 2}},
    )  # fmt: skip
    assert "the chances that references gave, in coarse steps" in dict(summary(excess))["leaves a site"]


def test_a_plan_without_slices_is_the_plan_that_it_was() -> None:
    assert parsed() == Plan.model_validate({**stated(), "evaluation": {"slices": None}})
    assert len(NAMES) == 3
