"""Measures rounds of large simulations: the vectorised engine in one process, and sharded over workers of Ray.

An MLP with 16 inputs, 32 hidden units and 2 classes; every collaborator has 32 records and makes one step on 16 of
them; FedSRCVaR in float32, sums in the clear. A round is from asking to having the next model; the first warms up
and is left out, and the median of the others counts. Setting up is making and dealing records, and starting
workers. One evaluation is timed too: it brings the losses of all records to the one who asks.

Usage: python benchmarks/ray_workers.py [--quick] [--rounds 5] [--sizes 1000 10000 100000]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import torch
from machine import report
from paper_steps import SMOOTHING, constant_steps

from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.all_clients import simulated_clients
from fedfair.simulation.backend import RayCluster
from fedfair.simulation.sharded.clients import ignore_loss
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.binding import bound

COLUMNS, HIDDEN, CLASSES, RECORDS, BATCH = 16, 32, 2, 32, 16
SIZES = (1000, 10_000, 100_000)
WORKERS = (None, 1, 2)
"""Workers of Ray; None for the vectorised engine in this process."""


def sites_of(names: list[str]) -> dict[ParticipantId, Splits]:
    """Return sites with random records."""
    source = np.random.default_rng(0)
    schema = FeatureSchema((COLUMNS,), CLASSES, tuple(range(COLUMNS)))
    features = source.normal(size=(len(names), RECORDS, COLUMNS))
    labels = source.integers(0, CLASSES, (len(names), RECORDS))
    return {ParticipantId(name): Splits(Dataset(features[k], labels[k], schema)) for k, name in enumerate(names)}


def plan_of(names: list[str], rounds: int) -> Plan:
    """Return a plan that is evaluated once, after its last round."""
    return Plan.model_validate(
        {
            "federation": {"name": "benchmark", "collaborators": names},
            "secure_aggregation": {"mode": "off"},
            "task": {"data": "breast-cancer", "standardize": "none", "model": {"name": "mlp", "hidden": [HIDDEN]}},
            "objective": {"measure": "loss", "smoothing": SMOOTHING},
            "training": {
                **constant_steps(),
                "output": "last",
                "rounds": rounds,
                "batch_size": BATCH,
                "local_steps": 1,
                "learning_rate": 0.01,
                "device": "cpu",
            },
            "evaluation": {"every": 10**9},
        }
    )


def measure(collaborators: int, workers: int | None, rounds: int) -> dict[str, object]:
    """Return what a simulation of one size takes."""
    began = time.perf_counter()
    names = [f"site-{k}" for k in range(collaborators)]
    plan, sites = plan_of(names, rounds + 1), sites_of(names)
    made = time.perf_counter() - began
    binding = bound(plan, next(iter(sites.values())).train.schema, Path())
    cluster = None if workers is None else RayCluster(workers=workers)
    times: dict[Purpose, list[float]] = {purpose: [] for purpose in Purpose}
    with simulated_clients(plan, sites, Path(), "vectorised", cluster, ignore_loss) as clients:
        run = TrainingRun(plan, binding.layout, clients.schema, binding.vector)
        cohort = clients.cohort(plan, sites)
        set_up = time.perf_counter() - began - made
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        worked = [processor_seconds(processes)]
        while (request := run.next_sum()) is not None:
            start = time.perf_counter()
            run.apply_aggregate(cohort.totals(request, run.model), cohort.names)
            times[request.purpose].append(time.perf_counter() - start)
            if request.purpose is Purpose.TRAINING:
                worked.append(processor_seconds(processes))
        memory = [process.memory_info().rss - process.memory_info().shared for process in processes]
    steps = times[Purpose.TRAINING][1:]
    return {
        "collaborators": collaborators,
        "workers": workers,
        "rounds_per_second": 1 / statistics.median(steps),
        "best_rounds_per_second": 1 / min(steps),
        "rounds": len(steps),
        "processor_seconds_per_round": (worked[-1] - worked[1]) / len(steps),
        "records_seconds": made,
        "set_up_seconds": set_up,
        "evaluation_seconds": times[Purpose.EVALUATION][-1],
        "megabytes": sum(memory) / 1e6,
        "model_sum": float(np.abs(run.model.vector).sum()),
        "load_averages": os.getloadavg(),
    }


def processor_seconds(processes: list[psutil.Process]) -> float:
    """Return what all processes have worked, which a busy machine disturbs least."""
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, at least 1")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of collaborators")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for size in (50,) if options.quick else options.sizes:
        for workers in WORKERS:
            found.append(measure(size, workers, options.rounds))
            who = "vectorised" if workers is None else f"ray, {workers}"
            speed, worked = found[-1]["rounds_per_second"], found[-1]["processor_seconds_per_round"]
            words = f"{size:7} {who:11} {speed:9.3f} rounds/s, {worked:.3f} s of processors a round"
            print(words, found[-1]["load_averages"], file=sys.stderr, flush=True)
    report("ray_workers", threads=1, sizes=found)


if __name__ == "__main__":
    main()
