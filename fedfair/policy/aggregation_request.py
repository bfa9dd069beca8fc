"""An aggregator's request, as the site's rules see it; how it arrived is the wire's business."""

from __future__ import annotations

from dataclasses import dataclass

from fedfair.aggregation.quantile_query import QueryStep
from fedfair.statistics.table import Purpose


@dataclass(frozen=True, slots=True)
class AggregationRequest:
    """One sum that a site is asked to add to: the one that its own state of the run asks for next.

    Attributes:
        run: the run, as the aggregator names it.
        on_demand: whether that run evaluates a saved model and nothing else.
        purpose: why it is summed.
        round: the training round, from 1; with any other purpose, the number of rounds done so far.
        query: what an exact evaluation asks; None with any other purpose.
        state: 32 bytes, of the state of the run that the sum is about.
        model_sha256: of the model vector of that state, 32 bytes.
        openers: roster indices of those who can open the sum together and only together; empty where sums are
            plain, and where a part of the cohort is enough.
        scaling_sha256: digest of the scaling of the features of that state, 32 bytes.
        cohort: the names of those who are asked; empty for all of the plan.
        part: which of the sums of the references, from 1; 0 with any other purpose.
    """

    run: str
    on_demand: bool
    purpose: Purpose
    round: int
    query: QueryStep | None
    state: bytes
    model_sha256: bytes
    openers: tuple[int, ...]
    scaling_sha256: bytes = b""
    cohort: tuple[str, ...] = ()
    part: int = 0
