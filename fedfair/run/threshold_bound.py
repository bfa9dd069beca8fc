"""Bounds the threshold by the losses that were found: the best threshold is a quantile of the training losses.

Decides how high a round may lift it. So a site that lies lifts it to the highest loss of the last evaluation, and
no further. The evaluation before round 1 is of a model whose losses may all be equal; after it alone the range of
the histogram is the bound. A threshold that is higher already, because the plan starts there, may stay or fall.
"""

from __future__ import annotations

import math

from fedfair.aggregation.evaluator import Evaluator
from fedfair.run.state import RunState


def highest_threshold(evaluator: Evaluator, state: RunState, limit: float) -> float:
    """Return the highest threshold that a round may leave.

    Args:
        evaluator: of the plan.
        state: before the round; its last evaluation is without noise.
        limit: the most by which a round may move the threshold.
    """
    evaluated = state.evaluated
    if evaluated is None:
        return math.inf
    found = evaluator.highest_loss(evaluated.header)
    if evaluated.round == 0 and math.isfinite(found):
        found = limit
    return max(state.model.threshold, found)
