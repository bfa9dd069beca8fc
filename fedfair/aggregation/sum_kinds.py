"""The table of sums over sites: one row for each statistic, from which all that depends on its purpose follows.

A row says what a contribution looks like, what it discloses, which word of a policy allows it, and what sets it
apart from the others. Lengths and masks follow from the header; `plan.schedule` tells when a sum is due. A new
statistic is a row here, the module of its header, its place in the schedule, and a number on the wire. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedfair.aggregation.evaluation_sums import planned_layout
from fedfair.aggregation.feature_moments import moments_layout, noise_deviation, possible_sums
from fedfair.aggregation.header import Header
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.quantile_query import exact_layout
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.spec import SumSpec
from fedfair.aggregation.survey import survey_header
from fedfair.aggregation.target_scaling import scaled_columns
from fedfair.aggregation.training_sum import round_sum, training_layout
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import (
    evaluates_exactly,
    greatest_weight,
    is_unevaluated,
    reported_group_sizes,
    surveys,
    threshold_limit,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.fields import Disclosure
from fedfair.plan.known_groups import group_count
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import ReleasePurpose
from fedfair.statistics.table import Purpose

MAX_INTEGER = 2.0**54
"""The greatest integer part of a real number in a masked header, where a statistic has no bound of its own."""


@dataclass(frozen=True, slots=True)
class SumKind:
    """One statistic.

    Attributes:
        purpose: its name on the wire and in records.
        header: the fields of a contribution under a plan.
        planned: whether a plan has such sums, in a run or on demand.
        policy_word: the word in a site's `policy.purposes` that allows it.
        discloses: what its sums make known.
        asked_by: which key of a plan asks for it, and with which value.
        asked_more_by: the same for what only some plans make known beside the rest.
        release: the word of a site's ledger for a release of it.
        possible: post-processing of a total that carries every site's noise: the nearest total that records have.
        largest_real: the greatest real number of a header that one site adds, rounded up.
        is_round: whether its total is a round of training, with a change of the model beside the header. Each
            attempt at a round draws anew; what a site adds to any other sum is always the same.
        is_evaluation: whether it tells how good a model is, and may be asked for about a saved one.
        has_query: whether it is one step of several, and says what is asked.
        is_about_model: whether a contribution depends on the global model.
    """

    purpose: Purpose
    header: Callable[[Plan, FeatureSchema], Header]
    planned: Callable[[Plan], bool]
    policy_word: str
    discloses: Callable[[Plan], tuple[Disclosure, ...]]
    asked_by: Callable[[Plan], str]
    release: ReleasePurpose
    possible: Callable[[Totals, Plan, FeatureSchema], Totals]
    largest_real: Callable[[Plan, FeatureSchema], float]
    is_round: bool = False
    is_evaluation: bool = False
    has_query: bool = False
    is_about_model: bool = True
    asked_more_by: Mapping[Disclosure, str] = field(default_factory=dict)


def sum_kind(purpose: Purpose) -> SumKind:
    """Return the row of a purpose."""
    return _KINDS[purpose]


def sum_kinds() -> tuple[SumKind, ...]:
    """Return every row, in the order in which disclosures are listed."""
    return tuple(_KINDS.values())


def planned_kinds(plan: Plan) -> tuple[SumKind, ...]:
    """Return the statistics of a plan, in the order of `Purpose`."""
    return tuple(kind for kind in map(sum_kind, Purpose) if kind.planned(plan))


def sum_specs(plan: Plan, layout: Layout, schema: FeatureSchema) -> dict[Purpose, SumSpec]:
    """Return the shape of every sum of a plan; a round has a body, w * change of theta."""
    width = layout.dtype.newbyteorder("<")
    return {
        kind.purpose: SumSpec(
            kind.purpose, kind.header(plan, schema).length, layout.dimension if kind.is_round else 0, width
        )
        for kind in planned_kinds(plan)
    }


# ------------------------------------------------------------------ the columns of the rows


def _always(_plan: Plan) -> bool:
    return True


def _is_evaluated(plan: Plan) -> bool:
    return not is_unevaluated(plan)


def _as_it_is(totals: Totals, _plan: Plan, _schema: FeatureSchema) -> Totals:
    return totals


def _unbounded(_plan: Plan, _schema: FeatureSchema) -> float:
    return MAX_INTEGER


def _largest_of_training(plan: Plan, schema: FeatureSchema) -> float:
    """Return the bound of w * change of c, where no further number needs a greater one."""
    if round_sum(plan).further or group_count(plan, schema.classes):
        return MAX_INTEGER
    return min(math.ceil(greatest_weight(plan) * threshold_limit(plan, schema.classes)), MAX_INTEGER)


def _by_algorithm(plan: Plan) -> tuple[Disclosure, ...]:
    return ALGORITHMS[plan.training.algorithm].kinds


def _asked_by_training(plan: Plan) -> str:
    corrected = "; training.control_variates: true" if plan.training.control_variates else ""
    return f"training.algorithm: {plan.training.algorithm}{corrected}"


def _one(disclosure: Disclosure) -> Callable[[Plan], tuple[Disclosure, ...]]:
    return lambda _plan: (disclosure,)


def _evaluated(plan: Plan) -> tuple[Disclosure, ...]:
    return ("loss-sums", "score-sums") if plan.evaluation.scores else ("loss-sums",)


def _training_header(plan: Plan, schema: FeatureSchema) -> Header:
    return training_layout(plan, schema.classes)


def _evaluation_header(plan: Plan, schema: FeatureSchema) -> Header:
    return planned_layout(plan, schema)


def _moments_header(plan: Plan, schema: FeatureSchema) -> Header:
    return moments_layout(scaled_columns(plan.task.loss, len(schema.numeric)))


def _possible_moments(totals: Totals, plan: Plan, schema: FeatureSchema) -> Totals:
    asked = plan.privacy.sample_level
    if asked is None:
        return totals
    released = np.count_nonzero(~_moments_header(plan, schema).counts(noised=True))
    deviation = noise_deviation(int(released), asked.standardisation_noise_multiplier)
    return replace(totals, header=possible_sums(totals.header, deviation * math.sqrt(totals.contributors)))


def _query_header(plan: Plan, _schema: FeatureSchema) -> Header:
    return exact_layout(len(reported_group_sizes(plan)))


_KINDS: Mapping[Purpose, SumKind] = {
    kind.purpose: kind
    for kind in (
        SumKind(
            Purpose.TRAINING,
            header=_training_header,
            planned=_always,
            policy_word="training",
            discloses=_by_algorithm,
            asked_by=_asked_by_training,
            release="training",
            possible=_as_it_is,
            largest_real=_largest_of_training,
            is_round=True,
        ),
        SumKind(
            Purpose.EVALUATION,
            header=_evaluation_header,
            planned=_is_evaluated,
            policy_word="evaluation",
            discloses=_evaluated,
            asked_by=lambda _: "evaluation",
            asked_more_by={"score-sums": "evaluation.scores: true"},
            release="evaluation",
            possible=_as_it_is,
            largest_real=_unbounded,
            is_evaluation=True,
        ),
        SumKind(
            Purpose.EXACT_EVALUATION,
            header=_query_header,
            planned=evaluates_exactly,
            policy_word="evaluation",
            discloses=_one("loss-quantiles"),
            asked_by=lambda _: "evaluation.method: exact",
            release="evaluation",
            possible=_as_it_is,
            largest_real=_unbounded,
            is_evaluation=True,
            has_query=True,
        ),
        SumKind(
            Purpose.STANDARDISATION,
            header=_moments_header,
            planned=_is_evaluated,
            policy_word="standardisation",
            discloses=_one("feature-sums"),
            asked_by=lambda _: "task.standardize: secure",
            release="standardisation",
            possible=_possible_moments,
            largest_real=_unbounded,
            is_about_model=False,
        ),
        SumKind(
            Purpose.SURVEY,
            header=survey_header,
            planned=surveys,
            policy_word="standardisation",
            discloses=_one("survey-sums"),
            asked_by=lambda _: "task.survey: true",
            release="survey",
            possible=_as_it_is,
            largest_real=_unbounded,
            is_about_model=False,
        ),
    )
}
