"""Advice in sentences: the recommendation with its reason, the critical size, the price, and what is not covered.

Decides the words and the rounding; the choice is `choice.py`'s business, the page `fedfair.report.advice_page`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fedfair.plan.derived import is_noised
from fedfair.plan.description import percent
from fedfair.plan.schema import Plan
from fedfair.studies.advice.document import AdviceDocument, AdvisedModel, Recommendation

_ROUNDED = 0.005
"""Half of the last digit of a share in whole percent."""


def advice_sentences(advice: AdviceDocument) -> tuple[str, ...]:
    """Return the advice in words: the recommendation first, then its reason, the critical size and the price."""
    return (
        recommendation_sentence(advice),
        *_reason(advice),
        *_family(advice),
        *_price(advice),
        *_plans_own(advice),
    )


def recommendation_sentence(advice: AdviceDocument) -> str:
    """Return the recommended setting in one sentence."""
    chosen = advice.recommendation
    if chosen is None:
        return (
            f"No setting is recommended: no model here serves the worst {percent(advice.sizes[-1])} or any "
            "smaller group better than guessing on held-out records."
        )
    size = percent(chosen.worst_group_size)
    if chosen.kind == "plain":
        return (
            f"Recommended: plain average training (training.algorithm: fedavg), which serves the worst {size} "
            "better than guessing, and no protection surely lowers that group's loss."
        )
    return (
        f"Recommended: worst_group_size {chosen.worst_group_size:g} and tradeoff {chosen.tradeoff:g}, because "
        f"{size} is the smallest group looked at that a protected model serves better than guessing."
    )


def advised(advice: AdviceDocument) -> AdvisedModel | None:
    """Return the figures of the recommended model; None where nothing is recommended."""
    chosen = advice.recommendation
    return None if chosen is None else model_of(advice, chosen)


def model_of(advice: AdviceDocument, chosen: Recommendation) -> AdvisedModel:
    """Return the figures of a setting that is among the advice's."""
    if chosen.kind == "plain":
        return advice.plain
    return next(
        model
        for model in advice.models
        if (model.worst_group_size, model.tradeoff) == (chosen.worst_group_size, chosen.tradeoff)
    )


def loss_with_error(value: float, error: float) -> str:
    """Return a loss with its standard error, in thousandths."""
    return f"{value:.3f} ± {error:.3f}"


def _reason(advice: AdviceDocument) -> Iterator[str]:
    chosen = advice.recommendation
    if chosen is None:
        yield (
            "Collect features that tell more of the label, or try a richer model; until then, no worst-group "
            "promise of this plan is worth more than a guess."
        )
        return
    size, model = chosen.worst_group_size, model_of(advice, chosen)
    group, before = model.held_out.group(size), advice.plain.held_out.group(size)
    if chosen.kind == "protect":
        yield (
            f"On held-out records the worst {percent(size)} then have a mean loss of "
            f"{loss_with_error(group.worst, group.error)}, where plain training gives them {before.worst:.3f} and "
            f"guessing {advice.guess:.3f}."
        )
    else:
        yield (
            f"On held-out records the worst {percent(size)} have a mean loss of "
            f"{loss_with_error(before.worst, before.error)} by plain training; guessing gives {advice.guess:.3f}."
        )
    if not chosen.sure:
        yield "That it is below guessing is an estimate: it is less than two standard errors away."
    if chosen.kind == "protect":
        yield (
            "Of the models for this size that beat guessing and reach three quarters of the greatest gain over "
            "plain training, it is the one that costs everybody least."
        )


def _family(advice: AdviceDocument) -> Iterator[str]:
    limits, model = advice.family, advice.model
    if limits.highest is None:
        yield f"On training records, too, {model} was never found to serve any worst group better than guessing."
    elif limits.lowest is None:
        yield (
            f"On training records, {model} was found to serve the worst group better than guessing from "
            f"{_above(limits.highest)} on; training found none below, which proves nothing."
        )
    elif limits.highest < _ROUNDED:
        yield (
            f"On training records, {model} can serve the worst group of every size better than guessing: the "
            "critical group size is 0."
        )
    else:
        yield (
            f"No model of this kind ({model}) serves the worst {_below(limits.lowest)} of these training records "
            f"better than guessing; from {_above(limits.highest)} on it can (the critical group size)."
        )
    if advice.served_from is None:
        yield "On held-out records no group of a size looked at is served better than guessing."
        return
    surely = advice.surely_served_from
    sure = "no size" if surely is None else percent(surely)
    yield (
        "On held-out records, the smallest group looked at that is served better than guessing is "
        + (
            f"{percent(advice.served_from)}, surely (by two standard errors)."
            if surely == advice.served_from
            else f"{percent(advice.served_from)} by the estimate, and surely (by two standard errors) {sure}."
        )
    )


def _price(advice: AdviceDocument) -> Iterator[str]:
    model = advised(advice)
    if model is None or model is advice.plain:
        return
    points = 100.0 * (model.held_out.accuracy - advice.plain.held_out.accuracy)
    yield (
        f"It costs everybody {loss_with_error(model.mean_cost, model.mean_cost_error)} of mean loss "
        f"({model.held_out.mean:.3f} instead of {advice.plain.held_out.mean:.3f}); accuracy is "
        f"{model.held_out.accuracy:.1%} instead of {advice.plain.held_out.accuracy:.1%} ({points:+.1f} points)."
    )


def _plans_own(advice: AdviceDocument) -> Iterator[str]:
    size, chosen = advice.plan_size, advice.recommendation
    own = (size, advice.plan_tradeoff)
    if chosen is not None and own == (chosen.worst_group_size, chosen.tradeoff):
        yield "This is the plan's own setting."
        return
    model = next((one for one in advice.models if (one.worst_group_size, one.tradeoff) == own), None)
    if model is None:
        return
    group = model.held_out.group(size)
    compared = "below" if group.worst < advice.guess else "not below"
    yield (
        f"The plan's own setting, {size:g} and {advice.plan_tradeoff:g}, gives the worst {percent(size)} "
        f"{loss_with_error(group.worst, group.error)}, {compared} guessing, and everybody "
        f"{model.held_out.mean:.3f}."
    )


def advice_notes(advice: AdviceDocument, plan: Plan) -> tuple[str, ...]:
    """Return in words what the figures are of, and what they do not cover."""
    return tuple(_notes(advice, plan))


def _notes(advice: AdviceDocument, plan: Plan) -> Iterator[str]:
    yield (
        f"Every figure is of held-out records unless it says otherwise: the {advice.records} training and "
        f"validation records were divided into {advice.folds} parts, and each part was held out once. Test "
        "records had no part in anything."
    )
    if advice.records < advice.records_available:
        yield (
            f"Of {advice.records_available} records a random {advice.records} were used, so that this takes "
            "minutes."
        )
    yield (
        "An error is a standard error over records, which are taken to be independent; surely means by two of "
        "them. The setting was chosen by these figures, so they flatter it a little."
    )
    if advice.fitted == "solver":
        yield (
            "The curves are of the family of models: each is at the optimum of its objective, on everybody's "
            "records in one place. A federated run that stops before its optimum is worse."
        )
    else:
        yield (
            f"Each model was trained by {advice.rounds} simulated rounds of the plan: where training falls short "
            "of the optimum, so do the curves."
        )
    if is_noised(plan):
        yield "The plan adds noise for differential privacy; these models were made without it, and are better."
    if plan.training.weights != "samples":
        yield f"The plan weighs collaborators by {plan.training.weights}; a solver weighs every record alike."
    yield (
        "Losses are log-losses in nats. Where labels are noisy, the smallest worst groups hold the unlucky as "
        "much as the badly served (Martinez et al. 2021)."
    )


def _below(share: float) -> str:
    """Return a share in percent, rounded down."""
    return f"{math.floor(100.0 * share + 1e-6):d} %"


def _above(share: float) -> str:
    """Return a share in percent, rounded up."""
    return f"{math.ceil(100.0 * share - 1e-6):d} %"
