"""The records in the worst groups of the trained models: what Table A.2 counts.

A result has no per-record losses, so the chosen runs are made once more; a run is a function of its plan, so these
are the same models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedfair.data.dataset import Dataset
from fedfair.data.source import load_federation
from fedfair.errors import LocalProtocolError
from fedfair.experiments.reproduction.composition import Shares, everybody, worst_group
from fedfair.experiments.reproduction.execution import Done
from fedfair.experiments.reproduction.runs import KNOWN_GROUP_SIZES
from fedfair.experiments.reproduction.study import Figure
from fedfair.plan.schema import Plan
from fedfair.simulation.simulate import simulate_sites


def worst_group_shares(done: Done) -> dict[str, Shares]:
    """Return who is in the worst groups of FedSRCVaR's models, and in everybody, over the test records.

    Shares are means over the repetitions. Empty where the study has no known groups, or no such run finished.
    """
    rows: dict[str, Shares] = {}
    column = done.study.group_column
    for size in KNOWN_GROUP_SIZES:
        marks = done.evidence.of(Figure.KNOWN_GROUPS, method="fedsrcvar", group_size=size)
        if not marks or column is None:
            continue
        found = [_shares(done, point.plan, column, size) for point in marks[0].points]
        rows[f"worst {100 * size:.0f} %"] = _mean([worst for worst, _ in found])
        rows["everybody"] = _mean([whole for _, whole in found])
    return rows


def _shares(done: Done, plan: Plan, column: str, size: float) -> tuple[Shares, Shares]:
    sites = load_federation(plan, done.workspace)
    losses = simulate_sites(plan, sites, done.workspace).losses
    tested = {name: splits.test for name, splits in sites.items()}
    parts: list[tuple[Dataset, np.ndarray]] = [
        (test, losses[name]["test"].values) for name, test in tested.items() if test is not None and len(test)
    ]
    if not parts:
        raise LocalProtocolError("a study of known groups has test records")
    groups = np.concatenate([test.columns[column] for test, _ in parts])
    labels = np.concatenate([test.labels for test, _ in parts])
    pooled = np.concatenate([values for _, values in parts])
    return worst_group(pooled, groups, labels, size), everybody(groups, labels)


def _mean(shares: Sequence[Shares]) -> Shares:
    kinds: Mapping[tuple[str, int], None] = {kind: None for each in shares for kind in each}
    return {kind: sum(each.get(kind, 0.0) for each in shares) / len(shares) for kind in kinds}
