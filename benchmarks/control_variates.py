"""What control variates change: the limit of training with several local steps, and the rounds and bytes to it.

bc10 is scikit-learn's breast-cancer set with its first ten columns, one class at each of two sites: as unlike as
sites can be. Full batches, float64. The first table is the smoothed training objective that plain averaging
and control variates (SCAFFOLD on model and threshold) come to with 1 to 20 local steps, after equally many local
steps: it depends on their number without control variates, and not with them. `--deployed` runs the same plans as
a real federation, processes over mutual TLS on loopback with masked sums. It tells after how many rounds and bytes
the training objective first is within `--within` of the best of all runs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import yaml
from machine import report
from paper_steps import SMOOTHING, constant_steps
from sklearn.datasets import load_breast_cancer

from fedfair.cli.loopback import Processes, prepare
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.vectorised.clients import VectorisedClients
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model, objective_of

NAMES = ("benign", "malignant")
LOCAL_STEPS = (1, 5, 10, 20)


def bc10() -> Dataset:
    """Return all 569 records: ten columns, standardised."""
    bunch = load_breast_cancer()
    features = bunch.data[:, :10]
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    return Dataset(features, bunch.target.astype(np.int64), FeatureSchema((10,), 2, tuple(range(10))))


def stated(rho: float, steps: int, rounds: int, *, corrects: bool) -> dict[str, dict[str, object]]:
    """Return the plan of a run."""
    return {
        "federation": {"name": "variates", "collaborators": list(NAMES)},
        "task": {
            "data": {
                "csv": {
                    "label": "label",
                    "numeric": [str(name) for name in load_breast_cancer().feature_names[:10]],
                }
            },
            "standardize": "secure",
            "input_shape": [10],
            "classes": 2,
            "model": {"name": "linear", "init": "zeros"},
        },
        "objective": {"measure": "loss", "worst_group_size": rho, "tradeoff": 0.1, "smoothing": SMOOTHING},
        "training": {
            **constant_steps(),
            "output": "last",
            "rounds": rounds,
            "local_steps": steps,
            "control_variates": corrects,
            "batch_size": "full",
            "learning_rate": 0.1,
            "precision": "fp64",
        },
        "secure_aggregation": {"mode": "malicious", "most_records": 512},
        "evaluation": {"every": 5, "group_sizes": [rho], "bins": 4096, "loss_range": 4.0},
    }


def limit(rho: float, steps: int, total: int, *, corrects: bool) -> float:
    """Return the smoothed training objective after so many local steps in all."""
    rounds = total // steps
    # One round more in the plan, because the output may be an earlier model.
    plan = Plan.model_validate(stated(rho, steps, rounds + 1, corrects=corrects))
    plan = plan.model_copy(update={"task": plan.task.model_copy(update={"standardize": "none"})})
    data = bc10()
    sites = {
        ParticipantId(name): Splits(data.take(np.flatnonzero(data.labels == label)))
        for label, name in enumerate(reversed(NAMES))
    }
    model = flat_model(plan, data.schema, torch.device("cpu"), Path())
    run = TrainingRun(plan, model.layout, data.schema, model.vector())
    cohort = VectorisedClients(plan, dict(sorted(sites.items())), model)
    while run.rounds_done < rounds:
        request = run.next_sum()
        if request is None:
            break
        run.apply_aggregate(cohort.totals(request, run.model), cohort.names)
    losses = np.concatenate([site["train"].values for site in cohort.losses(run.model, {"train"})])
    objective = objective_of(plan)
    threshold = torch.tensor(run.model.threshold, dtype=torch.float64)
    return float(objective.per_sample(torch.from_numpy(losses), threshold).mean())


def deployed(rho: float, steps: int, rounds: int, *, corrects: bool) -> list[dict[str, float]]:
    """Return round, training objective and bytes of training so far, at each evaluation of a real federation."""
    bunch = load_breast_cancer(as_frame=True)
    table = bunch.data.iloc[:, :10].assign(label=bunch.target)
    with tempfile.TemporaryDirectory() as folder:
        workspace = prepare(Path(folder), stated(rho, steps, rounds, corrects=corrects))
        for label, name in enumerate(reversed(NAMES)):
            table[bunch.target == label].to_csv(Path(folder) / f"{name}.csv", index=False)
            site = Path(folder) / f"{name}.yaml"
            told = yaml.safe_load(site.read_text())
            site.write_text(yaml.safe_dump({**told, "data": {"train": f"{name}.csv"}}))
        with Processes(workspace) as processes:
            processes.wait()
        lines = [json.loads(text) for text in workspace.metrics.read_text().splitlines()]
        moved = {
            line["round"]: line["bytes_in"] + line["bytes_out"] for line in lines if line["purpose"] == "training"
        }
        history = json.loads(workspace.result.read_text())["history"]
        return [
            {
                "round": past["round"],
                "objective": 0.9 * past["train"]["worst"] + 0.1 * past["train"]["mean"],
                "bytes": sum(count for number, count in moved.items() if number <= past["round"]),
            }
            for past in history
        ]


def reached(course: list[dict[str, float]], target: float) -> dict[str, float] | None:
    """Return the first evaluation at or below a target; None where there is none."""
    return next((point for point in course if point["objective"] <= target), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--steps", type=int, default=20_000, help="local steps in all, of each run of the first table"
    )
    parser.add_argument("--groups", type=float, nargs="+", default=[0.1, 0.2, 0.3])
    parser.add_argument("--deployed", action="store_true")
    parser.add_argument("--group", type=float, default=0.2, help="worst group size of the deployed runs")
    parser.add_argument("--rounds", type=int, default=600, help="of a deployed run with one local step")
    parser.add_argument("--within", type=float, default=0.01)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    limits = [
        {
            "worst_group_size": rho,
            "local_steps": steps,
            "plain": limit(rho, steps, asked.steps, corrects=False),
            "control_variates": None if steps == 1 else limit(rho, steps, asked.steps, corrects=True),
        }
        for rho in asked.groups
        for steps in LOCAL_STEPS
    ]
    courses = {}
    if asked.deployed:
        rho = asked.group
        runs = {"1": (1, False), "10": (10, False), "10, control variates": (10, True)}
        courses = {
            name: deployed(rho, steps, asked.rounds, corrects=corrects) for name, (steps, corrects) in runs.items()
        }
    best = min((point["objective"] for course in courses.values() for point in course), default=0.0)
    target = best * (1.0 + asked.within)
    report(
        "control_variates",
        local_steps_in_all=asked.steps,
        limits=limits,
        deployed={
            "target": target,
            "reached": {name: reached(course, target) for name, course in courses.items()},
            "last": {name: course[-1] for name, course in courses.items()},
        },
    )


if __name__ == "__main__":
    main()
