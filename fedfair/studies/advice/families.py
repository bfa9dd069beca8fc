"""Fits a plan's family of models for any group size and tradeoff, on all folds but one at a time.

A linear model is fitted by a convex solver on pooled records, so that its curve is that of the family. Any other
model is trained by simulated rounds of the plan, on every collaborator's own records, so that its curve is that of
the optimiser too. Which records are in a fold is `folds.py`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedfair.errors import FedfairError
from fedfair.fairness.linear_design import Array, LinearDesign, linear_design
from fedfair.fairness.linear_fit import fit_linear, linear_losses
from fedfair.fairness.record_losses import Losses
from fedfair.ids import ParticipantId
from fedfair.plan.algorithms import OptionsSection
from fedfair.plan.learning_rates import stated_threshold_rate
from fedfair.plan.schema import Plan
from fedfair.run.saved_model import without_noise
from fedfair.simulation.linear_family import Features, scaled, standardised_columns
from fedfair.simulation.simulate import simulate_sites
from fedfair.studies.advice.figures import FoldLosses
from fedfair.studies.advice.folds import pooled_folds, site_folds
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import objective_of


class ModelFamily(Protocol):
    """A family of models that can be fitted to the records outside a fold, of which there are `folds`."""

    folds: int

    def fit(self, fold: int, group_size: float, tradeoff: float) -> FoldLosses:
        """Return the losses of the model that is fitted without one fold.

        Args:
            fold: which records are held out, from 0.
            group_size: rho, in (0, 1].
            tradeoff: epsilon, in [0, 1]; 1 is plain average training.
        """


class SolvedLinearModels:
    """Linear models at the optimum of the objective over pooled records.

    Args:
        records: the pooled training and validation records.
        folds: how many parts, each held out once, at least 2.
        seed: of the parts.
    """

    def __init__(self, records: Dataset, folds: int, seed: int) -> None:
        self._parts, self.folds = pooled_folds(records, folds, seed), folds
        self._classes = records.schema.classes
        self._fold = -1
        self._train: tuple[Features, NDArray[np.int64]]
        self._held_out: tuple[Features, NDArray[np.int64]]
        self._design: LinearDesign
        self._ends: dict[float, Array] = {}

    def fit(self, fold: int, group_size: float, tradeoff: float) -> FoldLosses:
        """Return the losses of the optimum; it is found from the last one of the same size on."""
        if fold != self._fold:
            self._enter(fold)
        start = self._ends.get(group_size, self._ends.get(1.0))
        # The products are too small to share between threads: on a busy machine they would wait for each other.
        with threadpool_limits(1):
            self._ends[group_size] = end = fit_linear(self._design, group_size, tradeoff, start=start)
            return FoldLosses(self._losses(end, *self._train), self._losses(end, *self._held_out))

    def _enter(self, fold: int) -> None:
        train, held_out = self._parts[fold]
        scaling = standardised_columns(train)
        self._train = scaled(train, scaling), train.labels
        self._held_out = scaled(held_out, scaling), held_out.labels
        self._design = linear_design(*self._train, self._classes)
        self._ends, self._fold = {}, fold

    def _losses(self, end: Array, features: Features, labels: NDArray[np.int64]) -> Losses:
        values, predictions = linear_losses(end, self._design, features, labels)
        return Losses(values, labels, predictions)


class TrainedModels:
    """Models trained by simulated rounds of the plan.

    Args:
        plan: the plan.
        sites: the records of all sites; test records are not looked at.
        root: the workspace.
        folds: how many parts of each collaborator's records, each held out once, at least 2.
        rounds: training rounds of each model.
    """

    def __init__(
        self, plan: Plan, sites: Mapping[ParticipantId, Splits], root: Path, folds: int, rounds: int
    ) -> None:
        self._plan = plan
        self._root = root
        self._rounds = rounds
        self._parts, self.folds = site_folds(sites, folds, plan.training.seed), folds

    def fit(self, fold: int, group_size: float, tradeoff: float) -> FoldLosses:
        """Return the losses of the model after the last round."""
        varied = varied_plan(self._plan, group_size, tradeoff, self._rounds)
        try:
            outcome = simulate_sites(varied, self._parts[fold], self._root)
        except FedfairError as fault:
            place = f"training for the worst {group_size:g} with tradeoff {tradeoff:g}"
            raise type(fault)(f"{place}: {fault.message}", fault.remedy) from fault
        sites = outcome.losses.values()
        return FoldLosses(
            Losses.joined([site["train"] for site in sites if "train" in site]),
            Losses.joined([site["test"] for site in sites if "test" in site]),
        )


def varied_plan(plan: Plan, group_size: float, tradeoff: float, rounds: int) -> Plan:
    """Return the plan of one model: of the loss, in the clear, without noise, with a stable threshold."""
    keys = {"worst_group_size": group_size, "tradeoff": tradeoff, "measure": "loss", "reference": None}
    objective = plan.objective.model_copy(update=keys)
    changed = {"algorithm": "fedsrcvar", "rounds": rounds, "options": OptionsSection()}
    training = plan.training.model_copy(update=changed)
    evaluation = plan.evaluation.model_copy(update={"every": rounds, "site_means": False, "method": "histogram"})
    sums = plan.secure_aggregation.model_copy(update={"mode": "off"})
    varied = without_noise(plan).model_copy(
        update={
            "objective": objective,
            "training": training,
            "evaluation": evaluation,
            "secure_aggregation": sums,
        }
    )
    limit = objective_of(varied).stable_threshold_learning_rate
    if stated_threshold_rate(varied) <= limit:
        return varied
    return varied.model_copy(update={"training": training.model_copy(update={"threshold_learning_rate": limit})})
