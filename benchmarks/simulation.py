"""Rounds per second of a simulation: one collaborator after the other, all at once, and (with --flower) Flower's.

An MLP with 16 inputs, 512 hidden units and 2 classes, batches of 64 of 200 records each, FedSRCVaR in float32. The
product's own training run asks for every sum and takes it; a round is from asking to having the next model. The
first rounds warm up and are left out; figures are the median and the best of the others, and the processor time of
all threads, which a busy machine disturbs least (with --threads 1: waiting threads count too). One size is
measured with the differential privacy of records, too. The last part shows that the time of a round is
proportional to the number of collaborators, up to 10 000.

Flower gets an environment of its own, which takes torch from this one; it trains the same sizes with plain
averaging in its simulation engine (Ray), one process for each core.
Usage: python benchmarks/simulation.py [--quick] [--flower] [--environment FOLDER] [--seconds 10] [--threads N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from machine import report
from paper_steps import SMOOTHING, constant_steps

from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import ReleaseLog
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.clients import Clients
from fedfair.simulation.cohort import cohort_of
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model

FLOWER = "flwr[simulation]==1.41.0"
COLUMNS, HIDDEN, CLASSES, RECORDS, BATCH = 16, 512, 2, 200, 64
SIZES = ((51, 1), (51, 10), (1000, 1))
CURVE = (10, 30, 100, 300, 1000, 3000, 10_000)
"""(collaborators, local steps), and collaborators with one local step."""

TARGETS = {(51, 1): 180.0, (51, 10): 20.0, (1000, 1): 9.0}
"""Rounds per second on two idle cores."""

PRIVATE = ((51, 1), (5, 2))
"""Sizes that are measured with the differential privacy of records, too."""

WARM_UP, FEWEST, MOST = 2, 3, 200

Sites = Mapping[ParticipantId, Splits]


def sites_of(collaborators: int) -> Sites:
    """Return sites with random records."""
    source = np.random.default_rng(0)
    schema = FeatureSchema((COLUMNS,), CLASSES, tuple(range(COLUMNS)))
    features = source.normal(size=(collaborators, RECORDS, COLUMNS))
    labels = source.integers(0, CLASSES, (collaborators, RECORDS))
    return {
        ParticipantId(f"site-{k}"): Splits(Dataset(features[k], labels[k], schema)) for k in range(collaborators)
    }


def plan_of(local_steps: int, *, private: bool) -> Plan:
    """Return the plan; the collaborators that it names play no part here."""
    return Plan.model_validate(
        {
            "federation": {"name": "benchmark", "collaborators": ["site-0"]},
            # A masked sum clips every change, which then must exist by itself: that is another measurement.
            "secure_aggregation": {"mode": "off"},
            "task": {"data": "breast-cancer", "standardize": "none", "model": {"name": "mlp", "hidden": [HIDDEN]}},
            "objective": {"measure": "loss", "smoothing": SMOOTHING},
            "training": {
                **constant_steps(),
                "output": "last",
                "rounds": 10**6,
                "batch_size": BATCH,
                "local_steps": local_steps,
                "learning_rate": 0.01,
                "device": "cpu",
            },
            "evaluation": {"every": 10**9},
            "privacy": {"sample_level": {"noise_multiplier": 1.0} if private else None},
        }
    )


def everybody(engine: str, plan: Plan, sites: Sites) -> tuple[TrainingRun, Clients]:
    """Return a training run and every site in it."""
    schema = next(iter(sites.values())).train.schema
    model = flat_model(plan, schema, torch.device("cpu"), Path())
    training_run = TrainingRun(plan, model.layout, schema, model.vector())
    logs = {name: ReleaseLog() for name in sites}
    return training_run, cohort_of(plan, sites, model, logs, vectorised=engine == "vectorised")


def measure(
    engine: str, collaborators: int, steps: int, seconds: float, *, private: bool = False
) -> dict[str, float]:
    """Return rounds per second over about so many seconds, and what a local step takes."""
    began = time.perf_counter()
    processor: list[float] = []
    training_run, cohort = everybody(engine, plan_of(steps, private=private), sites_of(collaborators))
    set_up = time.perf_counter() - began
    rounds: list[float] = []
    while len(rounds) < WARM_UP + FEWEST or (sum(rounds) < seconds and len(rounds) < MOST):
        request = training_run.next_sum()
        if request is None:
            raise SystemExit("the run ended before the measurement")
        start, worked = time.perf_counter(), time.process_time()
        training_run.apply_aggregate(cohort.totals(request, training_run.model))
        if request.purpose is Purpose.TRAINING:
            rounds.append(time.perf_counter() - start)
            processor.append(time.process_time() - worked)
    worked = statistics.median(processor[WARM_UP:])
    return figures(rounds[WARM_UP:], collaborators, steps) | {
        "processor_microseconds_per_local_step": 1e6 * worked / (collaborators * steps),
        "set_up_seconds": set_up,
    }


def figures(rounds: list[float], collaborators: int, steps: int) -> dict[str, float]:
    """Return what rounds of these lengths come to."""
    median = statistics.median(rounds)
    return {
        "rounds_per_second_median": 1 / median,
        "rounds_per_second_best": 1 / min(rounds),
        "microseconds_per_local_step": 1e6 * median / (collaborators * steps),
        "rounds": len(rounds),
    }


def flower(python: Path, collaborators: int, steps: int) -> dict[str, float]:
    """Measure Flower's simulation engine at one size, in its own environment."""
    size = {
        "collaborators": collaborators, "local_steps": steps, "records": RECORDS, "batch": BATCH,
        "columns": COLUMNS, "hidden": HIDDEN, "classes": CLASSES, "rounds": WARM_UP + 5,
    }  # fmt: skip
    script = Path(__file__).with_name("flower_simulation_side.py")
    done = subprocess.run(
        [python, script, json.dumps(size)], check=False, capture_output=True, text=True, timeout=1800
    )
    if done.returncode:
        raise SystemExit(f"Flower's side failed:\n{done.stderr[-4000:]}")
    rounds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures(rounds[WARM_UP:], collaborators, steps)


def environment(folder: Path) -> Path:
    """Return the Python of an environment with Flower, made in `folder` unless it is there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", FLOWER], check=True, stdout=sys.stderr)
    # Flower's own pins come first; what it does not have, torch above all, is taken from here.
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    (Path(own.stdout.strip()) / "torch_from_fedfair.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def compare(collaborators: int, steps: int, seconds: float, python: Path | None) -> dict[str, object]:
    """Measure one size with every engine."""
    found: dict[str, object] = {"collaborators": collaborators, "local_steps": steps}
    if (collaborators, steps) in TARGETS:
        found["target_rounds_per_second"] = TARGETS[collaborators, steps]
    for engine in ("loop", "vectorised"):
        found[engine] = measure(engine, collaborators, steps, seconds)
        if (collaborators, steps) in PRIVATE:
            found[f"{engine}, private"] = measure(engine, collaborators, steps, seconds, private=True)
    if python is not None:
        found["flower"] = flower(python, collaborators, steps)
    for engine in ("loop", "vectorised", "loop, private", "vectorised, private", "flower"):
        speed = found.get(engine)
        if isinstance(speed, dict):
            rate = speed["rounds_per_second_median"]
            print(f"{collaborators} x {steps}  {engine:19}  {rate:8.1f} rounds/s", file=sys.stderr)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--flower", action="store_true", help="measure Flower too")
    parser.add_argument("--environment", type=Path, help="keep Flower's environment here, or take it from here")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure each size")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch, for ours")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sizes, curve = (((5, 2),), (5, 50)) if options.quick else (SIZES, CURVE)
    with tempfile.TemporaryDirectory(prefix="flower-") as temporary:
        python = environment(options.environment or Path(temporary)) if options.flower else None
        load = os.getloadavg()
        found = [compare(*size, options.seconds, python) for size in sizes]
    linear = {count: measure("vectorised", count, 1, options.seconds) for count in curve}
    report("simulation", threads=torch.get_num_threads(), load_averages_before=load, sizes=found, curve=linear)


if __name__ == "__main__":
    main()
