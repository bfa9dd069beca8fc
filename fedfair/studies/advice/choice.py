"""Chooses the group size and the tradeoff to recommend: a function of the figures, without any draw.

Only held-out records count. Sizes are looked at from the smallest on, each with plain training and the models that
were trained for it:

1. Where no such model surely lowers the worst group's loss below that of plain training, and plain training serves
   the group better than guessing, plain training is recommended. "Surely" is by two standard errors.
2. Where one surely does, and serves the group better than guessing, the size is recommended. A smaller group would
   get a guess, at the price of all others (Martinez et al. 2021). The tradeoff is that of the model with the
   least overall mean loss, among those that beat guessing and reach three quarters of the greatest gain. The
   last quarter of the protection costs the most.
3. Otherwise the next size is looked at.

Better than guessing is by the estimate; whether it is sure is stated beside the recommendation. The setting is a
winner among noisy figures, so these flatter it a little.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedfair.studies.advice.document import AdvisedModel, Recommendation

ERRORS = 2.0
"""Standard errors by which a difference is sure."""

SHARE_OF_GAIN = 0.75

MARGIN = 1e-3
"""Better than guessing is by more than this part of its loss; a model nearer to the guess is one."""


def recommend(plain: AdvisedModel, models: Sequence[AdvisedModel], guess: float) -> Recommendation | None:
    """Return the recommended setting; None where no group of a size looked at is served better than guessing.

    Args:
        plain: plain average training, with figures of every size.
        models: all other models, with figures of the same sizes.
        guess: the loss of the uniform guess.
    """
    for size in sorted({model.worst_group_size for model in models}):
        trained = [model for model in models if model.worst_group_size == size]
        best = min(trained, key=lambda model: model.held_out.group(size).worst)
        gains = best.worst_gain > ERRORS * best.worst_gain_error
        if gains and _beats(best, size, guess):
            serving = [model for model in trained if _beats(model, size, guess)]
            return _cheapest(size, best.worst_gain, serving, guess)
        if not gains and _beats(plain, size, guess):
            sure = _beats(plain, size, guess, ERRORS)
            return Recommendation(worst_group_size=size, tradeoff=1.0, kind="plain", sure=sure)
    return None


def served_from(
    plain: AdvisedModel, models: Sequence[AdvisedModel], guess: float, *, surely: bool
) -> float | None:
    """Return the smallest size that plain training or a model trained for it serves better than guessing.

    Args:
        plain: plain average training.
        models: all other models.
        guess: the loss of the uniform guess.
        surely: by two standard errors, instead of by the estimate.

    Returns:
        A size that some model was trained for; None where there is none.
    """
    errors = ERRORS if surely else 0.0
    sizes = {
        model.worst_group_size
        for model in models
        if any(_beats(one, model.worst_group_size, guess, errors) for one in (plain, model))
    }
    return min(sizes, default=None)


def _cheapest(size: float, greatest_gain: float, serving: Sequence[AdvisedModel], guess: float) -> Recommendation:
    enough = [model for model in serving if model.worst_gain >= SHARE_OF_GAIN * greatest_gain]
    chosen = min(enough, key=lambda model: (model.held_out.mean, -model.tradeoff))
    sure = _beats(chosen, size, guess, ERRORS)
    return Recommendation(worst_group_size=size, tradeoff=chosen.tradeoff, kind="protect", sure=sure)


def _beats(model: AdvisedModel, size: float, guess: float, errors: float = 0.0) -> bool:
    """Return whether a model serves the worst group of a size better than guessing, by so many standard errors."""
    group = model.held_out.group(size)
    return group.worst + errors * group.error < guess * (1.0 - MARGIN)
