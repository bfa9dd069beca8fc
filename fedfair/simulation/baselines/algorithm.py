"""The interface of a federated algorithm: a training round over a cohort.

FedSRCVaR and FedAvg need nothing but a weighted sum, which the training run itself takes in simulation and
deployment alike; they have no `Algorithm`. The others need more than such a sum may tell, and so run in simulation
only; what each must reveal is stated in `fedfair.plan.algorithms`.
"""

from __future__ import annotations

from typing import Protocol

from fedfair.aggregation.requests import GlobalModel
from fedfair.ids import RoundNumber
from fedfair.simulation.clients import Clients


class Algorithm(Protocol):
    """A training round that a weighted sum cannot carry; it may keep a state of its own between rounds."""

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Return the model after this round; `model` itself stays as it was."""
