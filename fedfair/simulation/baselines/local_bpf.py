"""Local BPF: every collaborator looks for the worst group among its own records, with a threshold of its own.

    min over theta of sum p_k min over c_k of mean over the records of k of f(theta, c_k)

with f the smoothed objective of FedSRCVaR. The adversary is weaker than that of one shared threshold: it must
take the same share from every collaborator. The reported threshold is the mean of all. Source: Section 3.2 and
Appendix A.1 of the FedSRCVaR paper ("assigning the same rho across clients"); blind Pareto fairness is Martinez
et al. 2021.
"""

from __future__ import annotations

import numpy as np

from fedfair.aggregation.requests import GlobalModel
from fedfair.fairness.simplex import Vector
from fedfair.ids import RoundNumber
from fedfair.simulation.baselines.cohort_queries import moved, present, shares
from fedfair.simulation.clients import Clients


class LocalThresholds:
    """The rounds of local BPF.

    Args:
        loss_bound: upper end of every threshold; infinity for none.

    Attributes:
        thresholds: c_k, float64 array (collaborators with records,); None before the first round.
    """

    def __init__(self, loss_bound: float) -> None:
        self._loss_bound = loss_bound
        self.thresholds: Vector | None = None

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Make everybody's local steps from the shared model and the threshold that each has kept."""
        members = present(cohort)
        share = shares(cohort, members)
        levels = np.full(len(members), model.threshold) if self.thresholds is None else self.thresholds
        changes = cohort.changes(model, number, members=members, thresholds=levels)
        self.thresholds = np.clip(levels + changes.thresholds, 0.0, self._loss_bound)
        return moved(model, share @ changes.models, float(share @ self.thresholds))
