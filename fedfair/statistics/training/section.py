"""A training round in plan, policy and ledger: what its sum makes known, by algorithm. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedfair.plan.algorithms import ALGORITHMS, AlgorithmName
from fedfair.plan.derived import is_unevaluated, trains
from fedfair.plan.fields import Disclosure
from fedfair.plan.schema import Plan
from fedfair.statistics.statistic import Statistic, When

_WEIGHTED_CHANGE = "the weighted change of model and threshold"
_ROUND_LEAVES: Mapping[AlgorithmName, str] = {
    "qffl": "the weighted change of the model times a power of its loss, and the weighted curvature of that power",
    "localbpf": "the weighted change of the model and its weighted own threshold",
    "fedminmax": f"{_WEIGHTED_CHANGE}; in rounds in which the adversary looks, how many records of each group it "
    "has and the sum of their losses",
}
"""The words for what a site sends in a round of an algorithm that does not send the weighted change alone."""


def _discloses(plan: Plan) -> tuple[Disclosure, ...]:
    return ALGORITHMS[plan.training.algorithm].kinds


def _asked_by(plan: Plan) -> str:
    corrected = "; training.control_variates: true" if plan.training.control_variates else ""
    return f"training.algorithm: {plan.training.algorithm}{corrected}"


def _leaves(plan: Plan) -> Iterator[str]:
    facts = ALGORITHMS[plan.training.algorithm]
    if not facts.deployed:
        yield f"in simulation only, each round: {facts.reveals}"
        return
    if is_unevaluated(plan):
        yield "each round, its clipped change of model and threshold, in whole numbers with its share of noise"
        return
    yield f"each round, its weight and {_ROUND_LEAVES.get(plan.training.algorithm, _WEIGHTED_CHANGE)}"
    if plan.training.control_variates:
        yield "in its first round, its weight again: how much of a sum control variates count for the first time"


STATISTIC = Statistic(
    word="training",
    when=When.ROUND,
    planned=trains,
    made=lambda plan, _: trains(plan),
    policy_word="training",
    meanings={
        "update-sums": "sums over all sites of weighted changes of the model and the threshold, and of weights",
        "group-losses": "the loss of every named group over all sites",
        "site-losses": "the loss of one site by itself",
        "site-updates": "the change of the model of one site by itself",
        "records": "records",
    },
    discloses=_discloses,
    asked_by=_asked_by,
    leaves=_leaves,
    release="training",
    covers="training updates",
    is_round=True,
    draws_anew=True,
)
