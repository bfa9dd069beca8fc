"""Encodes a run's masked sums: shapes, terms, what a plan guarantees, and the way back to plain totals.

Secure aggregation adds whole numbers. What a header holds is therefore written as counts, which are exact, and as
real numbers in two limbs: the nearest integer, and the rest, which is at most one half in magnitude. Both limbs
are added in fixed point:

    counts                at most 2^40 a site, exact
    integers of reals     at most 2^54 in magnitude a site, exact
    rests of reals        rounded to 2^-55 or finer, so off by at most 2^-56 a site

The one real number of a training sum, w times the change of the threshold, is at most W R
(`plan.derived.threshold_limit`), and its integer has that bound in place of 2^54.

A float64 has 53 bits, so a site's own number already carries a larger error unless it is below 2^-3, and no range
has to be declared for a column or a loss. A number that is too large is replaced by the bound at its site, and
counted in the masked header. The body is the change of the model, clipped and rounded as `secagg.fixedpoint` says.
What one site adds is `masked_update.py`'s. No torch: the aggregator imports this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.header import Header
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.sum_kinds import planned_kinds, sum_kind
from fedfair.errors import PlanError
from fedfair.plan.derived import (
    greatest_weight,
    is_masked,
    needs_everybody,
    protects_records,
    published_sites,
    quorum,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.public_keys import parse_public_key
from fedfair.plan.purpose import Purpose
from fedfair.plan.schema import Plan
from fedfair.secagg.params import (
    Mode,
    SessionPlan,
    SessionTerms,
    Suite,
    drop_outs_survived,
    guarantee_in_words,
    threshold,
)
from fedfair.secagg.recovery import OpenedSum
from fedfair.secagg.shape import HeaderRun, SumShape
from fedfair.secagg.signing import Member, Roster

MAX_COUNT = 2.0**40
MAX_REST = 0.5

IN_THE_CLEAR = (
    "WARNING: secure aggregation is OFF. The aggregator sees every collaborator's own update in the clear, and "
    "updates can give training records away. Only for rehearsals, and for data that everybody may see."
)


def protection_mode(plan: Plan) -> Mode:
    """Return what the aggregator is trusted with.

    Raises:
        PlanError: the plan's sums are plain.
    """
    if not is_masked(plan):
        raise PlanError("secure_aggregation.mode is off: nothing is masked")
    return Mode(plan.secure_aggregation.mode)


def check_protection(plan: Plan) -> None:
    """Refuse a plan whose sums could not hide a site; a plan with plain sums passes.

    Raises:
        PlanError: too few collaborators, or a quorum that the colluders could see through.
    """
    if not is_masked(plan):
        return
    count, colluders = len(plan.federation.collaborators), plan.secure_aggregation.colluders
    fewest = quorum(plan)
    if fewest < colluders + 2:
        raise PlanError(
            f"a sum over {fewest} of {count} collaborators, {colluders} of whom may collude with the aggregator, "
            "hides nobody",
            f"at least {colluders + 2} must contribute: add collaborators, raise federation.min_collaborators, "
            "or lower secure_aggregation.colluders",
        )
    threshold(protection_mode(plan), count, colluders)


def guarantee(plan: Plan) -> str:
    """Return in words what the plan's sums keep from whom.

    Raises:
        PlanError: as `check_protection`.
    """
    if not is_masked(plan):
        return "NONE: secure aggregation is OFF, the aggregator sees every site's own update in the clear"
    check_protection(plan)
    mode, colluders = protection_mode(plan), plan.secure_aggregation.colluders
    count = len(plan.federation.collaborators)
    words = guarantee_in_words(mode, count, colluders)
    fewest = quorum(plan)
    if count - fewest < drop_outs_survived(mode, count, colluders):
        words += f"; federation.min_collaborators: {fewest} allows {count - fewest} of them"
    if not needs_everybody(plan):
        words += (
            f"; federation.min_collaborators: {fewest} lets the aggregator leave {count - fewest} of {count} "
            "sites out of a round; two rounds that differ by one site can be subtracted, which shows that site's "
            "part up to what the others changed in between, and exactly where one batch holds all records and the "
            "aggregator sends one model in two rounds; a site opens one round for one set of sites only, unless "
            "its policy.training_cohort is any; two evaluations over different sites show the losses and the "
            "number of records of the site that is left out, unless its policy.evaluation_cohort is same"
        )
    if suite_of(plan) is Suite.X25519_MLKEM768:
        words += "; whoever records the messages today must break both X25519 and ML-KEM-768 to read them later"
    if published_sites(plan):
        words += (
            "; but evaluation.site_means: true tells the aggregator every site's own records, loss and accuracy"
        )
    return words


def suite_of(plan: Plan) -> Suite:
    """Return how pairs of sites agree on keys."""
    hybrid = plan.secure_aggregation.key_agreement == "x25519-mlkem768"
    return Suite.X25519_MLKEM768 if hybrid else Suite.X25519


def session_terms(plan: Plan) -> SessionTerms:
    """Return what the aggregator proposes for every session, and every site expects."""
    stated, count = plan.secure_aggregation, len(plan.federation.collaborators)
    mode = protection_mode(plan)
    return SessionTerms(
        mode,
        suite_of(plan),
        stated.colluders,
        threshold(mode, count, stated.colluders),
        stated.ring_bits,
        greatest_weight(plan),
    )


def session_plan(plan: Plan, plan_digest: bytes) -> SessionPlan:
    """Return what a session of the plan is for: its digest, and the terms that follow from it.

    Args:
        plan: the plan.
        plan_digest: 32 bytes, as this side computed it from its own copy.
    """
    return SessionPlan(plan_digest, session_terms(plan))


def roster_of(plan: Plan) -> Roster:
    """Return the pinned keys, numbered from 1 in the plan's order.

    Raises:
        PlanError: somebody's key is missing.
    """
    pinned = plan.federation.roster
    missing = [name for name in plan.federation.collaborators if name not in pinned]
    if missing:
        raise PlanError(
            f"the roster of the plan has no signing key for {', '.join(missing)}",
            "pin each site's key: `fedfair plan enroll` with the site's request",
        )
    names = plan.federation.collaborators
    return Roster(Member(index, name, parse_public_key(pinned[name])) for index, name in enumerate(names, 1))


def sum_shapes(plan: Plan, layout: Layout, schema: FeatureSchema) -> dict[str, SumShape]:
    """Return the shape of every masked sum of a run; the keys are the words of `Purpose`.

    Raises:
        PlanError: the noise for whole collaborators does not fit the ring.
    """
    noised = distributed_dp(plan, layout.dimension)
    if noised is not None:
        return {Purpose.TRAINING.value: noised.shape()}
    shapes = {}
    for purpose, parts in header_parts(plan, schema).items():
        kind, counts, reals = sum_kind(purpose), int(parts.counts.sum()), int(parts.reals.sum())
        runs = (
            HeaderRun(counts, MAX_COUNT, whole=True),
            HeaderRun(reals, float(kind.largest_real(plan, schema)), whole=False),
            HeaderRun(reals, MAX_REST, whole=False),
        )
        body = (layout.dimension,) if kind.is_round else ()
        shapes[purpose.value] = SumShape(tuple(run for run in runs if run.length), body)
    return shapes


@dataclass(frozen=True, slots=True)
class HeaderParts:
    """The masking of each value of a plain header: three bool arrays (length,), one of them True at each place.

    Attributes:
        weight: what the protocol carries by itself.
        counts: whole numbers.
        reals: real numbers, each in two limbs.
    """

    weight: NDArray[np.bool_]
    counts: NDArray[np.bool_]
    reals: NDArray[np.bool_]


def header_parts(plan: Plan, schema: FeatureSchema) -> dict[Purpose, HeaderParts]:
    """Return the parts of the header of every sum of a run."""
    noised = protects_records(plan)
    return {kind.purpose: _parts(kind.header(plan, schema), noised) for kind in planned_kinds(plan)}


def _parts(layout: Header, noised: bool) -> HeaderParts:
    weight, counts = layout.weights(), layout.counts(noised=noised)
    return HeaderParts(weight, counts & ~weight, ~counts)


def plain_totals(opened: OpenedSum, parts: HeaderParts) -> Totals:
    """Return the totals of an opened sum in the form of plain ones.

    Args:
        opened: what secure aggregation opened.
        parts: of its purpose, from `header_parts`.
    """
    counts, integers, rests = np.split(opened.header, np.cumsum([parts.counts.sum(), parts.reals.sum()]))
    header = np.empty(len(parts.counts))
    header[parts.weight] = float(opened.weight)
    header[parts.counts] = counts
    header[parts.reals] = integers + rests
    replaced, sizes = (opened.replaced, opened.replacing), (opened.clipped, opened.histogram)
    return Totals(header, opened.body, opened.contributors, *replaced, *sizes)


def clips_of(purpose: Purpose, clip: float, shapes: Mapping[str, SumShape]) -> tuple[float, ...]:
    """Return the clip of every group of a sum's body."""
    return (clip,) * len(shapes[purpose.value].groups)
