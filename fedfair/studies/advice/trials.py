"""Trials: settings of a plan, each trained by the plan's own simulated rounds and judged on records it never saw.

So what advice says of a setting is what a run of the plan reaches by it: with its rounds and rates, its clipping
and noise, and the model that it returns. Where the plan holds validation records out, every fold does, by the same
share. Test records have no part in it.

Decides which settings are tried, on which records, and how many folds; which is recommended is `trial_choice.py`'s
business. A trial that ends with an error has no figures, and is not recommended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import FedfairError
from fedfair.fairness.cvar import cvar
from fedfair.fairness.record_losses import Losses
from fedfair.ids import ParticipantId
from fedfair.plan.derived import guess_loss
from fedfair.plan.schema import Plan
from fedfair.simulation.simulate import simulate_sites
from fedfair.studies.advice.base_rate import base_losses
from fedfair.studies.advice.document import AdviceTrials, TriedSetting
from fedfair.studies.advice.figures import held_figures, promised_figures, standard_error, worst_terms
from fedfair.studies.advice.folds import drawn_sites, trial_folds
from fedfair.studies.advice.settings import (
    EXCESS,
    LOSS,
    PLAIN,
    AdvisedSetting,
    may_try_excess,
    plan_with,
    rate_of,
    setting_of,
)
from fedfair.studies.advice.trial_choice import chosen_place, is_lower
from fedfair.tables.dataset import Splits

SIZES = (0.1, 0.2, 0.3, 0.5)
LOWER_RATE, OVERFIT = 1 / 3, 0.1
"""A setting is tried at this part of its rate where its held-out mean is so much above that of its training."""


@dataclass(frozen=True, slots=True)
class TrialRecords:
    """The records of trials.

    Attributes:
        most: records of all sites together; where there are more, a random share of each site's.
        parts: into how many parts they are divided, at least 2.
        folds: how many of the parts are held out, one after the other; the fewer, the quicker.
        few: below so many records, errors are large and trainings no longer.
        folds_of_few: how many parts are held out then.
        sites: at most so many train, drawn at random: each makes a trial take longer.
    """

    most: int
    parts: int
    folds: int
    few: int
    folds_of_few: int
    sites: int


THOROUGH = TrialRecords(50_000, 5, 3, few=5_000, folds_of_few=5, sites=30)
QUICK = TrialRecords(3_000, 4, 2, few=600, folds_of_few=3, sites=8)


@dataclass(frozen=True, slots=True)
class _Tried:
    """The losses of a setting, fold after fold."""

    setting: AdvisedSetting
    train: tuple[Losses, ...]
    held_out: tuple[Losses, ...]
    untrained: int


class Trials:
    """Trials of a plan on the records of all sites.

    Args:
        plan: whose training is tried.
        sites: the records of all sites, or of those that are here.
        root: the workspace, where the plan's code is.
        used: which records, and how many folds.

    Raises:
        DataError: there are too few records for so many parts.
    """

    def __init__(
        self,
        plan: Plan,
        sites: Mapping[ParticipantId, Splits],
        root: Path,
        used: TrialRecords,
    ) -> None:
        self._plan, self._root = plan, root
        folds = trial_folds(
            drawn_sites(sites, used.sites, plan.training.seed), used.most, used.parts, plan.training.seed
        )
        self.records = sum(site.records for site in folds[0].values())
        self.parts, self.folds = used.parts, used.folds_of_few if self.records < used.few else used.folds
        self._folds = folds[: self.folds]
        self._classes = next(iter(sites.values())).train.schema.classes
        self._plain: _Tried
        self._all: list[_Tried] = []
        self._base: NDArray[np.float64] | None = None
        self._on_trial: Callable[[], None]

    def count(self, candidates: Sequence[AdvisedSetting]) -> int:
        """Return how many trainings there are at most: with plain averaging, and lower rates."""
        return self.folds * (len(set(candidates)) + 3)

    def made(
        self, candidates: Sequence[AdvisedSetting], on_trial: Callable[[], None] = lambda: None
    ) -> AdviceTrials:
        """Return what plain averaging, each candidate, and the best one at a lower rate reach.

        Args:
            candidates: settings.
            on_trial: called after every training.

        Raises:
            FedfairError: plain averaging itself ends with an error.
        """
        self._on_trial = on_trial
        self._plain = plain = self._trained(PLAIN)
        tried = [plain, *filter(None, map(self._try, dict.fromkeys(candidates)))]
        figures = [self._figures(one) for one in tried]
        best = chosen_place(figures)
        if best == 0 and all(one.setting.measure == "excess" for one in tried[1:]):
            # Where the excess costs too much, a group may still be protected by the loss.
            by_loss = self._try(LOSS)
            if by_loss is not None:
                tried, figures = [*tried, by_loss], [*figures, self._figures(by_loss)]
                best = chosen_place(figures)
        # Where no setting is of use, the rate may be the reason.
        for place in [best] if best is not None else [*range(min(len(tried), 2))]:
            usual = tried[place]
            slower = self._try(_slower(self._plan, usual.setting)) if _is_too_sure(figures[place]) else None
            if slower is not None and is_lower(slower.held_out, usual.held_out):
                figures.append(self._figures(slower))
        return AdviceTrials(
            rounds=self._plan.training.rounds,
            folds=self.folds,
            parts=self.parts,
            records=self.records,
            base_rate=None if self._base is None else float(self._base.mean()),
            tried=tuple(figures),
            chosen=chosen_place(figures),
        )

    def _try(self, setting: AdvisedSetting) -> _Tried | None:
        try:
            return self._trained(setting)
        except FedfairError:
            # Training left the finite numbers, say: that setting is none to recommend.
            return None

    def _trained(self, setting: AdvisedSetting) -> _Tried:
        plan = _cheaper(plan_with(self._plan, setting))
        outcomes = []
        for fold in self._folds:
            outcomes.append(simulate_sites(plan, fold, self._root, asks_family=False))
            self._on_trial()
        losses = [[*outcome.losses.values()] for outcome in outcomes]
        if setting == PLAIN:
            self._base = self._base_of([[*outcome.losses] for outcome in outcomes])
        found = _Tried(
            setting,
            tuple(Losses.joined([site["train"] for site in fold if "train" in site]) for fold in losses),
            tuple(Losses.joined([site["test"] for site in fold if "test" in site]) for fold in losses),
            sum(one.result.model is not None and one.result.model.round == 0 for one in outcomes),
        )
        self._all.append(found)
        return found

    def _base_of(self, order: Sequence[Sequence[ParticipantId]]) -> NDArray[np.float64] | None:
        """Return the loss of every held-out record by the base rate of its fold, sites in order.

        Where the uniform guess is better, it is that: the shares of a few training records may be far from others.
        """
        found = []
        for fold, names in zip(self._folds, order, strict=True):
            train = np.concatenate([fold[name].train.labels for name in names])
            tests = [fold[name].test for name in names]
            held_out = np.concatenate([test.labels for test in tests if test is not None])
            losses = base_losses(self._plan.task.loss, train, held_out, self._classes)
            if losses is None:
                return None
            found.append(losses)
        base, guess = np.concatenate(found), guess_loss(self._plan, self._classes)
        return base if guess is None or base.mean() <= guess else np.full_like(base, guess)

    def _figures(self, tried: _Tried) -> TriedSetting:
        setting = tried.setting
        sizes = {*SIZES, self._plan.objective.worst_group_size, setting.worst_group_size}
        own, plain = (np.concatenate([one.values for one in each.held_out]) for each in (tried, self._plain))
        size = EXCESS.worst_group_size if setting.is_plain else setting.worst_group_size
        base = self._base
        reported = sorted(one for one in sizes if one < 1.0)
        others = [one.held_out for one in self._all if one is not tried]
        return TriedSetting(
            measure=setting.measure,
            worst_group_size=setting.worst_group_size,
            tradeoff=setting.tradeoff,
            learning_rate=setting.learning_rate,
            held_out=promised_figures(tried.held_out, reported, others),
            train=held_figures(tried.train, reported),
            mean_cost=float((own - plain).mean()),
            mean_cost_error=standard_error(own - plain),
            worst_gain=cvar(plain, size) - cvar(own, size),
            worst_gain_error=standard_error(worst_terms(plain, size) - worst_terms(own, size)),
            base_gain=None if base is None else float((base - own).mean()),
            base_gain_error=None if base is None else standard_error(base - own),
            untrained=tried.untrained,
        )


def usual_candidates(plan: Plan) -> tuple[AdvisedSetting, ...]:
    """Return what is tried beside plain averaging: the excess, or a loss where that cannot be; the plan's own."""
    own, usual = setting_of(plan), EXCESS if may_try_excess(plan) else LOSS
    return (usual,) if own in {PLAIN, usual} else (usual, own)


def _is_too_sure(figures: TriedSetting) -> bool:
    """Return whether a lower rate may help: held-out records fare materially worse than those of the training."""
    return figures.held_out.mean > (1.0 + OVERFIT) * figures.train.mean


def _slower(plan: Plan, setting: AdvisedSetting) -> AdvisedSetting:
    rate = float(f"{LOWER_RATE * rate_of(plan_with(plan, setting)):.3g}")
    return AdvisedSetting(setting.measure, setting.worst_group_size, setting.tradeoff, rate)


def _cheaper(plan: Plan) -> Plan:
    """Return the plan without what an evaluation only reports: no model depends on it."""
    return plan.model_copy(
        update={"evaluation": plan.evaluation.model_copy(update={"scores": False, "site_means": False})}
    )
