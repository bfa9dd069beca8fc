"""What every algorithm's own objective comes to, beside its optimum by a convex solver: on bc10, or on a CSV file.

A linear model, full batches, float64, one local step: what is left is the algorithm, at the best of three
learning rates. The optima are found
again, by the script that made `tests/vectors/algorithms_bc10.json`; it needs cvxpy, which comes with the test
extra. A CSV file has numeric columns, a label of two values and, if named, a column that says who owns a row;
`--synthetic` writes such a file (three sites whose records differ) and reads it. Groups are the records above
and below the mean of the first column. FedMGDA+ has no single objective and stands here with its worst
collaborator.
"""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from machine import report
from numpy.typing import NDArray
from paper_steps import constant_steps
from sklearn.datasets import load_breast_cancer

from fedfair.fairness.cvar import cvar, rcvar
from fedfair.fairness.superquantile_weights import worst_weights
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.results.document import to_json
from fedfair.simulation.centralised.dro import chi_square_weights
from fedfair.simulation.centralised.pooled import pooled_losses
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient

ORACLE = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "make_algorithms_bc10.py"
RATES = (0.5, 0.05, 0.005)
RHO, EPSILON, CHI2_RHO, SHARE = 0.3, 0.1, 0.8, 0.5

Vector = NDArray[np.float64]
Parts = list[NDArray[np.int64]]


def bc10() -> tuple[Vector, NDArray[np.int64], Parts]:
    bunch = load_breast_cancer()
    return bunch.data[:, :10], bunch.target.astype(np.int64), np.split(np.arange(569), [200, 400])


def synthetic(path: Path) -> Path:
    """Write 900 records of three sites, with shifted features, unequal sizes and a tenth of the labels wrong."""
    source = np.random.default_rng(12)
    owner = source.choice(["north", "south", "west"], 900, p=[0.6, 0.3, 0.1])
    shift = np.select([owner == "south", owner == "west"], [0.7, -1.5], 0.0)
    features = source.normal(size=(900, 5)) + shift[:, None]
    logits = features @ np.array([1.0, -2.0, 0.5, 0.0, 1.5]) * np.where(owner == "west", 0.4, 1.0)
    label = (logits + source.logistic(size=900) > 0) ^ (source.random(900) < 0.1)
    table = pd.DataFrame(features.round(6), columns=[f"x{i}" for i in range(5)])
    table.assign(y=label.astype(int), site=owner).to_csv(path, index=False)
    return path


def read(path: Path, label: str, owner: str | None) -> tuple[Vector, NDArray[np.int64], Parts]:
    table = pd.read_csv(path)
    labels = (table[label] == table[label].max()).to_numpy(np.int64)
    whose = table[owner].to_numpy() if owner else np.arange(len(table)) * 3 // len(table)
    features = table.drop(columns=[label, *([owner] if owner else [])]).to_numpy(np.float64)
    return features, labels, [np.flatnonzero(whose == name) for name in np.unique(whose)]


def objectives(parts: Parts, groups: Parts) -> dict[str, tuple[str | None, Callable[[Vector], float]]]:
    """Return for every algorithm the name of its objective in the oracle, and the objective of given losses."""
    share = np.array([len(part) for part in parts]) / sum(len(part) for part in parts)

    def means(losses: Vector, of: Parts) -> Vector:
        return np.array([losses[part].mean() for part in of])

    def tail_of_sites(losses: Vector) -> float:
        return float(worst_weights(means(losses, parts), share, SHARE) @ means(losses, parts))

    mean = ("mean", lambda losses: float(losses.mean()))
    tail = (f"rcvar_{RHO}_{EPSILON}", lambda losses: rcvar(losses, RHO, EPSILON))
    worst_site = ("afl", lambda losses: float(means(losses, parts).max()))
    return {
        "fedsrcvar": tail,
        "bpf": tail,
        "dro cvar": (f"dro_cvar_{RHO}", lambda losses: cvar(losses, RHO)),
        "dro chi2": (
            f"dro_chi2_{CHI2_RHO}",
            lambda losses: float((chi_square_weights(losses, CHI2_RHO) * losses).mean()),
        ),
        "fedavg": mean,
        "erm": mean,
        "afl": worst_site,
        "drfa": worst_site,
        "fedminmax": ("fedminmax", lambda losses: float(means(losses, groups).max())),
        "qffl": ("qffl_1", lambda losses: float(share @ means(losses, parts) ** 2 / 2)),
        "deltafl": (f"deltafl_{SHARE}", tail_of_sites),
        "fedmgda": (None, worst_site[1]),
    }


OPTIONS: dict[str, dict[str, object]] = {
    "bpf": {"adversary_learning_rate": 0.1},
    "dro cvar": {"divergence": "cvar"},
    "dro chi2": {"divergence": "chi2"},
    "afl": {"adversary_learning_rate": 0.1},
    "drfa": {"adversary_learning_rate": 0.1},
    "fedminmax": {"adversary_learning_rate": 0.1, "group_column": "group"},
    "qffl": {"loss_power": 1.0},
    "deltafl": {"worst_share": SHARE},
    "fedmgda": {"server_learning_rate": 0.02},
}


def plan_of(run: str, names: list[str], rounds: int, rate: float) -> Plan:
    algorithm = run.split(maxsplit=1)[0]
    size = CHI2_RHO if run == "dro chi2" else RHO
    return Plan.model_validate(
        {
            "federation": {"name": "bench", "collaborators": names},
            # What is measured are algorithms, and those know no clip; a simulation of masked sums has one.
            "secure_aggregation": {"mode": "off"},
            "task": {"data": "breast-cancer", "model": {"name": "linear"}},
            "objective": {
                "measure": "loss",
                "worst_group_size": size,
                "tradeoff": EPSILON,
                "smoothing": {"name": "zang", "gamma": 0.02},
            },
            "training": {
                **constant_steps(algorithm),
                "algorithm": algorithm,
                "options": OPTIONS.get(run, {}),
                "rounds": rounds,
                "batch_size": "full",
                "learning_rate": rate,
                "threshold_learning_rate": min(rate, 0.005),
                "threshold_init": 0.5,
                "output": "tail",
                "precision": "fp64",
                "device": "cpu",
            },
            "evaluation": {"every": rounds},
        }
    )


def reached(
    plan: Plan, sites: Mapping[ParticipantId, Splits], objective: Callable[[Vector], float]
) -> tuple[float, float]:
    """Return what an objective comes to after a run, and how many seconds that took."""
    outcome = simulate_sites(plan, sites, Path())
    model = flat_model(plan, next(iter(sites.values())).train.schema, torch.device("cpu"), Path())
    cohort = LoopClients({who: TrainingClient(plan, who, splits, model) for who, splits in sites.items()})
    result: dict[str, Any] = to_json(outcome.result)
    return objective(pooled_losses(cohort, outcome.model)), float(result["timing"]["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--csv", type=Path, help="a file with numeric columns and a label of two values")
    parser.add_argument("--synthetic", type=Path, help="write such a file here, and read it")
    parser.add_argument("--label", default="y")
    parser.add_argument("--owner", default=None, help="column of the file that says who owns a row")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.synthetic:
        features, labels, parts = read(synthetic(asked.synthetic), "y", "site")
    else:
        features, labels, parts = read(asked.csv, asked.label, asked.owner) if asked.csv else bc10()
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    # Everything below numbers the records as the sites hold them, one site after the other.
    order = np.concatenate(parts)
    features, labels, parts = (
        features[order],
        labels[order],
        np.split(np.arange(len(order)), np.cumsum([len(part) for part in parts])[:-1]),
    )
    above = features[:, 0] > 0
    groups = [np.flatnonzero(above), np.flatnonzero(~above)]
    optima = runpy.run_path(str(ORACLE))["optima_of"](features, 2.0 * labels - 1.0, parts, groups)
    schema = FeatureSchema((features.shape[1],), 2)
    data = Dataset(features, labels, schema, {"group": above.astype(str)})
    sites = {ParticipantId(f"site-{i}"): Splits(data.take(part)) for i, part in enumerate(parts)}
    rows = []
    for run, (name, objective) in objectives(parts, groups).items():
        found = [
            (*reached(plan_of(run, list(sites), asked.rounds, rate), sites, objective), rate) for rate in RATES
        ]
        value, seconds, rate = min(found)
        optimum = None if name is None else optima[name]["objective"]
        excess = None if optimum is None else value - optimum
        row = {"algorithm": run, "objective": name, "reached": value, "optimum": optimum, "excess": excess}
        rows.append({**row, "learning_rate": rate, "seconds": seconds})
    where = str(asked.synthetic or asked.csv or "bc10")
    report("algorithms_bc10", data=where, records=len(labels), rounds=asked.rounds, runs=rows)


if __name__ == "__main__":
    main()
