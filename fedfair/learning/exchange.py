"""What server and collaborators say to each other, in the form both sides of the mathematics use.

The server broadcasts a `GlobalModel` (and, once, a `FeatureScaling`) and asks for a sum with a `SumRequest`;
`SumShapes` derives the length of every possible answer from the plan alone, so that a length never tells
anything about a site. Bytes and signatures are the wire's business. No torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError, RemoteProtocolError
from fedfair.evaluation.exact_query import QueryStep, exact_header_length
from fedfair.evaluation.loss_sums import HistogramSpec, evaluation_header_length
from fedfair.evaluation.site_sums import site_sums_length
from fedfair.ids import RoundNumber
from fedfair.learning.data.dataset import FeatureSchema
from fedfair.learning.layout import Layout
from fedfair.plan.derived import (
    evaluates_exactly,
    is_unevaluated,
    planned_loss_range,
    published_sites,
    reported_group_sizes,
)
from fedfair.plan.purpose import Purpose
from fedfair.plan.schema import Plan
from fedfair.sums.running import Totals
from fedfair.sums.spec import SumSpec

TRAINING_HEADER_LENGTH = 2
"""A training header holds the weight and the weighted change of the threshold."""


@dataclass(slots=True)
class GlobalModel:
    """What a round broadcasts: the pair (theta, c).

    Attributes:
        vector: array (d,) in the layout's width.
        threshold: the shared threshold (c in the paper), in units of the loss.
    """

    vector: NDArray[np.floating]
    threshold: float


@dataclass(frozen=True, slots=True)
class FeatureScaling:
    """Means and scales over everybody's training records; a feature x becomes (x - mean) / scale.

    Attributes:
        mean: float64 array (numeric columns,).
        scale: float64 array (numeric columns,), positive; at least 1 for a column that does not seem to vary.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SumRequest:
    """One sum that everybody is asked to add to.

    Attributes:
        purpose: why it is summed.
        round: the training round, from 1; with any other purpose, the number of rounds done so far.
        attempt: 1, or more after a sum that lost its quorum; part of what seeds the local draws.
        spec: the shape of every contribution.
        query: what an exact evaluation asks; None with any other purpose.
    """

    purpose: Purpose
    round: RoundNumber
    attempt: int
    spec: SumSpec
    query: QueryStep | None = None

    @property
    def place(self) -> tuple[Purpose, RoundNumber, int]:
        """Return what all attempts have in common: purpose, round, and the step of an exact evaluation or 0."""
        return self.purpose, self.round, 0 if self.query is None else self.query.number


def histogram_spec(plan: Plan, schema: FeatureSchema) -> HistogramSpec:
    """Return the loss histogram that the plan declares."""
    return HistogramSpec(plan.evaluation.bins, planned_loss_range(plan, schema.classes))


def sum_specs(plan: Plan, layout: Layout, schema: FeatureSchema) -> dict[Purpose, SumSpec]:
    """Return the shape of every sum of a run.

    TRAINING: header [w, w * change of c], body w * change of theta. EVALUATION: header of three blocks (train,
    validation, test), three confusion matrices, and the rows of `evaluation.site_sums` where the plan publishes
    the means of every site. STANDARDISATION: header [n, n_j, sum of x_j, sum of x_j^2] over the numeric columns j,
    n_j of whose values are present. EXACT_EVALUATION, where the plan asks for one: the header of
    `evaluation.exact_query`. A plan that protects whole collaborators has training sums only.
    """
    width = layout.dtype.newbyteorder("<")
    pooled = evaluation_header_length(histogram_spec(plan, schema), schema.classes)
    lengths = {
        Purpose.TRAINING: (TRAINING_HEADER_LENGTH, layout.dimension),
        Purpose.EVALUATION: (pooled + site_sums_length(len(published_sites(plan))), 0),
        Purpose.STANDARDISATION: (1 + 3 * len(schema.numeric), 0),
    }
    if evaluates_exactly(plan):
        lengths[Purpose.EXACT_EVALUATION] = (exact_header_length(len(reported_group_sizes(plan))), 0)
    return {
        purpose: SumSpec(purpose, header, body, width)
        for purpose, (header, body) in lengths.items()
        if purpose is Purpose.TRAINING or not is_unevaluated(plan)
    }


def check_totals(totals: Totals, request: SumRequest) -> None:
    """Check that a total has the shape of its sum.

    Raises:
        LocalProtocolError: it has another one.
        RemoteProtocolError: its header holds a NaN or an infinity.
    """
    spec = request.spec
    if totals.header.shape != (spec.header_length,) or totals.body.shape != (spec.body_length,):
        raise LocalProtocolError(
            f"{request.purpose.value} totals have shapes {totals.header.shape} and {totals.body.shape}, "
            f"the sum has ({spec.header_length},) and ({spec.body_length},)"
        )
    if not np.isfinite(totals.header).all():
        raise RemoteProtocolError(f"the header of the {request.purpose.value} totals holds a NaN or an infinity")
