"""Delta-FL: only the collaborators in the worst share, by their losses, are averaged.

    min over theta of the superquantile over collaborators of F_k(theta), at level 1 - share, masses p_k

A share of 1 is FedAvg; a small one follows the worst collaborator. The objective and the weights are those of
Laguel, Pillutla, Malick and Harchaoui 2021, "A Superquantile Approach to Federated Learning with Heterogeneous
Devices" (CISS): the weights maximise the mean loss among all pi with 0 <= pi_k <= p_k / share and sum 1. So the
collaborator at the quantile counts with the fraction of it that belongs to the share, and a step of all is a
subgradient step of the superquantile. Delta-FL is the later name of the method: Pillutla, Laguel, Malick and
Harchaoui 2024, "Federated Learning with Superquantile Aggregation for Heterogeneous Data" (Machine Learning 113).

What those authors run is another rule, the filter of their program simplicial-fl: it averages every collaborator
whose loss is at least the quantile, weighed by p_k, and so counts the one at the quantile in full. The two agree
where the share is made of whole collaborators. The filter is not implemented here, because it is no subgradient of
the objective elsewhere.
"""

from __future__ import annotations

from fedfair.aggregation.requests import GlobalModel
from fedfair.fairness.superquantile_weights import worst_weights
from fedfair.ids import RoundNumber
from fedfair.simulation.baselines.cohort_queries import mean_losses, moved, present, shares
from fedfair.simulation.clients import AskedSteps, Clients


class SuperquantileOverCollaborators:
    """The rounds of Delta-FL.

    Args:
        worst_share: how much of the collaborators' weight is averaged, in (0, 1] (theta in the paper).
    """

    def __init__(self, worst_share: float) -> None:
        self._worst_share = worst_share

    def round(self, cohort: Clients, model: GlobalModel, number: RoundNumber) -> GlobalModel:
        """Average the local steps of those who are in the worst share at the broadcast model."""
        members = present(cohort)
        losses = mean_losses(cohort, model, members)
        weights = worst_weights(losses, shares(cohort, members), self._worst_share)
        asked = [member for member, weight in zip(members, weights, strict=True) if weight > 0]
        changes = cohort.changes(model, AskedSteps(number, asked))
        return moved(model, weights[weights > 0] @ changes)
