"""Records in one place, for the references that no federation can train: what they train on, and who owned it.

A `PooledClients` trains on everybody's records as one collaborator and evaluates every collaborator by itself, so
that a reference has the result file of a federated run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.fairness.record_losses import SiteLosses
from fedfair.fairness.simplex import Vector
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.simulation.clients import Clients, LocalChanges
from fedfair.tables.dataset import Dataset, pooled_features

POOLED = ParticipantId("pooled")
"""Under this name the pooled records draw their batches."""


def pool(records: Iterable[Dataset]) -> Dataset:
    """Return everybody's records as one data set, in their order, without the raw columns."""
    held = list(records)
    return Dataset(pooled_features(held), np.concatenate([data.labels for data in held]), held[0].schema)


def pooled_losses(cohort: Clients, model: GlobalModel) -> Vector:
    """Return the losses of everybody's training records, in the order in which they are pooled: array (n,).

    They are in units of the local steps.
    """
    held = [site["train"].values for site in cohort.losses(model, ("train",)) if "train" in site]
    return np.concatenate(held) / cohort.loss_unit


class PooledClients:
    """A cohort of one when it trains, and of everybody when it is evaluated.

    Args:
        sites: everybody with its own records.
        pooled: one collaborator with the training records of all, in the same order.
    """

    def __init__(self, sites: Clients, pooled: Clients) -> None:
        self._sites = sites
        self._pooled = pooled

    @property
    def names(self) -> tuple[ParticipantId, ...]:
        """Return whose records they are."""
        return self._sites.names

    @property
    def counts(self) -> NDArray[np.int64]:
        """Return how many training records there are in all: array (1,)."""
        return self._pooled.counts

    @property
    def weights(self) -> NDArray[np.float64]:
        """Return the weight of the pooled records: array (1,)."""
        return self._pooled.weights

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
        """Scale everybody's features, and the pooled ones."""
        self._sites.apply_scaling(scaling)
        self._pooled.apply_scaling(scaling)

    def changes(
        self,
        model: GlobalModel,
        number: RoundNumber,
        *,
        members: Sequence[int] | None = None,
        thresholds: NDArray[np.float64] | None = None,
        steps: int | None = None,
        record_weights: Sequence[NDArray[np.floating]] | None = None,
    ) -> LocalChanges:
        """Return what a round's steps on the pooled records change; see `Clients.changes`."""
        return self._pooled.changes(
            model, number, members=members, thresholds=thresholds, steps=steps, record_weights=record_weights
        )

    def losses(self, model: GlobalModel, splits: Collection[str] = SPLITS) -> list[SiteLosses]:
        """Return the losses of the model at each collaborator, by split."""
        return self._sites.losses(model, splits)
