"""Computes the costs of a run: seconds and bytes of every sum, and their summary in a result.

A deployed run counts the bytes of its uploads, broadcasts and messages (`aggregator.records`); a simulation moves
none, and computes from the shapes of the sums what a deployment of its plan moves: models and scalings to every
site, vectors back, masked where the plan masks. What opens masked sums (keys, votes, shares) is not computed, and
what gRPC and TLS add is counted nowhere. No torch: the aggregator imports this.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from fedfair.aggregation.masked_encoding import sum_shapes
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.plan.derived import is_masked
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.results.parts import RoundBytes, RoundSeconds, Traffic
from fedfair.run.opened_totals import totals_bytes
from fedfair.run.training_run import Progress
from fedfair.statistics.table import Purpose

MAX_POINTS = 100
"""A longer run is summarised in blocks of rounds, so that its curve stays short."""


@dataclass(frozen=True, slots=True)
class SumCost:
    """The cost of one sum.

    Attributes:
        purpose: why it was summed.
        round: training rounds done when it closed.
        seconds: from asking for it to having its total.
        contributors: how many took part, at least 1.
        bytes_up: bytes from all collaborators to the aggregator; 0 where they are not known.
        bytes_down: bytes from the aggregator to all collaborators.
    """

    purpose: Purpose
    round: int
    seconds: float
    contributors: int
    bytes_up: int
    bytes_down: int


class Basis(Enum):
    """Where the bytes of a run's sums come from; the value is the word in a result."""

    MEASURED = "measured"
    COMPUTED = "computed"


class ComputedTraffic:
    """The bytes that a deployment would move, sum by sum, if all sites took part in each and none dropped out.

    Args:
        plan: the plan.
        layout: of the model.
        schema: of the features.
    """

    def __init__(self, plan: Plan, layout: Layout, schema: FeatureSchema) -> None:
        specs = sum_specs(plan, layout, schema)
        members = tuple(plan.federation.collaborators)
        self._uploads = {purpose: spec.upload_bytes for purpose, spec in specs.items()}
        self._opened = {purpose: totals_bytes(spec, members) for purpose, spec in specs.items()}
        if is_masked(plan):
            bits = plan.secure_aggregation.ring_bits
            shapes = sum_shapes(plan, layout, schema)
            self._uploads = {purpose: shapes[purpose.value].vector_bytes(bits) for purpose in specs}
            self._opened = self._uploads

    def cost(self, progress: Progress, seconds: float) -> SumCost:
        """Return what the sum cost that just closed; its total travels back to all sites."""
        sites, up, down = progress.contributors, self._uploads[progress.purpose], self._opened[progress.purpose]
        return SumCost(progress.purpose, progress.round, seconds, sites, sites * up, sites * down)


def rounds_summary(costs: Sequence[SumCost]) -> RoundSeconds | None:
    """Return how long the training rounds took; None without any.

    `curve` has at most `MAX_POINTS` points: the last round of a block of rounds, and the median of its seconds.
    """
    rounds = [cost for cost in costs if cost.purpose.statistic.is_round]
    if not rounds:
        return None
    seconds = sorted(cost.seconds for cost in rounds)
    size = -(-len(rounds) // MAX_POINTS)
    blocks = [rounds[start : start + size] for start in range(0, len(rounds), size)]
    return RoundSeconds(
        count=len(rounds),
        median=statistics.median(seconds),
        p90=seconds[-(-9 * len(seconds) // 10) - 1],
        longest=seconds[-1],
        curve=tuple((block[-1].round, statistics.median(cost.seconds for cost in block)) for block in blocks),
    )


def traffic_summary(costs: Sequence[SumCost], basis: Basis) -> Traffic | None:
    """Return what travelled; None where that was not noted.

    `per_round` is what one collaborator sent and received for each training round, with its share of all the other
    sums of the run.
    """
    rounds = sum(cost.purpose.statistic.is_round for cost in costs)
    if not rounds or not any(cost.bytes_up for cost in costs):
        return None
    return Traffic(
        basis=basis.value,
        bytes_up=sum(cost.bytes_up for cost in costs),
        bytes_down=sum(cost.bytes_down for cost in costs),
        per_round=RoundBytes(
            bytes_up=sum(cost.bytes_up / cost.contributors for cost in costs) / rounds,
            bytes_down=sum(cost.bytes_down / cost.contributors for cost in costs) / rounds,
        ),
    )
