"""Advice in sentences: the recommendation with its reason, the critical size, the price, and what is not covered.

Decides the figures of the sentences and their rounding; the sentences stand in `templates/`. The choice is
`choice.py`'s business, the page `fedfair.report.advice_page`'s.
"""

from __future__ import annotations

import math

from fedfair.plan.derived import is_noised
from fedfair.plan.description import percent
from fedfair.plan.schema import Plan
from fedfair.studies.advice.document import AdviceDocument, AdvisedModel
from fedfair.templates import sentences

_HERE = "fedfair.studies.advice"


def advice_sentences(advice: AdviceDocument) -> tuple[str, ...]:
    """Return the advice in words: the recommendation first, then its reason, the critical size and the price."""
    chosen, limits = advice.recommendation, advice.family
    plans_own = (advice.plan_size, advice.plan_tradeoff)
    return sentences(
        _HERE,
        "advice.txt.jinja",
        advice=advice,
        chosen=chosen,
        model=advised(advice),
        own=_model_for(advice, *plans_own),
        is_plans_own=chosen is not None and plans_own == (chosen.worst_group_size, chosen.tradeoff),
        percent=percent,
        loss=loss_with_error,
        # The sentences claim no more than was found: a share is rounded away from what it speaks about.
        below=f"{math.floor(100.0 * (limits.lowest or 0.0) + 1e-6):d} %",
        above=f"{math.ceil(100.0 * (limits.highest or 0.0) - 1e-6):d} %",
    )


def advised(advice: AdviceDocument) -> AdvisedModel | None:
    """Return the figures of the recommended model; None where nothing is recommended."""
    chosen = advice.recommendation
    if chosen is None or chosen.kind == "plain":
        return None if chosen is None else advice.plain
    return _model_for(advice, chosen.worst_group_size, chosen.tradeoff)


def _model_for(advice: AdviceDocument, group_size: float, tradeoff: float) -> AdvisedModel | None:
    setting = (group_size, tradeoff)
    return next((one for one in advice.models if (one.worst_group_size, one.tradeoff) == setting), None)


def loss_with_error(value: float, error: float) -> str:
    """Return a loss with its standard error, in thousandths."""
    return f"{value:.3f} ± {error:.3f}"


def advice_notes(advice: AdviceDocument, plan: Plan) -> tuple[str, ...]:
    """Return in words what the figures are of, and what they do not cover."""
    noised, weights = is_noised(plan), plan.training.weights
    return sentences(_HERE, "notes.txt.jinja", advice=advice, noised=noised, weights=weights)
