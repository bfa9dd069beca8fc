"""An aggregator's request, as the site's rules see it; how it arrived is the wire's business."""

from __future__ import annotations

from dataclasses import dataclass

from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.requests import FeatureScaling
from fedfair.plan.purpose import Purpose


@dataclass(frozen=True, slots=True)
class AggregationRequest:
    """One sum that a site is asked to add to.

    Attributes:
        run: the run, as the aggregator names it.
        on_demand: whether that run evaluates a saved model and nothing else.
        purpose: why it is summed.
        round: the training round, from 1; with any other purpose, the number of rounds done so far.
        attempt: the attempt, from 1, as the aggregator says.
        query: what an exact evaluation asks; None with any other purpose.
        model_sha256: of the vector that the sum is about, 32 bytes; empty where it is about no model.
        threshold: of that model, in units of the loss.
        scaling: of the features, in force when the answer is computed; None for none.
        openers: roster indices of those who can open the sum together and only together; empty where sums are
            plain, and where a part of the cohort is enough.
    """

    run: str
    on_demand: bool
    purpose: Purpose
    round: int
    attempt: int
    query: QueryStep | None
    model_sha256: bytes
    threshold: float
    scaling: FeatureScaling | None
    openers: tuple[int, ...]
