"""Decides what to try after a run whose model serves the worst group no better than guessing, or is of no use.

Advice follows from what is known, and a change that costs a federation new approvals is not proposed on suspicion:

    the group is smaller than any that a model of this kind can serve, or training is at its optimum:
        a larger group; where the algorithm does not look at the worst group at all, one that does
    the figure still fell at the end:        more rounds
    it rose from what it had reached:        a lower rate, unless that is very low; a schedule that falls
    it is flat, and above the optimum:       a sharper smoothing, a schedule that falls, or more rounds
    it never moved:                          a higher rate
    nothing of that is known:                more evaluations

The group size that is proposed is known to be served better than by guessing: by some model of this kind (where
the critical size is known), by this very model, or by one prediction for all. Where none is known it is a
half.
The words are `verdict_sentences.py`'s. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import (
    is_noised,
    learns_threshold,
    may_measure_excess,
    measures_excess,
    target_is_unscaled,
)
from fedfair.plan.learning_rates import adapts_steps, server_optimizer_of, server_rate
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.results.training_trend import TrainingTrend, Trend
from fedfair.results.verdict import Comparison, Remedy

ROOM = 0.05
"""A group is so much larger than the critical size, for a model has to be learnt; sizes are its multiples."""

LARGEST, USUAL = 0.9, 0.5
"""A group of nearly all records is no worst group but plain training. The usual one is for want of figures."""

LEAST_RATE, TIMES = 1e-3, 10.0
"""No rate below the first is proposed, and none that differs from the plan's by another factor than the second."""


@dataclass(frozen=True, slots=True)
class FamilyFacts:
    """The best that a model of the plan's kind can do on the same records, where all of them are in one place.

    Attributes:
        lowest: below this group size none serves the worst group better than guessing.
        highest: from this size on one does.
        optimum: the least value of what the plan's algorithm minimises, over training records; None where unknown.
    """

    lowest: float
    highest: float
    optimum: float | None = None


_CONSTANT = Remedy(key="training.schedule", wanted="cosine", now="constant")

AskFamily: TypeAlias = Callable[[], FamilyFacts | None]
"""Tells these facts; None where they are not known."""


@dataclass(frozen=True, slots=True)
class RunAdvice:
    """The changes to try, and the reason.

    Attributes:
        remedies: the most promising first.
        size: the group size among them; None where it is not the size.
        proved: whether that size is known to be served better than by guessing.
        too_small: whether no model of this kind serves the plan's worst group better than guessing.
    """

    remedies: tuple[Remedy, ...]
    size: float | None
    proved: bool
    too_small: bool


def advised(
    plan: Plan, comparison: Comparison, training: TrainingTrend, family: FamilyFacts | None, counts: Sequence[int]
) -> RunAdvice:
    """Return what to try.

    Args:
        plan: the plan of the run.
        comparison: of its model.
        training: how training went.
        family: what is known of all models of its kind; None where nothing is.
        counts: records of each class among those that speak for the model; nothing where they are not known.
    """
    too_small = family is not None and plan.objective.worst_group_size < family.lowest
    size, proved = None, False
    # Flat is near enough, unless the optimum is known to be lower.
    near = training.trend is Trend.OPTIMUM or (training.trend is Trend.FLAT and training.optimum is None)
    if too_small or near:
        size, proved = _larger_size(plan, comparison, family, counts)
        remedies = tuple(_of_aim(plan, size, too_small=too_small))
    else:
        remedies = tuple(_of_training(plan, training))
    if target_is_unscaled(plan) and any(fault.subject == "r_squared" for fault in comparison.faults):
        # Whatever else would help comes after the unit of the target.
        size, proved, remedies = None, False, (_of_target(plan),)
    return RunAdvice(remedies, size, proved, too_small)


def _of_target(plan: Plan) -> Remedy:
    """Return what gives the target a unit in which steps of any plan reach it."""
    if is_noised(plan):
        return Remedy(key="task.loss.target_range", wanted="[least, greatest]", now="null")
    return Remedy(key="task.standardize", wanted="secure", now=plan.task.standardize)


def _larger_size(
    plan: Plan, comparison: Comparison, family: FamilyFacts | None, counts: Sequence[int]
) -> tuple[float | None, bool]:
    """Return the group size to try, and whether it is known to be served; None where it is not the size."""
    now = plan.objective.worst_group_size
    if measures_excess(plan):
        # No luck is in the excess, so no size is too small for it.
        return None, False
    known = [] if family is None else [_rounded(family.highest + ROOM)]
    if comparison.served is not None and comparison.served.sizes.served_from is not None:
        known.append(_rounded(comparison.served.sizes.served_from))
    if counts:
        # One prediction for all serves every group in which the rarest class cannot have its equal part.
        known.append(_rounded(len(counts) * min(counts) / sum(counts)))
    # A size that some model serves, and this one does not, is no advice to it.
    size = min((each for each in known if each > now), default=1.0)
    if size <= LARGEST:
        return size, True
    return (USUAL, False) if family is None and now < USUAL else (None, False)


def _rounded(size: float) -> float:
    """Return the next multiple of `ROOM` above a size."""
    return round((math.floor(size / ROOM + 1e-9) + 1) * ROOM, 2)


def _of_aim(plan: Plan, size: float | None, *, too_small: bool) -> Iterator[Remedy]:
    algorithm, now = plan.training.algorithm, plan.objective.worst_group_size
    follows = ALGORITHMS[algorithm].threshold
    if not follows and not too_small:
        yield Remedy(key="training.algorithm", wanted="fedsrcvar", now=algorithm)
    if size is not None:
        yield Remedy(key="objective.worst_group_size", wanted=f"{size:.4g}", now=f"{now:.4g}")
        if may_measure_excess(plan):
            # It protects a group of the plan's own size, of those that features define.
            yield Remedy(key="objective.measure", wanted="excess", now="loss")
    elif follows and too_small:
        yield Remedy(key="training.algorithm", wanted="fedavg", now=algorithm)


def _of_training(plan: Plan, watched: TrainingTrend) -> Iterator[Remedy]:
    training, smoothing = plan.training, plan.objective.smoothing.name
    smoother = learns_threshold(plan) and smoothing != "zang"
    match watched.trend:
        case Trend.STILL:
            yield _rate(plan, TIMES)
        case Trend.RISING:
            if _present_rate(plan) / TIMES >= LEAST_RATE:
                yield _rate(plan, 1.0 / TIMES)
            if training.schedule == "constant":
                yield _CONSTANT
        case Trend.FLAT if smoother:
            yield Remedy(key="objective.smoothing.name", wanted="zang", now=smoothing)
        case Trend.FLAT if training.schedule == "constant":
            yield _CONSTANT
        case Trend.FALLING | Trend.FLAT:
            yield Remedy(key="training.rounds", wanted=str(2 * training.rounds), now=str(training.rounds))
        case _ if watched.end is not None:
            yield from _more_evaluations(plan)


def _more_evaluations(plan: Plan) -> Iterator[Remedy]:
    every, now = max(plan.training.rounds // 10, 1), schedule_of(plan).every
    if every < now:
        yield Remedy(key="evaluation.every", wanted=str(every), now=str(now))


def _present_rate(plan: Plan) -> float:
    return server_rate(plan) if adapts_steps(plan) else plan.training.learning_rate


def _rate(plan: Plan, times: float) -> Remedy:
    """Return another rate: the server's where its steps adapt, because the sites' then decides nothing."""
    rate = _present_rate(plan)
    if not adapts_steps(plan):
        return Remedy(key="training.learning_rate", wanted=f"{rate * times:.4g}", now=f"{rate:.4g}")
    name = server_optimizer_of(plan).name
    wanted = f"{{name: {name}, learning_rate: {rate * times:.4g}}}"
    return Remedy(key="training.server_optimizer", wanted=wanted, now=f"{name} at {rate:.4g}")
