"""What server and collaborators say to each other, in the form both sides of the mathematics use.

The server broadcasts a `GlobalModel` (and, once, a `FeatureScaling`) and asks for a sum with a `SumRequest`;
`SumShapes` derives the length of every possible answer from the plan alone, so that a length never tells
anything about a site. Bytes and signatures are the wire's business. No torch.
"""

from __future__ import annotations

import math
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
from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.purpose import Purpose
from fedfair.plan.schema import Plan
from fedfair.sums.running import Totals
from fedfair.sums.spec import SumSpec

TRAINING_HEADER_LENGTH = 2
"""A training header holds the weight and the weighted change of the threshold."""

LOSS_RANGE_IN_UNIFORM_LOSSES = 8.0
"""The histogram reaches to this many times log(classes), the loss of the uniform classifier."""


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


def learns_threshold(plan: Plan) -> bool:
    """Return whether local steps follow the tail of the losses, so that the threshold moves.

    The worst group of everybody is the mean, and so is a tradeoff of 1: both take FedAvg's own rule, so that the
    results are equal bit for bit and not only in theory.
    """
    stated = plan.objective
    is_plain_mean = stated.worst_group_size == 1.0 or stated.tradeoff == 1.0
    return ALGORITHMS[plan.training.algorithm].threshold and not is_plain_mean


def reported_group_sizes(plan: Plan) -> tuple[float, ...]:
    """Return the group sizes of the plan's reports: those it lists, and the one that it trains for."""
    return tuple(sorted({*plan.evaluation.group_sizes, plan.objective.worst_group_size}))


def is_unevaluated(plan: Plan) -> bool:
    """Return whether nothing but training sums may be made: no other sum carries noise for whole collaborators."""
    return plan.privacy.collaborator_level is not None


def published_sites(plan: Plan) -> tuple[str, ...]:
    """Return whose own means the plan publishes, in the order of their rows; nobody's unless it asks for them."""
    return plan.federation.collaborators if plan.evaluation.site_means else ()


def histogram_spec(plan: Plan, schema: FeatureSchema) -> HistogramSpec:
    """Return the loss histogram that the plan declares."""
    return HistogramSpec(plan.evaluation.bins, planned_loss_range(plan, schema.classes))


def planned_loss_range(plan: Plan, classes: int) -> float:
    """Return where the plan's open bin begins, in nats; 8 log(classes) where the plan does not say."""
    stated = plan.evaluation.loss_range
    return LOSS_RANGE_IN_UNIFORM_LOSSES * math.log(classes) if stated is None else stated


def threshold_limit(plan: Plan, classes: int) -> float:
    """Return R: the most by which a round may move the threshold, and the highest that round 0 may set it to.

    R is the plan's loss bound B, or where it has none the end of the loss histogram. The best threshold is a
    quantile of the losses, and so within [0, R] where these are. No honest move between two points of that range
    is longer than R. A quantile above it is reached in several rounds.

    A round of K local steps moves a threshold by at most K eta_c (1 - epsilon) max(1, 1/rho - 1), because its
    gradient is 1 - u (`fairness.rcvar`). Where that is at most R, no honest change is ever clipped.

    Args:
        plan: the plan.
        classes: how many there are.
    """
    bound = plan.objective.loss_bound
    return planned_loss_range(plan, classes) if bound is None else bound


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
    if plan.evaluation.method == "exact":
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
