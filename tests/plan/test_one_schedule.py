"""The run, the site's rules, the terms, the disclosures and the privacy forecast all follow one schedule."""

import hashlib
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedfair.aggregation.audit_sums import BINS, AuditQuestion, ScoredRecords, audit_header, audit_layout
from fedfair.aggregation.distributed_dp import most_sums
from fedfair.aggregation.header import Header
from fedfair.aggregation.loss_histogram import loss_block
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.quantile_query import QueryStep, exact_header
from fedfair.aggregation.requests import SumRequest, histogram_spec
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.score_histogram import score_group, score_sums
from fedfair.aggregation.slice_sums import SliceQuestion, slice_header, slice_layout
from fedfair.plan.derived import (
    PrivacyLevel,
    is_noised,
    privacy_level,
    published_sites,
    reported_group_sizes,
    score_columns,
)
from fedfair.plan.description import summary
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schedule import DueSum, Schedule, schedule_of
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.decision import SiteRules
from fedfair.policy.disclosures import SUMS_ONLY, of_run
from fedfair.policy.plan_check import check_policy
from fedfair.policy.refusal import Refusal
from fedfair.policy.request_limits import Admitted
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import AskedTerms, terms
from fedfair.privacy.planned_releases import planned_releases, training_release
from fedfair.run.training_run import TrainingRun
from fedfair.statistics.table import Purpose
from fedfair.tables.source_modules import declared_schema
from tests.oracles.header_places import matrix_length

DIMENSION = 3
LAYOUT = Layout((LayoutEntry("weight", (DIMENSION,)),), np.dtype(np.float64))
LOSSES = np.array([0.1, 0.4, 0.9, 1.7])
SITES = ("a", "b", "c")
PLACES = np.arange(400)
RECORDS = 40

CSV = {"label": "y", "label_values": [0, 1]}
RANGED = {"ranges": {"age": [0, 120]}}
CATEGORIES = {"categorical": {"sex": ["f", "m"]}}
SOURCES: Mapping[str, dict[str, object]] = {
    "built in": {"data": "breast-cancer"}, "mnist": {"data": {"mnist": {}}},
    "images": {"data": {"images": {"label": "smile", "height": 8, "width": 8}}},
    "persons": {"data": {"acs_employment": {}}}, "stays": {"data": {"eicu": {}}},
    "columns": {"data": {"csv": CSV | RANGED | {"numeric": ["age"]}}},
    "categories": {"data": {"csv": CSV | CATEGORIES}},
    "all columns": {"data": {"csv": CSV | CATEGORIES | {"numeric": "all"}}, "input_shape": [5]},
    "all columns, and none left": {"data": {"csv": CSV | CATEGORIES | {"numeric": "all"}}, "input_shape": [3]},
    "vectors of a function": {"data": "site:records", "input_shape": [4], "classes": 2},
    "pictures of a function": {"data": "site:records", "input_shape": [1, 8, 8], "classes": 2},
}  # fmt: skip
NONE, RECORD, WHOLE, _ = PrivacyLevel


def plan_of(
    source: str,
    *,
    standardize: str = "secure",
    algorithm: str = "fedsrcvar",
    rounds: int = 3,
    output: str = "last",
    every: int = 2,
    method: str = "histogram",
    level: PrivacyLevel = NONE,
    mode: str = "malicious",
    minimum: int | None = None,
    site_means: bool = False,
    scores: bool = False,
    slices: bool = False,
    audit: bool = False,
    begins: str = "bound",
) -> Plan:
    noise = {"noise_multiplier": 6.0, "clip": 0.5}
    return Plan.model_validate(
        {
            "federation": {"name": "test", "collaborators": SITES, "min_collaborators": minimum},
            "task": {"model": {"name": "linear"}, "standardize": standardize, "test_fraction": 0.25 * audit}
            | SOURCES[source],
            "objective": {"measure": "loss", "worst_group_size": 0.5, "tradeoff": 0.5},
            "training": {
                "algorithm": algorithm, "rounds": rounds, "output": output, "precision": "fp64", "batch_size": 8,
                "weights": "uniform" if level is WHOLE else "samples", "threshold_init": begins,
            },
            "secure_aggregation": {"mode": mode},
            "privacy": {} if level is NONE else {level.value: noise},
            "evaluation": {
                "every": every, "group_sizes": [0.5], "method": method, "bins": 8, "site_means": site_means,
                "scores": scores, "slices": {"bins": 2} if slices else None,
                "release_audit": {} if audit else None,
            },
        }
    )  # fmt: skip


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Return any plan that the schema takes; one in which a promise would be false is drawn again."""
    level = draw(st.sampled_from((NONE, RECORD, WHOLE)))
    private = level is not NONE
    try:
        return plan_of(
            draw(st.sampled_from(sorted(SOURCES))),
            standardize=draw(st.sampled_from(["secure", "secure", "ranges", "none"])),
            algorithm=draw(st.sampled_from(["fedsrcvar", "fedavg"])), rounds=draw(st.integers(1, 6)),
            output=draw(st.sampled_from(["last", "average", "tail", *([] if level is WHOLE else ["best"])])),
            every=draw(st.integers(1, 7)),
            method="histogram" if private else draw(st.sampled_from(["histogram", "exact"])), level=level,
            mode="malicious" if level is WHOLE else draw(st.sampled_from(["malicious", "semi-honest", "off"])),
            minimum=draw(st.none() | st.integers(2, 3)), site_means=not private and draw(st.booleans()),
            scores=not private and draw(st.booleans()), slices=not private and draw(st.booleans()),
            audit=not private and draw(st.booleans()),
            begins=draw(st.sampled_from(["bound", "bound" if level is WHOLE else "quantile"])),
        )  # fmt: skip
    except ValueError:
        assume(False)
        raise


def schema_of(plan: Plan) -> FeatureSchema:
    schema = declared_schema(plan)
    assert schema is not None
    return schema


def answer(request: SumRequest, plan: Plan, schema: FeatureSchema, scale: float) -> Totals:
    """Return some plausible total of the requested sum, other than the last one."""
    losses = LOSSES * scale
    match request.purpose:
        case Purpose.TRAINING:
            return Totals(np.array([4.0, -0.4 * scale]), np.array([scale, 2.0 * scale, 1.0]), len(SITES))
        case Purpose.STANDARDISATION:
            columns = len(schema.numeric)
            sums = np.repeat([RECORDS, 0.0, RECORDS * 0.5], columns)
            return Totals(np.array([RECORDS, *sums]), np.zeros(0), len(SITES))
        case Purpose.EXACT_EVALUATION:
            assert request.query is not None
            header = exact_header({"train": losses}, request.query, len(reported_group_sizes(plan)))
            return Totals(header, np.zeros(0), len(SITES))
        case Purpose.SLICES:
            layout = slice_layout(plan, schema)
            places = np.stack([PLACES % column.fine for column in layout.columns], axis=1)
            levels = np.full(len(PLACES), 3)
            header = slice_header(SliceQuestion.of(request.asked, layout), places, levels, layout)
            return Totals(header, np.zeros(0), len(SITES))
        case Purpose.RELEASE_AUDIT:
            about = audit_layout(plan, schema)
            own = AuditQuestion.of(request.asked, about)
            bins = {attack: np.arange(len(PLACES)) % BINS for attack in about.attacks}
            inside = np.ones((len(PLACES), len(own.slices)), bool)
            records = [ScoredRecords(bins, PLACES % 2, inside)]
            header = audit_header(about, {"train": records, "held_out": records}, 0)
            return Totals(header, np.zeros(0), len(SITES))
        case Purpose.EVALUATION:
            spec = histogram_spec(plan, schema)
            block = loss_block(losses, np.zeros(len(losses), bool), float(losses.sum()), spec)
            matrix = np.zeros(matrix_length(schema.classes))
            if len(matrix):
                matrix[schema.classes] = len(losses)  # Every record is in class 1 and taken for class 0.
            rows = np.zeros(9 * len(published_sites(plan)))
            empty = [np.zeros_like(block), np.zeros_like(block), matrix, 0.0 * matrix, 0.0 * matrix]
            scores = score_header(len(losses), score_columns(plan, schema.classes))
            return Totals(np.concatenate([block, *empty, rows, scores]), np.zeros(0), len(SITES))


def score_header(records: int, columns: int) -> np.ndarray:
    """Return the histograms of scores of training records of class 1 that all get the score 0."""
    layout = Header(score_group(columns))
    header = layout.zeros()
    if columns:
        block = layout.read(header)["scores"][0]
        for name, values in score_sums(np.zeros((records, columns)), np.ones(records, np.int64), columns).items():
            block[name] = values
    return header


def asked_for(plan: Plan) -> list[DueSum]:
    """Run a plan to its end; return every sum that it asked for, in order."""
    schema, asked = schema_of(plan), []
    training_run = TrainingRun(plan, LAYOUT, schema, np.zeros(DIMENSION))
    while (request := training_run.next_sum()) is not None:
        step = 0 if request.query is None else request.query.number
        asked.append(DueSum(request.purpose, int(request.round), step))
        # An exact evaluation is about the records of the histogram before it.
        scale = 1.0 if request.purpose.statistic.is_evaluation else 1.0 + 0.01 * len(asked)
        training_run.apply_aggregate(answer(request, plan, schema, scale))
    return asked


def question(due: DueSum, model: int) -> AggregationRequest:
    prefixes = () if due.purpose in (Purpose.SLICES, Purpose.RELEASE_AUDIT) else (0,) * 3 * (due.step > 1)
    query = QueryStep(due.step, prefixes) if due.step else None
    about = hashlib.sha256(bytes([model])).digest()
    return AggregationRequest("run", False, due.purpose, due.round, query, about, about, (1, 2, 3))


class Site:
    """One site's rules under a plan, with a policy that allows everything that the plan says of itself."""

    def __init__(self, plan: Plan, purposes: tuple[str, ...]) -> None:
        self.policy = SitePolicy.model_validate(
            {
                "purposes": purposes, "allow_plain_sums": True, "mode": "semi-honest", "max_clip": 1024.0,
                "min_collaborators": 1, "allow_module_code": True, "publish_site_means": True,
                "reveals": SUMS_ONLY, "max_runs": 1,
            }
        )  # fmt: skip
        check_policy(AskedTerms(plan, b"\0" * 32), self.policy, "a")
        self._table: dict[bytes, bytes] = {}
        self._rules = SiteRules(plan, schema_of(plan), self.policy, "a", 10_000)

    def ask(self, due: DueSum, model: int) -> Refusal | None:
        said = self._rules.decide(question(due, model), self._table)
        if not isinstance(said, Admitted):
            return said
        self._table.update(said.rows)
        return None


def check_run(plan: Plan, schedule: Schedule) -> None:
    assert asked_for(plan) == list(schedule.sums())


def check_site(plan: Plan, schedule: Schedule) -> None:
    """A site that allows the schedule's purposes and no other admits every sum of the schedule.

    That it is asked for no other sum is `check_run`'s: a site asks its own state what is due, by the same rules.
    """
    site = Site(plan, tuple(dict.fromkeys(purpose.statistic.policy_word for purpose in schedule.purposes)))
    model = 0
    for due in schedule.sums():
        # Each evaluation is about a model of its own, and so is the whole of an exact one.
        model += due.step <= 1
        assert site.ask(due, model) is None, due


def check_words(plan: Plan, schedule: Schedule) -> None:
    """Terms and disclosures name the kinds of the schedule's sums, each once, and no other."""
    held = list(terms(AskedTerms(plan, b"\0" * 32), SitePolicy()))
    words = [term.asked for term in held if term.key == "purposes"]
    assert Counter(words) == Counter({purpose.statistic.policy_word: 1 for purpose in schedule.purposes})
    kinds = {kind for purpose in schedule.purposes for kind in purpose.statistic.discloses(plan)}
    assert set(of_run(plan)) == kinds
    assert {term.asked for term in held if term.key == "reveals"} == kinds
    said = dict(summary(plan))
    standardises = Purpose.STANDARDISATION in schedule.purposes
    assert ("each numeric column" in said["leaves a site"]) == standardises
    assert ("standardised" in said["learns"]) == standardises
    assert said["evaluates"].startswith("nothing") == (Purpose.EVALUATION not in schedule.purposes)


def check_forecast(plan: Plan, schedule: Schedule) -> None:
    """The forecast prices as many releases as the schedule has sums about models."""
    made = Counter(due.purpose for due in schedule.sums() if due.step <= 1)
    match privacy_level(plan):
        case PrivacyLevel.RECORDS:
            priced = {release.purpose: release.steps for release in planned_releases(plan, RECORDS)}
            priced["training"] //= training_release(plan, RECORDS).steps
            assert priced == {purpose.value: count for purpose, count in made.items()}
        case PrivacyLevel.COLLABORATORS:
            assert most_sums(plan) == made[Purpose.TRAINING] * plan.federation.max_attempts
            assert set(made) == {Purpose.TRAINING}
        case PrivacyLevel.NONE:
            assert not is_noised(plan)


def check_everything(plan: Plan) -> None:
    schedule = schedule_of(plan)
    check_run(plan, schedule)
    check_site(plan, schedule)
    check_words(plan, schedule)
    check_forecast(plan, schedule)


@given(plans())
@settings(max_examples=50, deadline=None)
def test_a_run_its_sites_its_words_and_its_price_follow_one_schedule(plan: Plan) -> None:
    check_everything(plan)


@pytest.mark.parametrize("level", [NONE, RECORD, WHOLE])
@pytest.mark.parametrize(
    "source", ["mnist", "images", "categories", "all columns, and none left", "pictures of a function"]
)
def test_data_without_numeric_columns_are_standardised_by_no_sum(source: str, level: PrivacyLevel) -> None:
    plan = plan_of(source, level=level)
    assert Purpose.STANDARDISATION not in schedule_of(plan).purposes
    check_everything(plan)


@pytest.mark.parametrize(
    "source", ["built in", "persons", "stays", "columns", "all columns", "vectors of a function"]
)
def test_data_with_numeric_columns_are_standardised_by_one_sum(source: str) -> None:
    plan = plan_of(source)
    assert schedule_of(plan).total(Purpose.STANDARDISATION) == 1
    check_everything(plan)


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_the_plan_and_its_schema_agree_on_numeric_columns(source: str) -> None:
    plan = plan_of(source)
    assert plan.task.has_numeric_columns == bool(schema_of(plan).numeric)


def test_only_the_data_tell_a_simulation_what_to_standardise() -> None:
    check_policy(AskedTerms(plan_of("mnist")), SitePolicy(purposes=("training", "evaluation")), "a")
    plan = plan_of("vectors of a function")
    unstated = plan.model_copy(update={"task": plan.task.model_copy(update={"input_shape": None})})
    assert Purpose.STANDARDISATION in schedule_of(unstated).purposes
    assert Purpose.STANDARDISATION in schedule_of(unstated, 4).purposes
    assert Purpose.STANDARDISATION not in schedule_of(unstated, 0).purposes


@pytest.mark.parametrize(("output", "rounds", "every"), [("average", 1, 1), ("tail", 2, 1), ("tail", 2, 3)])
def test_a_mean_of_one_model_is_evaluated_once(output: str, rounds: int, every: int) -> None:
    check_everything(plan_of("built in", output=output, rounds=rounds, every=every))
    # An evaluation that teaches the threshold was about the model with another one.
    check_everything(plan_of("built in", output=output, rounds=rounds, every=every, begins="quantile"))
