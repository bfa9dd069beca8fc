"""Records in one place, for the references that no federation can train: what they train on, and who owned it.

A `PooledClients` trains on all records as one collaborator and evaluates every collaborator by itself, so
that a reference has the result file of a federated run.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.fairness.record_losses import SiteLosses
from fedfair.fairness.simplex import Vector
from fedfair.ids import ParticipantId
from fedfair.simulation.clients import Clients
from fedfair.tables.dataset import Dataset, pooled_features

POOLED = ParticipantId("pooled")
"""Under this name the pooled records draw their batches."""


def pool(records: Iterable[Dataset]) -> Dataset:
    """Return the records of all collaborators as one data set, in their order, without the raw columns."""
    held = list(records)
    return Dataset(pooled_features(held), np.concatenate([data.labels for data in held]), held[0].schema)


def pooled_losses(cohort: Clients, model: GlobalModel) -> Vector:
    """Return the losses of all training records, in the order in which they are pooled: array (n,).

    They are in units of the local steps.
    """
    held = [site["train"].values for site in cohort.losses(model, ("train",)) if "train" in site]
    return np.concatenate(held) / cohort.loss_unit


class PooledClients:
    """A cohort of one when it trains, and of all when it is evaluated.

    Args:
        sites: all collaborators with their own records.
        pooled: one collaborator with the training records of all, in the same order.
    """

    def __init__(self, sites: Clients, pooled: Clients) -> None:
        self._sites, self._pooled = sites, pooled
        self.names, self.losses = sites.names, sites.losses
        self.counts, self.weights, self.changes = pooled.counts, pooled.weights, pooled.changes

    @property
    def loss_unit(self) -> float:
        """Return how many natural units one loss of the local steps has."""
        return self._sites.loss_unit

    @property
    def last_losses(self) -> list[SiteLosses]:
        """Return what the last evaluation found at each collaborator."""
        return self._sites.last_losses

    def totals(self, request: SumRequest, model: GlobalModel, clip: float | None = None) -> Totals:
        """Return a training sum over the pooled records, and any other over the collaborators."""
        asked = self._pooled if request.purpose.statistic.is_round else self._sites
        return asked.totals(request, model, clip)

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features of all collaborators, and the pooled ones."""
        self._sites.apply_scaling(scaling)
        self._pooled.apply_scaling(scaling)

    def apply_references(self, references: References) -> None:
        """Judge the records of all collaborators, and the pooled ones."""
        self._sites.apply_references(references)
        self._pooled.apply_references(references)
