"""Decides what a certificate may state about an evaluation, and what it must not.

    test split          evaluated records and population
    validation split    evaluated records only: training chose its output model by these very records
    train split         evaluated records only, and only if somebody asks for it: the model has seen these people

Groups of fewer people than the plan's `evaluation.min_group` are passed over, and no published bin holds fewer.
Decides these rules and gathers the facts from the evaluation's sums and the plan. Signing is `seal.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedfair.aggregation.evaluation_file import EvaluationRecord, Split, SplitSums
from fedfair.certificate.document import FORMAT, MAX_STATEMENTS, Certificate, Histogram, Population, Training
from fedfair.certificate.proof import mean_loss, nearest_statement, statements
from fedfair.certificate.verdict import certified_verdict, guess_of, published_outcomes
from fedfair.errors import CertificateError, PlanError
from fedfair.fairness.population_bounds import (
    MAX_DELTA,
    METHODS,
    MIN_DELTA,
    MIN_GROUP_SIZE,
    LossHistogram,
    Method,
    join_small_bins,
)
from fedfair.plan.derived import given_references, is_noised, measures_excess
from fedfair.plan.losses import CROSS_ENTROPY, loss_in_words
from fedfair.plan.schema import Plan
from fedfair.results.writing import is_suppressed

MIN_RECORDS = 10
"""A published bin holds at least this many losses unless stated otherwise: its sum is then nobody's own loss."""


@dataclass(frozen=True, slots=True)
class IssueTerms:
    """The issuer's choices, made before looking at any loss.

    Raises:
        PlanError: delta or a group size is out of range, or there are too many of these.

    Attributes:
        split: whose losses.
        group_sizes: of the statements (rho), each in [1e-12, 1]; at most 1000, in any order.
        delta: the chance that a population bound is wrong.
        method: how the population is bounded.
        fewest: records that a published bin holds at least.
    """

    split: Split
    group_sizes: tuple[float, ...]
    delta: float = 0.05
    method: Method = METHODS[0]
    fewest: int = MIN_RECORDS

    def __post_init__(self) -> None:
        if not MIN_DELTA <= self.delta <= MAX_DELTA:
            raise PlanError(f"delta is {self.delta}, outside [{MIN_DELTA}, {MAX_DELTA}]", "0.05 is 95% confidence")
        if not 1 <= len(self.group_sizes) <= MAX_STATEMENTS:
            raise PlanError(
                f"a certificate is about 1 to {MAX_STATEMENTS} group sizes, not {len(self.group_sizes)}"
            )
        wrong = [size for size in self.group_sizes if not MIN_GROUP_SIZE <= size <= 1.0]
        if wrong:
            raise PlanError(f"group size is {wrong[0]}, outside [{MIN_GROUP_SIZE}, 1]")


def held_out_split(record: EvaluationRecord) -> Split:
    """Return the split that speaks for people the model has not seen: test, or else validation.

    Raises:
        CertificateError: the evaluation has neither.
    """
    for split in ("test", "validation"):
        if split in record.splits:
            return split
    raise CertificateError(
        "the evaluation has no held-out records, only training records",
        "state task.test_fraction in the plan and run it again; --split train certifies the training records, "
        "which proves nothing about new people",
    )


def _training(plan: Plan) -> Training:
    """Return the aim of a plan's training; a measure is stated where it is not the loss."""
    objective = plan.objective
    stated = Training(
        algorithm=plan.training.algorithm,
        worst_group_size=objective.worst_group_size,
        tradeoff=objective.tradeoff,
    )
    if not measures_excess(plan):
        return stated
    named = given_references(plan)
    taken = {} if named is None else {"references": named}
    return stated.model_copy(update={"measure": "excess", **taken})


def draft(record: EvaluationRecord, plan: Plan, terms: IssueTerms, *, issued_at: str) -> Certificate:
    """Return an unsigned certificate.

    Args:
        record: the sums of an evaluation, whose plan digest the caller has compared.
        plan: the plan that was run.
        terms: what is to be certified.
        issued_at: the time in ISO 8601.

    Raises:
        DataError: the evaluation has no records of that split, or none that are reported of a site that the plan
            weighs.
        CertificateError: every group of these sizes is fewer people than may be reported, or the sums hold
            replaced losses, which prove nothing.
        RemoteProtocolError: no losses whatsoever have these sums.
    """
    sums = _proving_sums(record, terms.split)
    planned = LossHistogram.planned(record.bins, record.loss_range, sums.counts, sums.sums)
    fewest = max(terms.fewest, plan.evaluation.min_group)
    published = join_small_bins(planned, fewest)
    population = _population(plan, terms) if speaks_for_others(terms.split) else None
    sizes = _reported_sizes(terms.group_sizes, published.records, plan)
    proven = statements(published, sizes, population, sums.sites)
    words = record.loss or loss_in_words(CROSS_ENTROPY)
    floor, outcomes = guess_of(record.classes, record.guess), published_outcomes(sums, fewest)
    return Certificate(
        format=FORMAT,
        federation=plan.federation.name,
        issued_at=issued_at,
        issuer=None,
        plan_digest=record.plan_digest,
        model_digest=record.model_digest,
        round=record.round,
        training=_training(plan),
        privacy=privacy_statement(plan),
        participants=record.participants,
        masked=record.masked,
        split=terms.split,
        n=published.records,
        sites=sums.sites,
        mean=mean_loss(published),
        classes=record.classes,
        uniform_floor=floor,
        loss=words,
        loss_range=record.loss_range,
        population=population,
        statements=proven,
        histogram=_histogram(published, fewest),
        outcomes=outcomes,
        verdict=certified_verdict(nearest_statement(proven, plan.objective.worst_group_size), floor, outcomes),
        signature=None,
    )


def _proving_sums(record: EvaluationRecord, split: Split) -> SplitSums:
    """Return the sums of a split; refuse those in which losses were replaced."""
    if record.replaced:
        raise CertificateError(
            f"{record.replaced} losses of this evaluation were not finite or too large, and were replaced: its "
            "sums prove nothing about the model",
            "lower training.learning_rate, or look for extreme values in the data of the sites, and run it again",
        )
    record.block(split)
    return record.splits[split]


def _histogram(published: LossHistogram, fewest: int) -> Histogram:
    return Histogram(
        bins=published.bins,
        fewest=fewest,
        starts=published.starts,
        counts=published.counts,
        sums=published.sums,
        cores=published.cores,
    )


def _population(plan: Plan, terms: IssueTerms) -> Population:
    weights = plan.evaluation.site_weights
    if not weights:
        return Population(method=terms.method, delta=terms.delta, mixture="evaluated records", weights=None)
    if terms.method != "binomial":
        raise PlanError(
            f"the method {terms.method} is not proven for the numbers of records that evaluation.site_weights "
            "are compared with",
            "use --method binomial",
        )
    return Population(method=terms.method, delta=terms.delta, mixture="site weights", weights=dict(weights))


def speaks_for_others(split: Split) -> bool:
    """Return whether the records of a split can speak for people who were not evaluated.

    They cannot where the model depends on them: as training records, or as validation records, because a run never
    returns a model that did worse on them than another one.
    """
    return split == "test"


def privacy_statement(plan: Plan) -> str:
    """Return the differential-privacy statement of a run of the plan."""
    if is_noised(plan):
        raise CertificateError("the plan asks for differential privacy, which a certificate cannot state yet")
    return "none"


def _reported_sizes(group_sizes: Iterable[float], records: int, plan: Plan) -> tuple[float, ...]:
    """Return, in order, the sizes of groups that are enough people."""
    fewest = plan.evaluation.min_group
    told = tuple(size for size in sorted(set(group_sizes)) if not is_suppressed(records, size, fewest))
    if not told:
        raise CertificateError(
            f"of {records} evaluated people, every group of the sizes asked for is fewer than the plan's "
            f"evaluation.min_group, {fewest}",
            "evaluate more people, or ask for larger groups with --group-sizes",
        )
    return told
