"""From the plan's words to the object that makes its training rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from fedfair.fairness.theory import bpf_of_rcvar
from fedfair.ids import ParticipantId
from fedfair.plan.algorithms import AlgorithmName
from fedfair.plan.derived import answers_batches
from fedfair.plan.known_groups import names_groups
from fedfair.plan.learning_rates import rate_factor
from fedfair.plan.schema import Plan
from fedfair.simulation.baselines.afl import AgnosticFederatedLearning
from fedfair.simulation.baselines.cohort_queries import Algorithm
from fedfair.simulation.baselines.deltafl import SuperquantileOverCollaborators
from fedfair.simulation.baselines.drfa import RobustFederatedAveraging
from fedfair.simulation.baselines.fedmgda import CommonDescent
from fedfair.simulation.baselines.fedminmax import MinimaxOverGroups, groups_of
from fedfair.simulation.centralised.bpf import BlindParetoFairness, box_weights
from fedfair.simulation.centralised.dro import WorstReweighting, chi_square_weights, cvar_weights
from fedfair.tables.dataset import Splits

Sites = Mapping[ParticipantId, Splits]


def algorithm_of(plan: Plan, sites: Sites) -> Algorithm | None:
    """Return what makes the training rounds of a plan; None where weighted sums do.

    Args:
        plan: the plan.
        sites: the records of all sites, in the order of the cohort; only their groups are looked at.
    """
    make = _MAKERS.get(plan.training.algorithm)
    return None if make is None or answers_batches(plan) else make(plan, sites)


def _afl(plan: Plan, _: Sites) -> Algorithm:
    return AgnosticFederatedLearning(_adversary_rate(plan), _interval(plan))


def _drfa(plan: Plan, _: Sites) -> Algorithm:
    training = plan.training
    drawn = training.options.drawn_collaborators
    return RobustFederatedAveraging(_adversary_rate(plan), training.local_steps, drawn, training.seed)


def _fedminmax(plan: Plan, sites: Sites) -> Algorithm | None:
    if names_groups(plan):
        return None
    groups = groups_of((splits.train for splits in sites.values()), plan.training.options.group_column)
    return MinimaxOverGroups(groups, _adversary_rate(plan), _interval(plan))


def _deltafl(plan: Plan, _: Sites) -> Algorithm:
    return SuperquantileOverCollaborators(plan.training.options.worst_share or plan.objective.worst_group_size)


def _fedmgda(plan: Plan, _: Sites) -> Algorithm:
    options = plan.training.options
    weight_range = 1.0 if options.weight_range is None else options.weight_range
    rate = options.server_learning_rate or plan.training.learning_rate
    return CommonDescent(weight_range, lambda number: rate * rate_factor(plan, number))


def _dro(plan: Plan, _: Sites) -> Algorithm:
    rule = chi_square_weights if plan.training.options.divergence == "chi2" else cvar_weights
    return WorstReweighting(rule, plan.objective.worst_group_size, _interval(plan))


def _bpf(plan: Plan, _: Sites) -> Algorithm:
    group_size, floor = bpf_of_rcvar(plan.objective.worst_group_size, plan.objective.tradeoff)
    if plan.training.options.best_response is not None:
        return WorstReweighting(partial(box_weights, floor=floor), group_size, _interval(plan))
    return BlindParetoFairness(group_size, floor, _adversary_rate(plan), _interval(plan))


def _adversary_rate(plan: Plan) -> float:
    return plan.training.options.adversary_learning_rate or plan.training.learning_rate


def _interval(plan: Plan) -> int:
    return plan.training.options.adversary_interval or 1


_MAKERS: Mapping[AlgorithmName, Callable[[Plan, Sites], Algorithm | None]] = {
    "afl": _afl,
    "drfa": _drfa,
    "fedminmax": _fedminmax,
    "deltafl": _deltafl,
    "fedmgda": _fedmgda,
    "dro": _dro,
    "bpf": _bpf,
}
