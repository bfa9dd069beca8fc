"""What a release audit finds in eight models: some know their records by heart, some were trained under noise.

All are trained on the same people, whose outcome is mostly chance. The attack is by the loss. Beside what it
finds stand the lower bound on epsilon and, for models under noise, the ledger's upper one, which it must not
exceed. Their plans have no audit, because its counts carry no noise: the same counts are made here, of the losses
that only a simulation has.
"""

from __future__ import annotations

import argparse
import csv
import math
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from machine import report

from fedfair.aggregation.audit_sums import BINS, loss_bins
from fedfair.plan.schema import Plan
from fedfair.privacy.audited_epsilon import epsilon_at_least
from fedfair.privacy.membership import ENDS, ScoreCounts, found_at
from fedfair.simulation.simulate import simulate

CHANCE, MISTAKES, DELTA, HELD_OUT, COLUMNS = 0.05, (0.01, 0.001), 1e-5, 0.4, 20

Section = Mapping[str, object]

WIDE, NARROW = {"name": "mlp", "hidden": [128]}, {"name": "mlp", "hidden": [16]}
MODELS: Mapping[str, tuple[Section, int, float | None]] = {
    "linear, 20 rounds": ({"name": "linear"}, 20, None),
    "linear, 200 rounds": ({"name": "linear"}, 200, None),
    "narrow, stopped early": (NARROW, 5, None),
    "wide, stopped early": (WIDE, 5, None),
    "wide, trained long": (WIDE, 600, None),
    "wide, noise 4": (WIDE, 20, 4.0),
    "wide, noise 1": (WIDE, 20, 1.0),
    "wide, noise 0.5": (WIDE, 20, 0.5),
}
"""Model, rounds, and the noise multiplier of a step; None for a model without noise."""


def write_people(path: Path, records: int, generator: np.random.Generator) -> None:
    """Write people whose outcome two columns tell a little of, and the others nothing."""
    numbers = generator.normal(size=(records, COLUMNS)).round(6)
    ill = generator.random(records) < 1.0 / (1.0 + np.exp(-numbers[:, 0] - numbers[:, 1]))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{place}" for place in range(COLUMNS)), "ill"])
        writer.writerows([*row, int(answer)] for row, answer in zip(numbers.tolist(), ill, strict=True))


def plan_of(model: Section, rounds: int, noise: float | None) -> Plan:
    """Return a plan in which each record's side is a draw of its own."""
    table = {"train": "table.csv", "label": "ill", "label_values": [0, 1]}
    protected = {"noise_multiplier": noise, "clip": 1.0, "delta": DELTA}
    return Plan.model_validate(
        {
            "federation": {"name": "audit", "collaborators": ["clinic-a", "clinic-b", "clinic-c"]},
            "task": {
                "data": {"csv": {**table, "numeric": [f"x{place}" for place in range(COLUMNS)]}},
                "partition": {"scheme": "random"},
                "standardize": "none",
                "test_fraction": HELD_OUT,
                "model": model,
            },
            "objective": {"measure": "loss", "worst_group_size": 1.0},
            "training": {
                "rounds": rounds,
                "batch_size": 64,
                "learning_rate": 0.5,
                "local_steps": 5,
                "output": "last",
            },
            "privacy": {} if noise is None else {"sample_level": protected},
            "evaluation": {"every": rounds, "release_audit": {} if noise is None else None},
        }
    )


def audited(plan: Plan, folder: Path) -> dict[str, Any]:
    """Return what an audit of the plan's model says, and what the ledger says."""
    begun = time.perf_counter()
    outcome = simulate(plan, folder)
    losses = {
        split: np.concatenate([site[split].values for site in outcome.losses.values()])
        for split in ("train", "test")
    }
    bins = (np.bincount(loss_bins(each, 8.0 * math.log(2.0)), minlength=BINS) for each in losses.values())
    counts = ScoreCounts(*(each.astype(np.float64) for each in bins))
    level = outcome.result.privacy.sample_level
    found = {
        f"found_at_{mistakes}": found_at(counts, mistakes, CHANCE / (ENDS * len(MISTAKES)))
        for mistakes in MISTAKES
    }
    delta = 0.0 if level is None else DELTA
    return {
        "train": len(losses["train"]),
        "held_out": len(losses["test"]),
        "auc": counts.area,
        **{name: [share.estimate, share.lower, share.upper] for name, share in found.items()},
        "epsilon_at_least": epsilon_at_least([counts], 1.0 - HELD_OUT, CHANCE, delta),
        "epsilon_at_most": None if level is None else level.epsilon,
        "mean_loss": {split: float(each.mean()) for split, each in losses.items()},
        "seconds": time.perf_counter() - begun,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=3000)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        write_people(Path(made) / "table.csv", wanted.records, np.random.default_rng(0))
        runs = {name: audited(plan_of(*about), Path(made)) for name, about in MODELS.items()}
    contradicted = [
        name
        for name, run in runs.items()
        if run["epsilon_at_most"] is not None and run["epsilon_at_least"] > run["epsilon_at_most"]
    ]
    report("release_audit", records=wanted.records, runs=runs, lower_bound_above_the_upper=contradicted)
