"""Draws the conclusions from a study: who is in the worst groups, and the verdict about every claim.

A result has no per-record losses, so the chosen runs are made once more; a run is a function of its plan, so these
are the same models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError
from fedfair.fairness.superquantile_weights import worst_weights
from fedfair.plan.schema import Plan
from fedfair.simulation.baselines.fedminmax import group_names
from fedfair.studies.reproduction.claims import Decision, Grounds, decisions
from fedfair.studies.reproduction.exact_checks import ExactCheck, exact_checks, no_group_above
from fedfair.studies.reproduction.execution import Done
from fedfair.studies.reproduction.runs import KNOWN_GROUP_SIZES, ours
from fedfair.studies.reproduction.study import Figure
from fedfair.studies.sweep.runner import PointRunner
from fedfair.tables.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Conclusions:
    """The conclusions from one study.

    Attributes:
        shares: the composition of worst groups and of all, by the words of the row.
        decisions: what became of every claim, in their order.
    """

    shares: Mapping[str, Shares]
    decisions: tuple[Decision, ...]


def conclude(done: Done) -> Conclusions:
    """Return what a study shows; trains a few models once more and makes a few short runs.

    Raises:
        FedfairError: the data cannot be loaded any more.
    """
    runner = PointRunner(done.workspace)
    checks = exact_checks(done.runs.base, runner.records(Plan.model_validate(done.runs.base)), done.workspace)
    members = membership(done, runner)
    checks |= {} if members.no_group_above is None else {"C12": members.no_group_above}
    grounds = Grounds(done.evidence, ours(done.study), checks, members.distances)
    return Conclusions(members.shares, tuple(decisions(grounds)))


@dataclass(frozen=True, slots=True)
class WorstGroupMembers:
    """Who is in the worst groups of FedSRCVaR's models, over the test records.

    Attributes:
        shares: by the words of a worst group, and for all: means over the repetitions; empty where no such
            model was trained.
        distances: by the words of a worst group, for each repetition, its distance from all records, 0 to 1.
        no_group_above: C12 on the training records of the first model; None without one.
    """

    shares: Mapping[str, Shares]
    distances: Mapping[str, tuple[float, ...]]
    no_group_above: ExactCheck | None


def membership(done: Done, runner: PointRunner) -> WorstGroupMembers:
    """Return who is in the worst groups of the study's models; nobody where no such run finished.

    Args:
        done: the study.
        runner: what makes the runs once more.
    """
    rows: dict[str, Shares] = {}
    distances: dict[str, tuple[float, ...]] = {}
    check: ExactCheck | None = None
    marks = [
        (size, mark)
        for size in KNOWN_GROUP_SIZES
        for mark in done.evidence.of(Figure.KNOWN_GROUPS, method=ours(done.study), group_size=size)
    ]
    found: dict[float, list[tuple[Shares, Shares]]] = {size: [] for size, _ in marks}
    # By repetition first, so that the records of each are loaded once.
    for place in range(done.size.repeats if marks else 0):
        for size, mark in marks:
            worst, whole, train = _one(runner, mark.points[place].plan, done.study.group_column, size)
            check = no_group_above(train, size) if check is None else check
            found[size].append((worst, whole))
    for size, pairs in found.items():
        words = f"worst {100 * size:.0f} %"
        rows[words] = _mean([worst for worst, _ in pairs])
        rows["everybody"] = _mean([whole for _, whole in pairs])
        distances[words] = tuple(distance(worst, whole) for worst, whole in pairs)
    return WorstGroupMembers(rows, distances, check)


def _one(runner: PointRunner, plan: Plan, column: str | None, size: float) -> tuple[Shares, Shares, np.ndarray]:
    """Return the shares of the worst group and of all test records of one model, and its training losses."""
    sites = runner.records(plan)
    losses = runner.outcome(plan).losses
    parts: list[tuple[Dataset, np.ndarray]] = [
        (splits.test, losses[name]["test"].values)
        for name, splits in sites.items()
        if splits.test is not None and len(splits.test)
    ]
    if not parts:
        raise LocalProtocolError("a study of known groups has test records")
    labels = np.concatenate([test.labels for test, _ in parts])
    groups = np.concatenate([group_names(test.columns[column] if column else test.labels) for test, _ in parts])
    pooled = np.concatenate([values for _, values in parts])
    train = np.concatenate([site["train"].values for site in losses.values() if "train" in site])
    return worst_group(pooled, groups, labels, size), population(groups, labels), train


def _mean(shares: Sequence[Shares]) -> Shares:
    kinds: Mapping[tuple[str, int], None] = {kind: None for each in shares for kind in each}
    return {kind: sum(each.get(kind, 0.0) for each in shares) / len(shares) for kind in kinds}


Shares = Mapping[tuple[str, int], float]
"""Share of each (group, label), adding up to 1."""


def population(groups: NDArray[np.generic], labels: NDArray[np.int64]) -> Shares:
    """Return the composition of all records.

    Args:
        groups: array (n,): the group of each record.
        labels: int64 array (n,).
    """
    return _shares(groups, labels, np.ones(len(labels)))


def worst_group(
    losses: NDArray[np.float64], groups: NDArray[np.generic], labels: NDArray[np.int64], group_size: float
) -> Shares:
    """Return the composition of the worst group.

    Args:
        losses: float64 array (n,), at least one.
        groups: array (n,).
        labels: int64 array (n,).
        group_size: share of all records (rho in the paper), in (0, 1].
    """
    equal = np.full(len(losses), 1.0 / len(losses))
    return _shares(groups, labels, worst_weights(losses, equal, group_size))


def distance(one: Shares, other: Shares) -> float:
    """Return half the sum of the absolute differences of two compositions' shares: 0 for the same, at most 1."""
    return sum(abs(one.get(kind, 0.0) - other.get(kind, 0.0)) for kind in {*one, *other}) / 2.0


def _shares(groups: NDArray[np.generic], labels: NDArray[np.int64], member: NDArray[np.float64]) -> Shares:
    kinds, place = np.unique(
        np.stack([groups.astype(str), labels.astype(str)], axis=1), axis=0, return_inverse=True
    )
    sums = np.bincount(place.ravel(), weights=member, minlength=len(kinds)) / member.sum()
    return {(str(group), int(label)): float(share) for (group, label), share in zip(kinds, sums, strict=True)}
