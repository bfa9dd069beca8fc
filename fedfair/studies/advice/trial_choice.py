"""Chooses among tried settings the one to recommend: a rule over held-out figures, without any draw.

1. Only settings count whose mean loss is below the base rate's, where that is known, by more than 1 % of it. If
   none is, nothing is recommended: these features tell nothing that this training finds.
2. The excess, unless its mean loss is surely and materially above that of plain averaging: by two standard errors
   of the difference record by record, and by more than 2 %. On most tables it lowers both the mean and the worst
   slices (docs/results/measures), so a few records with a doubtful difference do not speak against it.
3. The loss at a group size, if it surely lowers the loss of its worst group and its mean loss is at most 5 % above
   that of plain averaging; the first such.
4. Otherwise plain averaging.

What was chosen is tried at a third of its rate too. That rate is recommended where it surely lowers the mean loss,
and by more than 1 %: then the plan's own rate makes models too sure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedfair.fairness.record_losses import Losses
from fedfair.studies.advice.choice import ERRORS, MARGIN
from fedfair.studies.advice.document import AdviceTrials, Recommendation, TriedSetting
from fedfair.studies.advice.figures import standard_error

MATERIAL = 0.02
"""Up to this part of the mean loss, the excess may cost more than plain averaging."""

LEAST_GAIN = 0.01
"""By less than this part of the base rate's loss a model is no better: a constant can have that by chance."""

PRICE = 0.05
"""Up to this part of the mean loss, the protection of a worst group by loss may cost."""

FASTER = 0.01
"""A lower rate lowers the mean loss by more than this part, or is not recommended."""


def chosen_place(tried: Sequence[TriedSetting]) -> int | None:
    """Return the place of the setting to recommend; None where none is of use.

    Args:
        tried: plain averaging first; a setting at a lower rate only where that is better (`is_lower`).
    """
    plain = tried[0].held_out.mean
    useful = [(place, one) for place, one in enumerate(tried) if _is_useful(one)]
    found = next((place for place, one in useful if one.measure == "excess" and not _costs(one, plain)), None)
    if found is None:
        found = next((place for place, one in useful if one.measure == "loss" and _protects(one, plain)), None)
    if found is None:
        found = next((place for place, one in useful if is_plain(one)), None)
    if found is None:
        return useful[0][0] if useful else None
    return next((place for place, one in useful if _is_slower(one, tried[found])), found)


def recommended(trials: AdviceTrials, plan_size: float, guess: float | None) -> Recommendation | None:
    """Return the chosen setting as a recommendation; None where none is.

    Args:
        trials: with its choice.
        plan_size: the group size that reports of a plain training keep.
        guess: the loss of the uniform guess; None where that has no meaning.
    """
    if trials.chosen is None:
        return None
    found = trials.tried[trials.chosen]
    size = plan_size if is_plain(found) else found.worst_group_size
    group = found.held_out.group(size) if size < 1.0 else None
    limit = None if guess is None else guess * (1.0 - MARGIN)
    return Recommendation(
        worst_group_size=size,
        tradeoff=found.tradeoff,
        kind="plain" if is_plain(found) else "protect",
        sure=limit is not None and group is not None and group.worst + ERRORS * group.error < limit,
        measure=found.measure,
        learning_rate=found.learning_rate,
    )


def is_plain(tried: TriedSetting) -> bool:
    """Return whether a setting is plain average training."""
    return tried.worst_group_size == 1.0


def is_lower(slower: Sequence[Losses], usual: Sequence[Losses]) -> bool:
    """Return whether a lower rate surely lowers the mean of the same records' losses, fold after fold."""
    one, other = (np.concatenate([losses.values for losses in each]) for each in (slower, usual))
    gain = other - one
    return bool(gain.mean() > max(ERRORS * standard_error(gain), FASTER * other.mean()))


def beats_base_rate_surely(tried: TriedSetting) -> bool:
    """Return whether the mean loss is below the base rate's by two standard errors; also where that is unknown."""
    return tried.base_gain is None or tried.base_gain > ERRORS * (tried.base_gain_error or 0.0)


def _is_useful(tried: TriedSetting) -> bool:
    return tried.base_gain is None or tried.base_gain > LEAST_GAIN * (tried.held_out.mean + tried.base_gain)


def _costs(tried: TriedSetting, plain: float) -> bool:
    return tried.mean_cost > max(ERRORS * tried.mean_cost_error, MATERIAL * plain)


def _protects(tried: TriedSetting, plain: float) -> bool:
    gains = tried.worst_gain > ERRORS * tried.worst_gain_error
    return not is_plain(tried) and gains and tried.mean_cost <= PRICE * plain


def _is_slower(tried: TriedSetting, usual: TriedSetting) -> bool:
    same = (tried.measure, tried.worst_group_size, tried.tradeoff)
    return tried.learning_rate is not None and same == (usual.measure, usual.worst_group_size, usual.tradeoff)
