"""How many bits has a number of a header when one record made it? Measured, for every field of every sum.

A field says so itself (`header.Field.lone`): at most so many bits, or everything, and then which term of a site's
policy, or which key of the plan, guards it. Single records of many kinds are put through what a site adds, and
the values that come out are counted.
"""

import functools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedfair.aggregation.audit_sums import (
    ATTACKS,
    SIDES,
    ScoredRecords,
    audit_header,
    audit_layout,
    calibrated_bins,
    loss_bins,
)
from fedfair.aggregation.column_statistics import ColumnCells, Mean, StatisticsLayout, statistics_counts
from fedfair.aggregation.evaluation_sums import evaluation_layout
from fedfair.aggregation.feature_moments import column_sums, moments_layout
from fedfair.aggregation.header import Bits, Everything, Header
from fedfair.aggregation.loss_histogram import HistogramSpec, bounded_losses
from fedfair.aggregation.loss_metrics import bounded_figures, figure_count
from fedfair.aggregation.quantile_query import QueryStep, exact_header, exact_layout
from fedfair.aggregation.radix_select import loss_keys
from fedfair.aggregation.reference import first_references, reference_header
from fedfair.aggregation.slice_outcomes import counted_answers
from fedfair.aggregation.slice_sums import SliceQuestion, levels_of, slice_header, slice_layout
from fedfair.aggregation.sum_kinds import planned_purposes, sum_kind
from fedfair.aggregation.survey import (
    NumericColumn,
    SurveyedCategory,
    SurveyedRecords,
    SurveyLayout,
    survey_counts,
)
from fedfair.aggregation.survey_grid import ColumnGrid
from fedfair.aggregation.training_sum import training_header
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.record_losses import Losses
from fedfair.fairness.smoothing import SmoothedPlus
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import (
    CROSS_ENTROPY,
    Loss,
    MultiLabelLoss,
    PinballLoss,
    SegmentationLoss,
    SquaredLoss,
    SurvivalLoss,
)
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SitePolicy
from fedfair.statistics.table import Purpose
from fedfair.terms.group_weights.section import fields_of
from fedfair.terms.group_weights.site import GroupSums
from fedfair.terms.loss_powers.section import CURVATURE
from fedfair.terms.variates.section import NEW_WEIGHT
from fedfair.training.device import SplitRecords
from fedfair.training.record_loss import CROSS_ENTROPY as CROSS_ENTROPY_OF_RECORDS
from fedfair.training.record_loss import record_loss
from fedfair.training.reference_answers import came_true, class_chances
from fedfair.training.reference_training import ReferenceSetting, reference_addend
from fedfair.training.statistics import evaluation_header, fill_row
from tests import plans

RECORDS = 500
"""More single records than a field of few bits may tell apart."""

SPEC = HistogramSpec(8, 2.0)
"""Few bins, so that 500 losses would have far more values than they may."""

OBJECTIVE = Objective(0.2, 0.1, SmoothedPlus("softplus", 0.05))
GROUPS, COLUMNS = 4, 3
Draws: TypeAlias = np.random.Generator
Headers: TypeAlias = Iterator[NDArray[np.float64]]


def classified(classes: int, columns: int, draws: Draws) -> Headers:
    """Yield evaluations of one record each, with a row of its site and its scores."""
    spec = HistogramSpec(SPEC.bins, SPEC.loss_range)
    layout = evaluation_layout(spec, classes, sites=1, columns=columns)
    for _ in range(RECORDS):
        loss, _ = bounded_losses(draws.gamma(0.8, 1.5, 1) * 10.0 ** draws.integers(0, 3), spec)
        scores = draws.dirichlet(np.ones(classes))[None, :] if columns > 1 else draws.uniform(size=(1, 1))
        answers = draws.integers(0, classes, (2, 1))
        found = {"train": Losses(loss, answers[0], answers[1], scores)}
        header = evaluation_header(found, OBJECTIVE, 0.3, CROSS_ENTROPY, spec, layout)
        fill_row(layout.read(header)["sites"][0], found, spec, 1)
        yield header


def with_figures(loss: Loss, schema: FeatureSchema, draws: Draws) -> Headers:
    """Yield evaluations of one record each, by a loss that has other figures than classes."""
    spec = HistogramSpec(SPEC.bins, SPEC.loss_range, has_classes=False)
    layout = evaluation_layout(spec, 0, figures=figure_count(loss, schema))
    judged = record_loss(loss, schema, spec.loss_range, None)  # type: ignore[arg-type]  # it loads nothing
    for _ in range(RECORDS):
        outputs = torch.from_numpy(draws.normal(0.0, 3.0, (1, *schema.output_shape)))
        answers = _answers(loss, schema, draws)
        values, _ = bounded_losses(judged.per_record(outputs, answers).numpy(), spec)
        figures, _ = bounded_figures(judged.figures_of(outputs, answers).numpy())
        nothing = np.zeros((1, 0))
        found = {"train": Losses(values, nothing, nothing, nothing, figures, has_classes=False)}
        yield evaluation_header(found, OBJECTIVE, 0.3, loss, spec, layout)


def _answers(loss: Loss, schema: FeatureSchema, draws: Draws) -> torch.Tensor:
    if isinstance(loss, SurvivalLoss):
        return torch.tensor([[draws.uniform(0.0, 3.0), float(draws.integers(0, 2))]], dtype=torch.float64)
    if schema.classes:
        return torch.from_numpy(draws.integers(0, schema.classes, (1, *schema.targets)))
    if isinstance(loss, MultiLabelLoss):
        return torch.from_numpy(draws.integers(0, 2, (1, *schema.targets)).astype(np.float64))
    return torch.from_numpy(draws.normal(4.0, 2.0, 1))


def standardised(draws: Draws) -> Headers:
    """Yield moments of one record each, of which some values are missing."""
    for _ in range(RECORDS):
        row = np.where(draws.uniform(size=(1, COLUMNS)) < 0.2, np.nan, draws.normal(size=(1, COLUMNS)))
        yield column_sums(iter(row.T), COLUMNS)


SURVEY = SurveyLayout(
    (NumericColumn("age", 0, ColumnGrid((0.0, 99.0)), 1.0), NumericColumn("dose", 1, ColumnGrid(), 1.0)),
    (SurveyedCategory("sex", ("f", "m", "other"), (2, 3, 4)),),
    classes=3,
)


STATISTICS = StatisticsLayout(
    (ColumnCells("age", ("below 0", "0 to 1", "1 or more", "missing"), edges=(0.0, 1.0)),),
    (Mean("age", 0, -3.0, 3.0),),
    None,
    None,
)


def counted_columns(draws: Draws) -> Headers:
    """Yield statistics of one record each."""
    for _ in range(RECORDS):
        yield statistics_counts(SurveyedRecords(draws.normal(size=(1, COLUMNS)), np.zeros(1)), STATISTICS)


def surveyed(draws: Draws) -> Headers:
    """Yield surveys of one record each."""
    for _ in range(RECORDS):
        numbers = np.where(draws.uniform(size=2) < 0.2, np.nan, draws.uniform(0.0, 99.0, 2))
        row = np.concatenate([numbers, np.eye(3)[draws.integers(0, 3)]])[None, :]
        missing = (int(draws.integers(0, 2)),)
        yield survey_counts(SurveyedRecords(row, draws.integers(0, 3, 1), missing), SURVEY)


TRAINING = training_header((NEW_WEIGHT, CURVATURE, *fields_of(GROUPS)))


def trained(draws: Draws) -> Headers:
    """Yield headers of training sums of one record each: its weight and its group; all else is everything."""
    for _ in range(RECORDS):
        told = GroupSums.of_losses(draws.integers(0, GROUPS, 1), draws.gamma(1.0, 1.0, 1), GROUPS)
        yield TRAINING.built(
            weight=1, new_weight=1, threshold=draws.normal(), curvature=draws.normal(), group_counts=told.counts,
            group_losses=told.losses,
        )  # fmt: skip


def queried(draws: Draws) -> Headers:
    """Yield the last step of exact evaluations of one record each, about its own key."""
    for _ in range(RECORDS):
        loss = draws.gamma(1.0, 1.0, 1)
        yield exact_header({"train": loss}, QueryStep(4, (int(loss_keys(loss)[0]), 0, 0)), 1)


JUDGED_PLAN = plans.parsed(objective={"measure": "excess", "reference": {"hidden": [2], "local_steps": 1}})
TWO_CLASSES = FeatureSchema((COLUMNS,), 2, tuple(range(COLUMNS)))


def judged_by_references(draws: Draws) -> Headers:
    """Yield sums of the references of one record each."""
    setting = ReferenceSetting.of(JUDGED_PLAN, TWO_CLASSES, CROSS_ENTROPY_OF_RECORDS)
    first = first_references(JUDGED_PLAN, TWO_CLASSES)
    like = torch.zeros(1, dtype=torch.float64)
    for number in range(RECORDS):
        references = replace(first, present=draws.normal(0.0, 3.0, first.present.shape))
        features, labels = draws.normal(size=(1, COLUMNS)), draws.integers(0, 2, 1)
        records = SplitRecords.place(features, labels, torch.float64, torch.device("cpu"))
        site = ParticipantId(f"site-{number % 2}")
        yield reference_addend(setting, site, records, references, (1, 1 + number % 2), like)


def with_excess(draws: Draws) -> Headers:
    """Yield evaluations of one record each, with its excess over a reference."""
    layout = evaluation_layout(SPEC, 2, excess=True)
    for _ in range(RECORDS):
        loss, excess = (bounded_losses(draws.gamma(0.8, 1.5, 1), SPEC)[0] for _ in range(2))
        answers = draws.integers(0, 2, (2, 1))
        said = class_chances(torch.from_numpy(draws.normal(0.0, 3.0, (1, 2))))
        answered = came_true(said, torch.from_numpy(answers[0]))
        found = {"train": Losses(loss, answers[0], answers[1], excess=excess, answered=answered)}
        yield evaluation_header(found, OBJECTIVE, 0.3, CROSS_ENTROPY, SPEC, layout)


SLICED_PLAN = plans.parsed(
    evaluation={"slices": {"outcomes": True}},
    objective={"measure": "excess", "reference": {"hidden": [2], "local_steps": 1}},
    secure_aggregation={"mode": "malicious"},
)
SLICES = slice_layout(SLICED_PLAN, TWO_CLASSES)


def sliced(draws: Draws) -> Headers:
    """Yield every step of slices of one record each, as if it might be asked for."""
    cuts, asked = ((0, 20, 40),) * COLUMNS, (True,) * len(SLICES.shapes)
    for number in range(RECORDS):
        places = draws.integers(0, 64, (1, COLUMNS))
        levels = levels_of(draws.gamma(0.8, 1.5, 1), 5.5, draws.random(1))
        step = 1 + number % 3
        question = SliceQuestion(step, 2, cuts if step > 1 else (), asked if step > 2 else ())
        loss, (labels, taken) = draws.gamma(0.8, 1.5, 1), draws.integers(0, 2, (2, 1))
        answered = came_true(
            class_chances(torch.from_numpy(draws.normal(0.0, 3.0, (1, 2)))), torch.from_numpy(labels)
        )
        answers = counted_answers(Losses(loss, labels, taken, answered=answered), SLICES, draws.random(1))
        yield slice_header(question, places, levels, SLICES, answers)


AUDITED_PLAN = plans.parsed(
    task={"test_fraction": 0.2},
    evaluation={"slices": {}, "release_audit": {"worst_slices": 2}},
    objective={"measure": "excess", "reference": {"hidden": [2], "local_steps": 1}},
    secure_aggregation={"mode": "malicious"},
)
AUDIT = audit_layout(AUDITED_PLAN, TWO_CLASSES)


def audited(draws: Draws) -> Headers:
    """Yield audits of one record each, on either side."""
    nobody = ScoredRecords(dict.fromkeys(ATTACKS, np.zeros(0, int)), np.zeros(0, int), np.zeros((0, 2), bool))
    for number in range(RECORDS):
        loss, unseen = (np.ldexp(draws.random(1), -int(draws.integers(0, 24))) * 6.0 for _ in range(2))
        bins = {"loss": loss_bins(loss, 5.5), "calibrated": calibrated_bins(loss * 4.0, unseen * 4.0, 5.5)}
        one = ScoredRecords(bins, draws.integers(0, 2, 1), draws.random((1, 2)) < 0.5)
        sides = dict(zip(SIDES, draws.permutation([0, 1]), strict=True))
        yield audit_header(AUDIT, {side: [(nobody, one)[at]] for side, at in sides.items()}, number % 2)


NUMBER = FeatureSchema((COLUMNS,), 0, outputs=(1,))
LABELS = FeatureSchema((COLUMNS,), 0, outputs=(2,), targets=(2,))
TIMES = FeatureSchema((COLUMNS,), 0, outputs=(2,), targets=(2,))
PIXELS = FeatureSchema((1, 8, 8), 2, outputs=(2, 8, 8), targets=(8, 8))

FIGURES: Mapping[str, tuple[Loss, FeatureSchema]] = {
    "squared": (SquaredLoss(name="squared"), NUMBER),
    "pinball": (PinballLoss(name="pinball", quantile=0.9), NUMBER),
    "several labels": (MultiLabelLoss(name="multi_label"), LABELS),
    "a time": (SurvivalLoss(name="survival", intervals=(1.0, 2.0)), TIMES),
    "pixels": (SegmentationLoss(name="segmentation"), PIXELS),
}

Case: TypeAlias = tuple[Purpose, Header, Callable[[Draws], Headers]]

CASES: Mapping[str, Case] = {
    "two classes": (
        Purpose.EVALUATION, evaluation_layout(SPEC, 2, 1, 1), functools.partial(classified, 2, 1)
    ),
    "ten classes": (
        Purpose.EVALUATION, evaluation_layout(SPEC, 10, 1, 10), functools.partial(classified, 10, 10)
    ),
    **{
        name: (
            Purpose.EVALUATION,
            evaluation_layout(HistogramSpec(8, 2.0, has_classes=False), 0, figures=figure_count(*about)),
            functools.partial(with_figures, *about),
        )
        for name, about in FIGURES.items()
    },
    "excess": (Purpose.EVALUATION, evaluation_layout(SPEC, 2, excess=True), with_excess),
    "references": (Purpose.REFERENCE, reference_header(JUDGED_PLAN, TWO_CLASSES), judged_by_references),
    "slices": (Purpose.SLICES, SLICES.header, sliced),
    "release audit": (Purpose.RELEASE_AUDIT, AUDIT.header, audited),
    "standardisation": (Purpose.STANDARDISATION, moments_layout(COLUMNS), standardised),
    "survey": (Purpose.SURVEY, SURVEY.header, surveyed),
    "statistics of columns": (Purpose.COLUMN_STATISTICS, STATISTICS.header, counted_columns),
    "training": (Purpose.TRAINING, TRAINING, trained),
    "exact": (Purpose.EXACT_EVALUATION, exact_layout(1), queried),
}  # fmt: skip


def values_of(layout: Header, headers: Headers) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many values each field has over headers: all its numbers together, and the number with most."""
    together: dict[str, set[bytes]] = defaultdict(set)
    single: dict[str, dict[int, set[float]]] = defaultdict(lambda: defaultdict(set))
    for header in headers:
        view = layout.read(header)
        for path, _ in layout.leaves():
            part = view
            for name in path:
                part = part[name]
            # The record is of the first split; of the columns of scores, each is looked at by itself.
            by_column = path[0] == "scores" and part.size
            numbers = np.ascontiguousarray(part[0, 0] if by_column else part, dtype=float)
            together[".".join(path)].add(numbers.tobytes())
            for place in np.flatnonzero(numbers):
                single[".".join(path)][int(place)].add(float(numbers.flat[place]))
    most = {name: 1 + max(map(len, places.values())) for name, places in single.items()}
    return {name: len(found) for name, found in together.items()}, most


@pytest.mark.parametrize("name", CASES)
def test_a_lone_record_shows_no_more_than_its_fields_say(name: str) -> None:
    _, layout, records = CASES[name]
    together, single = values_of(layout, records(np.random.default_rng(7)))
    for path, field in layout.leaves():
        place = ".".join(path)
        if isinstance(field.lone, Everything):
            continue
        found = single.get(place, 1) if field.lone.each else together[place]
        assert math.log2(found) <= field.lone.most + 1e-9, place


def test_losses_that_are_not_rounded_would_be_noticed() -> None:
    draws = np.random.default_rng(7)
    losses, _ = bounded_losses(draws.gamma(0.8, 1.5, RECORDS), SPEC)
    declared = next(field for path, field in evaluation_layout(SPEC, 2).leaves() if path[-1] == "losses")
    assert isinstance(declared.lone, Bits)
    assert math.log2(len(set(losses.tolist()))) > declared.lone.most + 1


def test_every_statistic_is_measured_and_every_guard_is_a_term_or_a_key() -> None:
    assert {purpose for purpose, _, _ in CASES.values()} == set(Purpose)
    plan = plans.parsed()
    for _, layout, _ in CASES.values():
        for path, field in layout.leaves():
            if isinstance(field.lone, Bits):
                continue
            named = re.findall(r"(policy|privacy)\.(\w+)", field.lone.guard)
            assert named, path
            for section, key in named:
                held = SitePolicy.model_fields if section == "policy" else type(plan.privacy).model_fields
                assert key in held, (path, key)


@pytest.mark.parametrize(
    ("about", "schema"),
    [
        ({}, FeatureSchema((COLUMNS,), 2, tuple(range(COLUMNS)))),
        ({"evaluation": {"site_means": True, "scores": True}}, FeatureSchema((COLUMNS,), 3, (0,))),
        ({"objective": {"measure": "excess"}}, FeatureSchema((COLUMNS,), 2, (0,))),
        ({"evaluation": {"slices": {"outcomes": True}}}, FeatureSchema((COLUMNS,), 2, (0,))),
        ({"evaluation": {"release_audit": {}}, "task": {"test_fraction": 0.2}}, TWO_CLASSES),
        ({"training": {"algorithm": "qffl"}}, FeatureSchema((COLUMNS,), 2, (0,))),
        ({"training": {"algorithm": "fedminmax"}}, FeatureSchema((COLUMNS,), 2, (0,))),
        ({"training": {"control_variates": True, "local_steps": 2}}, FeatureSchema((COLUMNS,), 2, (0,))),
    ],
)
def test_no_plan_has_an_unmeasured_field(about: dict[str, dict[str, object]], schema: FeatureSchema) -> None:
    plan: Plan = plans.parsed(**about)
    measured = {(purpose, path) for purpose, layout, _ in CASES.values() for path, _ in layout.leaves()}
    for purpose in planned_purposes(plan):
        fields = sum_kind(purpose).header(plan, schema).leaves()
        assert {(purpose, path) for path, _ in fields} <= measured
