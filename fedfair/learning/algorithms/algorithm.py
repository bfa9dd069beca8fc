"""What every federated algorithm is: a training round over a cohort.

FedSRCVaR and FedAvg need nothing but a weighted sum, which the course itself takes in simulation and deployment
alike; they have no `Algorithm`. The others need more than a sum may tell, and so run in simulation only.
"""

from __future__ import annotations

from typing import Protocol

from fedfair.ids import RoundNumber
from fedfair.learning.cohort import Cohort
from fedfair.learning.exchange import GlobalModel
from fedfair.plan.schema import Plan


class Algorithm(Protocol):
    """A training round that a weighted sum cannot carry; it may keep a state of its own between rounds."""

    def round(self, cohort: Cohort, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Return the model after this round; `model` itself stays as it was."""


def algorithm_of(plan: Plan) -> Algorithm | None:  # noqa: ARG001  # the sums of today's algorithms need no plan
    """Return what makes the training rounds of a plan; None where weighted sums do."""
    return None
