"""FedMinMax: the adversary's weights of groups that are known by name, as every site replays them.

    min over theta of max over mu in the simplex of sum mu_a R_a(theta)

    mu^1 = rho;  theta <- theta - eta sum over records of (mu_a / rho_a) gradient / n
    mu <- projection of mu + eta_mu R(theta^t)

with rho_a the share of the records that belong to group a and R_a their mean loss, over all records. A
training sum tells, for each group, how many records its members have and the sum of their losses under the
broadcast model. Both are 0 in rounds in which the adversary does not look. The first of these sums gives rho; a
later one replaces the counts of every group that it has records of, since members come and go. A record of a
group that no sum has had counts as it is, until one has. From then on the weight of its group grows from 0.

Elementwise arithmetic, and sums by math.fsum, so that all processes compute the same bits. No torch: the
aggregator imports this. Source: Papadaki, Martinez, Bertran, Sapiro and Rodrigues 2022, "Minimax Demographic Group
Fairness in Federated Learning", Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fedfair.aggregation.requests import vector_sha256
from fedfair.errors import RemoteProtocolError
from fedfair.fairness.simplex import project_on_simplex
from fedfair.ids import RoundNumber
from fedfair.plan.known_groups import group_count
from fedfair.plan.schema import Plan
from fedfair.terms.slot import Slot
from fedfair.terms.term import Moved, OpenedRound, TermRule, TermSetting

_Vector = NDArray[np.float64]
_ROUNDING = 1e-9
"""By how much a sum of losses that are not negative may seem to be: far more than rounding makes of it."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupWeights:
    """The groups in the state of a run; its arrays never change.

    Attributes:
        weights: mu, float64 array (groups,); zeros before the first training sum.
        counts: float64 array (groups,), training records of each in the latest sum that had any; zeros before.
    """

    weights: _Vector
    counts: _Vector

    @property
    def factors(self) -> _Vector:
        """Return mu_a / rho_a, by which a record's coefficient is multiplied; 1 for what no sum has had."""
        total = math.fsum(self.counts)
        if total == 0.0:
            return np.ones(len(self.counts))
        seen = self.counts > 0.0
        shares = np.where(seen, self.counts / total, 1.0)
        factors: _Vector = np.where(seen, self.weights / shares, 1.0)
        return factors


class GroupRule(TermRule[GroupWeights]):
    """The adversary of one plan.

    Args:
        plan: the plan.
        groups: how many it tells, at least 1.
    """

    is_read_by_sites = True

    def __init__(self, plan: Plan, groups: int) -> None:
        self._groups = groups
        options = plan.training.options
        self._interval = options.adversary_interval or 1
        self._rate = options.adversary_learning_rate or plan.training.learning_rate

    @property
    def first(self) -> GroupWeights:
        """Return what is known before round 1: nothing."""
        return GroupWeights(np.zeros(self._groups), np.zeros(self._groups))

    def looks_in(self, number: RoundNumber) -> bool:
        """Return whether the adversary looks at the losses of a round: in the first one, then by its interval."""
        return (int(number) - 1) % self._interval == 0

    def may_be(self, held: GroupWeights, rounds_done: int) -> bool:
        """Return whether a run may have reached this, as far as shapes and numbers tell."""
        del rounds_done
        arrays = held.weights, held.counts
        return all(each.shape == (self._groups,) and np.isfinite(each).all() for each in arrays) and bool(
            (held.weights >= 0.0).all() and (held.counts >= 0.0).all()
        )

    def apply(
        self, held: GroupWeights | None, opened: OpenedRound, model: Moved
    ) -> tuple[GroupWeights | None, Moved]:
        """Return what is held after a round, and the model as it is; see `TermRule.apply`."""
        told = np.array(opened.sums["group_counts"]), np.array(opened.sums["group_losses"]) / opened.loss_unit
        return self.after(held or self.first, *told, opened.number), model

    def after(self, held: GroupWeights, counts: _Vector, losses: _Vector, number: RoundNumber) -> GroupWeights:
        """Return what is held after a round.

        Args:
            held: before it.
            counts: float64 array (groups,), training records of each group over the members of the sum.
            losses: float64 array (groups,), the sums of their losses in nats.
            number: the round.

        Raises:
            RemoteProtocolError: no honest sites have such sums.
        """
        if not self.looks_in(number):
            return held
        present, total = counts > 0.0, math.fsum(counts)
        sound = (counts >= 0.0).all() and (losses >= -_ROUNDING).all() and np.isfinite(losses).all()
        if not (sound and total > 0.0):
            raise RemoteProtocolError(
                f"the groups of round {number} have {counts.tolist()} records and losses that add up to "
                f"{losses.tolist()}, which no honest sites have",
                "a sum does not tell who is wrong; compare the software of the sites",
            )
        kept = np.where(present, counts, held.counts)
        weights = held.weights if held.counts.any() else kept / math.fsum(kept)
        risks = np.where(present, np.maximum(losses, 0.0) / np.where(present, counts, 1.0), 0.0)
        seen, moved = kept > 0.0, np.zeros(self._groups)
        moved[seen] = project_on_simplex(weights[seen] + self._interval * self._rate * risks[seen])
        return GroupWeights(moved, kept)


def rule(setting: TermSetting) -> GroupRule:
    """Return the adversary of a plan whose sums tell of groups."""
    return GroupRule(setting.plan, group_count(setting.plan, setting.classes))


@dataclass(frozen=True, slots=True)
class GroupFields:
    """The adversary's weights of groups; attributes as in `GroupWeights`."""

    weights: tuple[float, ...]
    counts: tuple[float, ...]


SLOT = Slot(
    digested=lambda groups: vector_sha256(groups.weights) + vector_sha256(groups.counts),
    fields=lambda groups: GroupFields(tuple(groups.weights.tolist()), tuple(groups.counts.tolist())),
    form=TypeAdapter(GroupFields),
    made=lambda fields, *_: GroupWeights(
        np.array(fields.weights, np.float64), np.array(fields.counts, np.float64)
    ),
    planned=True,
)
