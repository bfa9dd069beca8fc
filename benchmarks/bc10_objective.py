"""The objective that a simulated federation reaches on bc10, beside the optimum that a convex solver proved.

bc10 is scikit-learn's breast-cancer set with its first ten columns, standardised over all 569 rows, which is what
`standardize: secure` computes from sums. Three collaborators, full batches, float64, plain gradient descent: the
columns are nearly collinear, so the last thousandths take many rounds. The threshold's own rate lies below the
stable limit 4 gamma rho / (1 - epsilon). The optima stand in `tests/vectors/bc10.json` with their provenance.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml
from machine import report
from paper_steps import constant_steps
from sklearn.datasets import load_breast_cancer

from fedfair.plan.loading import load_plan
from fedfair.results.document import to_json
from fedfair.simulation.simulate import simulate

VECTORS = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "bc10.json"
SETTINGS = ((0.3, 0.1), (0.2, 0.01))
GAMMA = 0.05


def write_workspace(folder: Path, rho: float, epsilon: float, rounds: int) -> Path:
    records = load_breast_cancer(as_frame=True)
    records.data.iloc[:, :10].assign(label=records.target).to_csv(folder / "bc10.csv", index=False)
    plan = {
        "federation": {"name": "bc10", "collaborators": ["a", "b", "c"]},
        "task": {
            "data": {"csv": {"train": "bc10.csv", "label": "label", "numeric": "all"}},
            "partition": {"scheme": "label"},
            "standardize": "secure",
            "model": {"name": "linear"},
        },
        "objective": {
            "measure": "loss",
            "worst_group_size": rho,
            "tradeoff": epsilon,
            "smoothing": {"name": "softplus", "gamma": GAMMA},
        },
        "training": {
            **constant_steps(),
            "output": "last",
            "rounds": rounds,
            "batch_size": "full",
            "learning_rate": 0.3,
            "threshold_learning_rate": 0.03,
            "precision": "fp64",
        },
        "secure_aggregation": {"mode": "off"},
        "evaluation": {"every": rounds},
    }
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))
    return path


def measure(rho: float, epsilon: float, rounds: int) -> dict[str, float]:
    optima = json.loads(VECTORS.read_text())["optima"]
    optimum = next(row for row in optima if (row["rho"], row["eps"]) == (rho, epsilon))
    with tempfile.TemporaryDirectory() as folder:
        path = write_workspace(Path(folder), rho, epsilon, rounds)
        result: dict[str, Any] = to_json(simulate(load_plan(path), Path(folder)).result)
    smoothed_optimum = optimum[f"smooth_softplus_{GAMMA}"]["ftilde"]
    objective = result["objective"]
    return {
        "worst_group_size": rho,
        "tradeoff": epsilon,
        "rounds": rounds,
        "smoothed": objective["smoothed"],
        "smoothed_optimum": smoothed_optimum,
        "smoothed_excess": objective["smoothed"] - smoothed_optimum,
        "rcvar": objective["rcvar"],
        "rcvar_optimum": optimum["objective"],
        "rcvar_excess": objective["rcvar"] - optimum["objective"],
        "seconds": result["timing"]["seconds"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, nargs="+", default=[2000, 20000])
    torch.set_num_threads(1)
    rounds_list = parser.parse_args().rounds
    report("bc10_objective", runs=[measure(*setting, rounds) for setting in SETTINGS for rounds in rounds_list])
