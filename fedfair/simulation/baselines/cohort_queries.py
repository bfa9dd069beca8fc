"""Queries that several algorithms put to a cohort, in the form in which they use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fedfair.aggregation.requests import GlobalModel
from fedfair.fairness.simplex import Vector
from fedfair.ids import RoundNumber
from fedfair.simulation.clients import Clients


def adversary_acts(number: RoundNumber, interval: int) -> bool:
    """Return whether an adversary that looks at the losses every `interval` rounds, from the first, looks now."""
    return (number - 1) % interval == 0


def present(cohort: Clients) -> list[int]:
    """Return the collaborators that have training records, in their order."""
    return [int(member) for member in np.flatnonzero(cohort.counts)]


def shares(cohort: Clients, members: Sequence[int]) -> Vector:
    """Return the members' weights as shares of their sum (p): array (members,)."""
    weights: Vector = cohort.weights[members]
    return weights / float(weights.sum())


def moved(model: GlobalModel, step: Vector) -> GlobalModel:
    """Return the model after a step (d,), in its own width; the one before stays as it is."""
    return GlobalModel((model.vector + step).astype(model.vector.dtype), model.threshold)


def training_losses(cohort: Clients, model: GlobalModel, members: Sequence[int]) -> list[Vector]:
    """Return the losses of each member's training records, in units of the local steps: arrays (n_k,)."""
    found = cohort.losses(model, ("train",))
    return [found[member]["train"].values / cohort.loss_unit for member in members]


def mean_losses(cohort: Clients, model: GlobalModel, members: Sequence[int]) -> Vector:
    """Return the mean training loss of each member, in units of the local steps (F): array (members,)."""
    return np.array([values.mean() for values in training_losses(cohort, model, members)])


class Algorithm(Protocol):
    """A training round that a weighted sum cannot carry; it may keep a state of its own between rounds."""

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Return the model after this round; `model` itself stays as it was."""
