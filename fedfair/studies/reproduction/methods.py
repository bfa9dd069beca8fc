"""The compared methods: how each is written as a plan, and what its own validation records choose it by.

FedAvg makes `local_epochs` passes over its records in a round, as the paper runs it; every other method makes one
step a round. The centralised references see the pooled records: ERM draws as many in a step as the whole
federation does, and the adversaries of DRO and BPF answer the losses of a large batch exactly in every step.

Every method's learning rate falls to nothing over its rounds in equal steps; two rows train as a plan that says
nothing. Each is chosen by its own objective: by the worst-group risk, methods that minimise the mean would be
chosen for having learnt nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import TypeAdapter

from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from fedfair.plan.algorithms import ALGORITHMS, AlgorithmName
from fedfair.plan.schema import Plan
from fedfair.studies.reproduction.study import Followed, Size, Study, Values

EPOCH_BATCH = 128
"""FedAvg's batches, as the paper states them."""

LOOKS = 20
"""Evaluations of a plan's default steps, whose best model is returned; the other methods return their last."""

GAMMA = 0.05
"""Width of every smoothing, as the paper states it."""


class ChosenBy(enum.StrEnum):
    """The figure of validation records by which a method's candidate is chosen: the least one."""

    OBJECTIVE = "objective"
    """(1 - tradeoff) worst-group risk + tradeoff mean; the worst-group risk where the tradeoff is about 0."""
    EXCESS = "excess"
    """The same of the excess over references."""
    MEAN = "mean"
    WORST_COLLABORATOR = "worst collaborator"
    WORST_GROUP = "worst group that is known"
    """That of the worst collaborator where these are the groups, else the mean: a result has no loss by group."""


@dataclass(frozen=True, slots=True)
class Variation:
    """A run's own values of what a method varies.

    Attributes:
        learning_rate: of the model, in the first round; None for a plan's default steps.
        group_size: what is trained for, where the method knows it.
        tradeoff: between the worst group and the mean; None where the method has none.
        local_steps: steps in a round.
        adversary_rate: of an adversary that makes steps; None where there is none.
    """

    learning_rate: float | None
    group_size: float
    tradeoff: float | None = None
    local_steps: int = 1
    adversary_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the comparison.

    Attributes:
        name: its name in results.
        label: its name in figures.
        algorithm: its name in plans.
        criterion: what chooses among its candidates.
        measure: what its objective measures of a record.
        default_steps: it makes the steps of a plan that states none, not plain ones at rates that are tried.
        smoothed: the smooth plus function of its objective; None where it has no threshold, or a plan's default.
        knows_group_size: it is trained for a group size.
        has_tradeoff: it has a tradeoff between the worst group and the mean.
        knows_groups: whether it knows the groups.
        adversary_steps: an adversary over collaborators or groups looks at all losses and makes steps.
        answers_batches: an adversary over records answers the losses of every batch exactly.
        pooled: it trains on pooled records.
        by_epochs: it makes passes over the records instead of steps.
        in_paper: whether the paper's tables have a row of it.
    """

    name: str
    label: str
    algorithm: AlgorithmName
    criterion: ChosenBy
    measure: Literal["loss", "excess"] = "loss"
    default_steps: bool = False
    smoothed: str | None = None
    knows_group_size: bool = False
    has_tradeoff: bool = False
    knows_groups: bool = False
    adversary_steps: bool = False
    answers_batches: bool = False
    pooled: bool = False
    by_epochs: bool = False
    in_paper: bool = True

    def rates(self, size: Size) -> tuple[float | None, ...]:
        """Return which learning rates are tried."""
        if self.default_steps:
            return (None,)
        followed: Followed = "tails" if self.knows_group_size else "means"
        return size.rates["epochs" if self.by_epochs else followed]

    def changes(self, study: Study, size: Size, setting: Variation, base: Plan) -> Values:
        """Return what this method changes in a study's base plan.

        Args:
            study: the study.
            size: how much of it is run.
            setting: what this run varies.
            base: the base plan.
        """
        objective: dict[str, object] = {"measure": self.measure}
        if self.measure == "excess":
            objective["reference"] = study.reference
        if self.knows_group_size:
            objective["worst_group_size"] = setting.group_size
        if self.has_tradeoff and setting.tradeoff is not None:
            objective["tradeoff"] = setting.tradeoff
        if self.smoothed is not None:
            objective["smoothing"] = {"name": self.smoothed, "gamma": GAMMA}
        changed: Values = {"training": self._training(study, size, setting, base), "objective": objective}
        # The best of the evaluated models is a plan's default.
        often: Values = {"evaluation": {"every": max(1, size.rounds // LOOKS)}}
        return {**changed, **often} if self.default_steps else changed

    def _training(self, study: Study, size: Size, setting: Variation, base: Plan) -> Values:
        # As many local steps in all, however many a round has.
        training: dict[str, object] = {
            "algorithm": self.algorithm,
            "rounds": max(1, size.rounds // setting.local_steps),
            "local_steps": setting.local_steps,
            **self._steps(setting),
        }
        if self.by_epochs:
            training |= {"rounds": size.epoch_rounds, "local_epochs": size.local_epochs, "batch_size": EPOCH_BATCH}
        if self.pooled:
            training["batch_size"] = size.answered if self.answers_batches else _full_step_batch(base)
        options: dict[str, object] = {}
        if self.answers_batches:
            options["best_response"] = "batch"
        if self.adversary_steps:
            # The theory of these methods speaks of the mean of the models; the last one swings with the adversary.
            training["output"] = "tail"
            options |= {"adversary_interval": size.adversary_interval}
            options |= {"adversary_learning_rate": setting.adversary_rate}
        if self.knows_groups and study.group_column is not None:
            options["group_column"] = study.group_column
        return {**training, "options": options}

    def _steps(self, setting: Variation) -> dict[str, object]:
        """Return how steps are made: plainly, or as by a plan that does not say."""
        if setting.learning_rate is None:
            return {}
        # An adaptive step for some of them would not compare their objectives.
        plain = {"name": "sgd"} if ALGORITHMS[self.algorithm].mean_of_changes else None
        steps: dict[str, object] = {
            "learning_rate": setting.learning_rate,
            "schedule": "linear",
            "warm_up": 0.0,
            "server_optimizer": plain,
            "output": "last",
        }
        if self.smoothed is not None:
            steps["threshold_learning_rate"] = _stable_rate(self.smoothed, setting.learning_rate, setting)
        return steps


def _full_step_batch(base: Plan) -> int | str:
    """Return how many records the federation of a base plan draws in a step of all sites."""
    own = base.training.batch_size
    return own if isinstance(own, str) else own * len(base.federation.collaborators)


def _stable_rate(smoothed: str, learning_rate: float, setting: Variation) -> float:
    """Return the threshold's rate: the model's, or the largest with which plain descent cannot overshoot."""
    stated = Objective(setting.group_size, setting.tradeoff or 0.0, smoothing(smoothed, GAMMA))
    return min(learning_rate, float(f"{stated.stable_threshold_learning_rate:.3g}"))


OURS = "fedsrcvar-zang"
"""The method that the paper's claims are held against: its smoothing has a far smaller bias than the paper's."""


def _methods() -> dict[str, Method]:
    text = files("fedfair.studies.reproduction").joinpath("methods.yaml").read_text(encoding="utf-8")
    rows = TypeAdapter(tuple[Method, ...]).validate_python(yaml.safe_load(text))
    return {method.name: method for method in rows}


METHODS: Mapping[str, Method] = _methods()
"""By name, in the order of the legend."""
