"""Encodes the masked sums of a run: their shapes, and the way back to plain totals.

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
`training.masked_update` says what one site adds, `masking_terms` who masks and on which terms. No torch:
the aggregator imports this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.header import Header
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.sum_kinds import planned_purposes, sum_kind
from fedfair.plan.derived import is_masked, protects_records
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.shape import HeaderRun, SumShape
from fedfair.statistics.table import Purpose, purpose_named

MAX_COUNT = 2.0**40
MAX_REST = 0.5


def sum_shapes(plan: Plan, layout: Layout, schema: FeatureSchema) -> dict[str, SumShape]:
    """Return the shape of every masked sum of a run; the keys are the words of `Purpose`.

    Raises:
        PlanError: the noise for whole collaborators does not fit the ring.
    """
    noised, checked = distributed_dp(plan, layout.dimension), plan.secure_aggregation.check_sums
    if noised is not None:
        return {Purpose.TRAINING.value: replace(noised.shape(), checked=checked)}
    shapes = {}
    for purpose, parts in header_parts(plan, schema).items():
        largest = sum_kind(purpose).largest_real(plan, schema)
        counts, reals = int(parts.counts.sum()), int(parts.reals.sum())
        runs = (
            HeaderRun(counts, MAX_COUNT, whole=True),
            HeaderRun(reals, float(largest), whole=False),
            HeaderRun(reals, MAX_REST, whole=False),
        )
        body = (layout.dimension,) if purpose.statistic.is_round else ()
        shapes[purpose.value] = SumShape(tuple(run for run in runs if run.length), body, checked=checked)
    return shapes


def opened_lengths(plan: Plan, layout: Layout, schema: FeatureSchema) -> frozenset[int]:
    """Return every length that the body of an opened sum of a run has, in bytes; none where sums are plain."""
    if not is_masked(plan):
        return frozenset()
    shapes = sum_shapes(plan, layout, schema).values()
    return frozenset(shape.body_bytes(plan.secure_aggregation.ring_bits) for shape in shapes)


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
    planned = planned_purposes(plan)
    return {purpose: _parts(sum_kind(purpose).header(plan, schema), noised) for purpose in planned}


def _parts(layout: Header, noised: bool) -> HeaderParts:
    weight, counts = layout.weights(), layout.counts(noised=noised)
    return HeaderParts(weight, counts & ~weight, ~counts)


def plain_totals(opened: OpenedSum, parts: HeaderParts, *, used_up: bool = False) -> Totals:
    """Return the totals of an opened sum in the form of plain ones.

    Args:
        opened: what secure aggregation opened.
        parts: of its purpose, from `header_parts`.
        used_up: as of `Totals`.
    """
    counts = int(np.count_nonzero(parts.counts))
    reals = counts + int(np.count_nonzero(parts.reals))
    header = np.empty(len(parts.counts))
    header[parts.weight] = float(opened.weight)
    header[parts.counts] = opened.header[:counts]
    header[parts.reals] = opened.header[counts:reals] + opened.header[reals:]
    replaced, sizes = (opened.replaced, opened.replacing), (opened.clipped, opened.histogram)
    return Totals(header, opened.body, opened.contributors, *replaced, *sizes, used_up)


class MaskedTotals:
    """How the opened sums of one plan are read.

    Args:
        plan: the plan; its sums are masked.
        layout: of the model.
        schema: of the features.
    """

    def __init__(self, plan: Plan, layout: Layout, schema: FeatureSchema) -> None:
        self._parts = header_parts(plan, schema)
        self._noised = distributed_dp(plan, layout.dimension)

    def of(self, opened: OpenedSum) -> Totals:
        """Return the totals of an opened sum, whose body is theirs from now on."""
        if self._noised is not None:
            return self._noised.totals(opened.body, opened.contributors)
        return plain_totals(opened, self._parts[purpose_named(opened.purpose)], used_up=True)


def clips_of(purpose: Purpose, clip: float, shapes: Mapping[str, SumShape]) -> tuple[float, ...]:
    """Return the clip of every group of a sum's body."""
    return (clip,) * len(shapes[purpose.value].groups)
