"""Advice in sentences: the recommendation with its reason, the critical size, the price, and what is not covered.

Decides the figures of the sentences and their rounding; the sentences stand in `templates/`. The choice is
`choice.py`'s business, the page `fedfair.report.advice_page`'s.
"""

from __future__ import annotations

import math

from fedfair.plan.derived import is_noised
from fedfair.plan.description import percent
from fedfair.plan.schema import Plan
from fedfair.results.loss_text import loss_text
from fedfair.studies.advice.document import (
    AdviceDocument,
    AdviceTrials,
    AdvisedModel,
    Recommendation,
    TriedSetting,
)
from fedfair.studies.advice.trial_choice import beats_base_rate_surely, is_plain
from fedfair.templates import sentences

USUAL_SIZE = 0.1
"""The group size that speaks for plain training."""

_HERE = "fedfair.studies.advice"


def advice_sentences(advice: AdviceDocument) -> tuple[str, ...]:
    """Return the advice in words: the recommendation first, then its reason, the critical size and the price."""
    tried = () if advice.trials is None else _trial_sentences(advice, advice.trials)
    return tried if advice.fitted == "trials" else (*tried, *_curve_sentences(advice))


def _trial_sentences(advice: AdviceDocument, trials: AdviceTrials) -> tuple[str, ...]:
    chosen = None if trials.chosen is None else trials.tried[trials.chosen]
    size = USUAL_SIZE if chosen is None or is_plain(chosen) else chosen.worst_group_size
    own = (advice.plan_measure, advice.plan_size, advice.plan_tradeoff, None)
    return sentences(
        _HERE,
        "trials.txt.jinja",
        advice=advice,
        trials=trials,
        chosen=chosen,
        others=trials.tried[1:],
        best=min(trials.tried, key=lambda one: one.held_out.mean),
        size=size,
        sure=chosen is None or beats_base_rate_surely(chosen),
        untrained=0 if chosen is None else chosen.untrained,
        is_plans_own=chosen is not None and own == _keys(chosen),
        is_plain=is_plain,
        words=setting_words,
        percent=percent,
        loss=loss_with_error,
        figure=loss_text,
        difference=difference,
    )


def _keys(tried: TriedSetting) -> tuple[str, float, float, float | None]:
    return tried.measure, tried.worst_group_size, tried.tradeoff, tried.learning_rate


def setting_words(tried: TriedSetting | Recommendation) -> str:
    """Return a setting by the keys of a plan that it changes."""
    found = f"measure {tried.measure}, worst_group_size {tried.worst_group_size:g} and tradeoff {tried.tradeoff:g}"
    if tried.tradeoff == 1.0:
        found = "plain average training (training.algorithm: fedavg)"
    return found if tried.learning_rate is None else f"{found}, with a learning rate of {tried.learning_rate:g}"


def plan_comment(advice: AdviceDocument) -> tuple[str, ...]:
    """Return why a plan has what was recommended, in few words with figures; nothing without a recommendation."""
    trials = advice.trials
    if trials is None or trials.chosen is None:
        return ()
    return sentences(
        _HERE,
        "comment.txt.jinja",
        advice=advice,
        trials=trials,
        chosen=trials.tried[trials.chosen],
        size=USUAL_SIZE,
        is_plain=is_plain,
        percent=percent,
        loss=loss_with_error,
        figure=loss_text,
    )


def _curve_sentences(advice: AdviceDocument) -> tuple[str, ...]:
    chosen, limits = by_curves(advice), advice.family
    plans_own = (advice.plan_size, advice.plan_tradeoff)
    return sentences(
        _HERE,
        "advice.txt.jinja",
        advice=advice,
        chosen=chosen,
        leads=advice.trials is None,
        model=advised(advice),
        own=_model_for(advice, *plans_own) if advice.plan_measure == "loss" else None,
        is_plans_own=chosen is not None and plans_own == (chosen.worst_group_size, chosen.tradeoff),
        percent=percent,
        loss=loss_with_error,
        # The sentences claim no more than was found: a share is rounded away from what it speaks about.
        below=f"{math.floor(100.0 * (limits.lowest or 0.0) + 1e-6):d} %",
        above=f"{math.ceil(100.0 * (limits.highest or 0.0) - 1e-6):d} %",
    )


def by_curves(advice: AdviceDocument) -> Recommendation | None:
    """Return what the curves recommend, which are of models that measure the loss; None for nothing."""
    return advice.recommendation if advice.trials is None else advice.by_loss


def advised(advice: AdviceDocument) -> AdvisedModel | None:
    """Return the figures of the model that the curves recommend; None where they recommend none."""
    chosen = by_curves(advice)
    if chosen is None or chosen.kind == "plain":
        return None if chosen is None else advice.plain
    return _model_for(advice, chosen.worst_group_size, chosen.tradeoff)


def _model_for(advice: AdviceDocument, group_size: float, tradeoff: float) -> AdvisedModel | None:
    setting = (group_size, tradeoff)
    return next((one for one in advice.models if (one.worst_group_size, one.tradeoff) == setting), None)


def loss_with_error(value: float, error: float) -> str:
    """Return a loss with its standard error, in thousandths unless it is tiny or huge."""
    return f"{loss_text(value)} ± {loss_text(error, beside=value)}"


def difference(tried: TriedSetting) -> str:
    """Return by how much a setting's mean loss is above plain training's, as finely as the loss is written."""
    mean = tried.held_out.mean
    return f"{loss_text(tried.mean_cost, beside=mean)} ± {loss_text(tried.mean_cost_error, beside=mean)}"


def advice_notes(advice: AdviceDocument, plan: Plan) -> tuple[str, ...]:
    """Return in words what the figures are of, and what they do not cover."""
    noised, weights = is_noised(plan), plan.training.weights
    return sentences(_HERE, "notes.txt.jinja", advice=advice, noised=noised, weights=weights)
