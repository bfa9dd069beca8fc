"""What differential privacy of records costs: worst-group risk for either clipping, and time per step.

    python benchmarks/private_training.py                            bc10, which comes with scikit-learn
    python benchmarks/private_training.py --data PATH                ACS Employment: a person file, or a folder
    python benchmarks/private_training.py --steps-only

Risk: FedSRCVaR at epsilon 1, 3, 8 and without noise, with records clipped before they are weighted and with joint
clipping, everything else equal. The noise multiplier is found by bisection so that training alone costs epsilon.
Records are standardised by fixed numbers beforehand; with `--data` those are the ranges of the codes. Learning
rates are chosen on the training records, from the same few for everybody; the noise is averaged over seeds.

Time: one step of the plain local step, of ours by hooks and by ghost clipping, and of Opacus's own DP-SGD
(PrivacyEngine, flat clipping), on the same batch of the same model.

Prints JSON; progress goes to stderr. Both say how many seeds and steps were measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from machine import report
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from scipy.optimize import brentq
from sklearn.datasets import load_breast_cancer
from torch import nn
from torch.nn import functional

from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from fedfair.ids import ParticipantId
from fedfair.learning.algorithms.fedsrcvar import tail_rule
from fedfair.learning.data.dataset import Dataset, FeatureSchema, Splits
from fedfair.learning.local import Batch, LocalSteps, loss_function
from fedfair.learning.models import mlp
from fedfair.learning.parameters import FlatModel
from fedfair.learning.simulate import simulate_sites
from fedfair.plan.data import AcsEmploymentData
from fedfair.plan.schema import Plan
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.noise import Draws
from fedfair.privacy.per_sample import per_sample_gradients
from fedfair.privacy.releases import GaussianRelease
from fedfair.privacy.sample_level import Mechanism, PrivateSteps

RHO, EPS, DELTA = 0.1, 0.01, 1e-5
EPSILONS = (1.0, 3.0, 8.0)
CLIPPINGS = ("before_weighting", "joint")
RATES = (0.05, 0.2, 0.8)
KINDS = ("plain", "hooks", "ghost", "opacus")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def bc10() -> Dataset:
    bunch = load_breast_cancer()
    features = bunch.data[:, :10]
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    return Dataset(features, bunch.target.astype(np.int64), FeatureSchema((10,), 2, tuple(range(10))))


def acs(path: Path, most: int) -> Dataset:
    from fedfair.learning.data.acs import load_acs_employment

    data = load_acs_employment(path, AcsEmploymentData(), ())
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(data))[:most]
    features = data.features[order]
    # The codes of a column run from its least to its greatest value, which the data dictionary tells.
    least, greatest = features.min(axis=0), features.max(axis=0)
    scaled = 2.0 * (features - least) / np.maximum(greatest - least, 1.0) - 1.0
    return Dataset(scaled, data.labels[order], data.schema)


def noise_for(target: float, rate: float, steps: int) -> float:
    """Return the noise multiplier at which so many steps cost the epsilon."""

    def excess(noise: float) -> float:
        return epsilon([GaussianRelease("training", noise, rate, steps)], DELTA) - target

    low, high = 0.3, 1.0
    while excess(high) > 0:
        low, high = high, 2 * high
    return float(brentq(excess, low, high, xtol=1e-3))


def plan_of(rounds: int, batch: int | str, rate: float, seed: int, privacy: dict[str, object] | None) -> Plan:
    return Plan.model_validate(
        {
            "federation": {"name": "bench", "collaborators": ["site"]},
            "task": {"data": "breast-cancer", "model": {"name": "linear"}},
            "objective": {"worst_group_size": RHO, "tradeoff": EPS},
            "training": {
                "rounds": rounds,
                "batch_size": batch,
                "learning_rate": rate,
                "threshold_learning_rate": 0.02,
                "threshold_init": 0.7,
                "output": "tail",
                "seed": seed,
                "device": "cpu",
            },
            "evaluation": {"every": 10**9, "bins": 16, "group_sizes": [RHO]},
            "privacy": {"sample_level": privacy},
        }
    )


def risks(data: Dataset, plan: Plan) -> tuple[float, float]:
    result = simulate_sites(plan, {ParticipantId("site"): Splits(data)}, Path()).result
    return result["train"]["by_group_size"][str(RHO)]["worst"], result["train"]["mean"]


def risk_table(data: Dataset, rounds: int, batch: int | str, seeds: int) -> list[dict[str, object]]:
    size = len(data) if batch == "full" else int(batch)
    rows: list[dict[str, object]] = []
    for target in (*EPSILONS, None):
        noise = 1e-6 if target is None else noise_for(target, size / len(data), rounds)
        for clipping in CLIPPINGS:
            found = []
            for rate in RATES:
                privacy = {"noise_multiplier": noise, "clipping": clipping, "delta": DELTA}
                both = [risks(data, plan_of(rounds, batch, rate, seed, privacy)) for seed in range(seeds)]
                found.append((statistics.fmean(w for w, _ in both), statistics.fmean(m for _, m in both), rate))
            # The best rate for the objective itself.
            worst, mean, rate = min(found, key=lambda one: (1 - EPS) * one[0] + EPS * one[1])
            rows.append(
                {
                    "epsilon": target,
                    "clipping": clipping,
                    "noise_multiplier": None if target is None else noise,
                    "worst": worst,
                    "mean": mean,
                    "learning_rate": rate,
                }
            )
            say(json.dumps(rows[-1]))
    unclipped = [(*risks(data, plan_of(rounds, batch, rate, 0, None)), rate) for rate in RATES]
    worst, mean, rate = min(unclipped, key=lambda one: one[0])
    rows.append({"epsilon": None, "clipping": "none", "worst": worst, "mean": mean, "learning_rate": rate})
    say(json.dumps(rows[-1]))
    return rows


def plain(model: FlatModel, objective: Objective, records: Batch) -> Callable[[], object]:
    steps = LocalSteps(model, loss_function(model, "fp32", compiled=False), tail_rule(objective), 1e-4, 1e-4)
    return lambda: steps.descend([records], torch.tensor(0.5))


def private(model: FlatModel, objective: Objective, records: Batch, way: str) -> Callable[[], object]:
    gradients = per_sample_gradients(model.module, way)
    losses = loss_function(model, "fp32", compiled=False)
    size = len(records.labels)
    steps = PrivateSteps(model, losses, gradients, Mechanism(objective, 1.0, 1.0), size, 1e-4, 1e-4, Draws(0))
    return lambda: steps.descend([records], torch.tensor(0.5))


def opacus_step(module: nn.Module, records: Batch, mode: str) -> Callable[[], object]:
    engine = PrivacyEngine()
    watched = engine._prepare_model(module, grad_sample_mode=mode, max_grad_norm=1.0, loss_reduction="mean")  # noqa: SLF001
    size = len(records.labels)
    optimizer = DPOptimizer(
        torch.optim.SGD(watched.parameters(), lr=1e-4),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=size,
    )

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(watched(records.features), records.labels).backward()
        optimizer.step()

    return step


def milliseconds(step: Callable[[], object], repeats: int) -> float:
    for _ in range(5):
        step()
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        step()
        taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken)


def timed(kind: str, columns: int, hidden: tuple[int, ...], size: int, repeats: int, threads: int) -> float:
    """Return the median time of one step, in milliseconds; to be run in a process of its own."""
    torch.set_num_threads(threads)
    # What Opacus says of its own step.
    warnings.filterwarnings("ignore", "Full backward hook is firing|Secure RNG turned off", UserWarning)
    objective = Objective(RHO, EPS, smoothing("softplus", 0.05))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = mlp(columns, hidden, 2)
        records = Batch(torch.randn(size, columns), torch.randint(2, (size,)))
    if kind == "opacus":
        step = opacus_step(module, records, "hooks")
    elif kind == "plain":
        step = plain(FlatModel(module, torch.float32), objective, records)
    else:
        step = private(FlatModel(module, torch.float32), objective, records, kind)
    return milliseconds(step, repeats)


def step_table(repeats: int, threads: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    # What one kind leaves in the allocator slows the next one down, so each has a process of its own.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as fresh:
        for columns, hidden in ((10, ()), (16, (512,)), (784, (512,))):
            for size in (64, 256):
                shape = (columns, hidden, size, repeats, threads)
                found = {kind: fresh.submit(timed, kind, *shape).result() for kind in KINDS}
                rows.append({"columns": columns, "hidden": list(hidden), "batch": size, "milliseconds": found})
                say(json.dumps(rows[-1]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="ACS Employment: a person file, or a folder of them")
    parser.add_argument("--records", type=int, default=50_000, help="at most so many records of it")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=50, help="timed steps of each kind")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps-only", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    figures: dict[str, object] = {"threads": arguments.threads}
    if not arguments.steps_only:
        data, batch = (
            (bc10(), "full") if arguments.data is None else (acs(arguments.data, arguments.records), 1000)
        )
        table = risk_table(data, arguments.rounds, batch, arguments.seeds)
        figures["risk"] = {
            "data": "bc10" if arguments.data is None else "acs_employment",
            "records": len(data),
            "rounds": arguments.rounds,
            "batch": batch,
            "seeds": arguments.seeds,
            "worst_group_size": RHO,
            "delta": DELTA,
            "rows": table,
        }
    figures["step"] = step_table(arguments.repeats, arguments.threads)
    report("private_training", **figures)


if __name__ == "__main__":
    main()
