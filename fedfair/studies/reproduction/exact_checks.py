"""The claims that need no statistics, checked on a study's own records and models: C1, C2, C12 and C14.

They hold for every data set or for none, so that a short run on a few records of every collaborator is enough to
show a fault; C12 is checked on the models that were trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.fairness.cvar import cvar
from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.simulation.centralised.pooled import POOLED, pool
from fedfair.simulation.simulate import simulate_sites
from fedfair.statistics.table import Purpose
from fedfair.studies.reproduction.study import Values, merged
from fedfair.tables.dataset import Splits
from fedfair.tables.seeds import array_generator

Sites = Mapping[ParticipantId, Splits]

RECORDS = 500
"""So many training records of each collaborator take part."""

ROUNDS = 20
ROUNDING = 1e-9
"""Twenty steps in double precision, whose sums are added up in another order."""

GROUPS = 300


@dataclass(frozen=True, slots=True)
class ExactCheck:
    """The outcome of one check.

    Attributes:
        holds: whether the claim is true here.
        sentence: what was computed, with its numbers.
    """

    holds: bool
    sentence: str


def exact_checks(base: Values, sites: Sites, workspace: Path) -> dict[str, ExactCheck]:
    """Return what became of C1, C2 and C14.

    Args:
        base: the study's base plan.
        sites: the records of all sites.
        workspace: the folder that the plan's paths start from.
    """
    few = {name: _first(splits) for name, splits in sites.items()}
    return {
        "C1": _centralised(base, few, workspace),
        "C2": _fedavg(base, few, workspace),
        "C14": _numbers(base, few, workspace),
    }


def _first(splits: Splits) -> Splits:
    return Splits(splits.train.take(np.arange(min(RECORDS, len(splits.train)))))


def _plan(base: Values, training: Values, objective: Values) -> Plan:
    short: Values = {
        "training": {"rounds": ROUNDS, "precision": "fp64", "device": "cpu", **training},
        "objective": {"worst_group_size": 0.1, "tradeoff": 0.05, **objective},
    }
    return Plan.model_validate(merged(base, short))


def _centralised(base: Values, sites: Sites, workspace: Path) -> ExactCheck:
    smoothed: Values = {"smoothing": {"name": "zang", "gamma": 0.05}}
    plan = _plan(base, {"batch_size": "full", "learning_rate": 0.01}, smoothed)
    federated = simulate_sites(plan, sites, workspace).model
    federation = plan.federation.model_copy(update={"collaborators": (POOLED,)})
    alone = plan.model_copy(update={"federation": federation})
    pooled = {POOLED: Splits(pool(splits.train for splits in sites.values()))}
    central = simulate_sites(alone, pooled, workspace).model
    apart = float(np.abs(federated.vector - central.vector).max())
    return ExactCheck(
        apart <= ROUNDING,
        f"{ROUNDS} rounds of {len(sites)} collaborators and {ROUNDS} steps on their pooled records (up to "
        f"{RECORDS} of each) end {apart:.1g} apart in their parameters",
    )


def _fedavg(base: Values, sites: Sites, workspace: Path) -> ExactCheck:
    training: Values = {"local_steps": 3, "batch_size": 64, "learning_rate": 0.05}
    plans = [_plan(base, {**training, "algorithm": name}, {"tradeoff": 1.0}) for name in ("fedsrcvar", "fedavg")]
    fair, plain = (simulate_sites(plan, sites, workspace).model.vector.tobytes() for plan in plans)
    words = "the same bits" if fair == plain else "not the same bits"
    return ExactCheck(fair == plain, f"{ROUNDS} rounds of three local steps give {words}")


def _numbers(base: Values, sites: Sites, workspace: Path) -> ExactCheck:
    plan = _plan(base, {"rounds": 1}, {})
    layout = simulate_sites(plan, sites, workspace).layout
    spec = sum_specs(plan, layout, next(iter(sites.values())).train.schema)[Purpose.TRAINING]
    up = spec.header_length + spec.body_length
    # Down go the model and its threshold; up go both and a weight.
    return ExactCheck(
        up == layout.dimension + 2, f"{layout.dimension} parameters; {layout.dimension + 1} numbers down, {up} up"
    )


def no_group_above(losses: NDArray[np.float64], group_size: float) -> ExactCheck:
    """Return what became of C12 for the losses of a model: random groups, groups drawn to be bad, and the worst.

    Args:
        losses: float64 array (n,), at least one.
        group_size: share of all records (rho), in (0, 1].
    """
    bound, count, draw = cvar(losses, group_size), len(losses), array_generator(0, "groups")
    smallest = math.ceil(group_size * count)
    means = [float(np.sort(losses)[::-1][:smallest].mean())]
    for size in draw.integers(smallest, count, GROUPS, endpoint=True):
        # The Gumbel trick: the largest of log weight plus noise are a draw without replacement.
        keys = draw.uniform(0, 20) * losses + draw.gumbel(size=count)
        means.append(float(losses[np.argpartition(-keys, size - 1)[:size]].mean()))
    greatest = max(means)
    return ExactCheck(
        # A mean of n numbers is off by at most n roundings of itself.
        greatest <= bound * (1.0 + count * 2.0**-53),
        f"the worst of {len(means)} groups of at least {group_size:.0%} has a mean loss of {greatest:.4f}, the "
        f"worst-group risk is {bound:.4f}",
    )
