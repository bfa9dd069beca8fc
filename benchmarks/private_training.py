"""What a step of differentially private training costs in time.

    python benchmarks/private_training.py

One plain local step, one of ours by hooks, one by ghost clipping, and one of Opacus's own DP-SGD (PrivacyEngine,
flat clipping), on the same batch of the same model. What it costs in risk is `private_risk.py`'s question.

Prints JSON; progress goes to stderr. Both say how many steps were measured.
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
from typing import get_args

import torch
from machine import report
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.nn import functional

from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from fedfair.plan.learning_rates import LearningRates
from fedfair.privacy.noise import Draws
from fedfair.privacy.per_sample import Way, per_sample_gradients
from fedfair.privacy.sample_level import Mechanism, PrivateSteps
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_sgd import Batch, LocalSteps, loss_function
from fedfair.training.loss_weightings.fedsrcvar import tail_weighting
from fedfair.training.models import mlp

RHO, EPS = 0.1, 0.01
WAYS: dict[str, Way] = {way: way for way in get_args(Way)}
KINDS = ("plain", *WAYS, "opacus")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def plain(model: FlatModel, objective: Objective, records: Batch) -> Callable[[], object]:
    losses, rates = loss_function(model, "fp32", compiled=False), LearningRates(1e-4, 1e-4)
    steps = LocalSteps(model, losses, tail_weighting(objective), rates)
    return lambda: steps.descend([records], torch.tensor(0.5))


def private(model: FlatModel, objective: Objective, records: Batch, way: Way) -> Callable[[], object]:
    gradients = per_sample_gradients(model.module, way)
    losses = loss_function(model, "fp32", compiled=False)
    size = len(records.labels)
    mechanism, rates, draws = Mechanism(objective, 1.0, 1.0), LearningRates(1e-4, 1e-4), Draws(0)
    steps = PrivateSteps(model, losses, gradients, mechanism, rates)
    return lambda: steps.descend([records], torch.tensor(0.5), size, draws)


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


def milliseconds(step: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the median times of a step, on the clock and of this process's threads."""
    for _ in range(5):
        step()
    taken, worked = [], []
    for _ in range(repeats):
        began, before = time.perf_counter(), time.process_time()
        step()
        taken.append(time.perf_counter() - began)
        worked.append(time.process_time() - before)
    return 1000 * statistics.median(taken), 1000 * statistics.median(worked)


def timed(
    kind: str, columns: int, hidden: tuple[int, ...], size: int, repeats: int, threads: int
) -> tuple[float, float]:
    """Return the median times of one step, in milliseconds; to be run in a process of its own."""
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
        step = private(FlatModel(module, torch.float32), objective, records, WAYS[kind])
    return milliseconds(step, repeats)


def step_table(repeats: int, threads: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    # What one kind leaves in the allocator slows the next one down, so each has a process of its own.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as fresh:
        for columns, hidden in ((10, ()), (16, (512,)), (784, (512,))):
            for size in (64, 256):
                shape = (columns, hidden, size, repeats, threads)
                found = {kind: fresh.submit(timed, kind, *shape).result() for kind in KINDS}
                clock = {kind: both[0] for kind, both in found.items()}
                processor = {kind: both[1] for kind, both in found.items()}
                rows.append({"columns": columns, "hidden": list(hidden), "batch": size, "milliseconds": clock})
                # A busy machine disturbs the time of the process's own threads least.
                rows[-1]["processor_milliseconds"] = processor
                say(json.dumps(rows[-1]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50, help="timed steps of each kind")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    rows = step_table(arguments.repeats, arguments.threads)
    report("private_training", threads=arguments.threads, repeats=arguments.repeats, step=rows)


if __name__ == "__main__":
    main()
