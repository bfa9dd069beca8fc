"""Training samples per second on a GPU or a CPU: plain torch, FedAvg, FedSRCVaR, with DP, and Opacus's DP-SGD.

    python benchmarks/gpu.py                                  the GPU, every model, fp32 and bf16
    python benchmarks/gpu.py --device cpu --quick             to see that it runs
    python benchmarks/gpu.py --device cpu --cases mlp-512 --batch 64

Models: ResNet-18 with GroupNorm on images of 32x32 and 64x64 in 3 channels, and an MLP of 784, 512 and 10. Records
are random numbers that lie on the device; every step draws the indices of a batch on the CPU and gathers it there,
for every kind alike, and makes one update. Batches have a fixed size, also those of private steps, so that all do
the same work.

    torch, opacus, opacus-ghost      what somebody would write with the library alone: its own loop and optimizer
    fedavg, fedsrcvar                the product's local steps
    auto, hooks, ghost               the same with the differential privacy of records

A figure is the median over blocks of steps, each with a wait for the device at both ends, after warm-up blocks.
`processor_milliseconds_per_step` is the time of the CPU's threads, which a busy machine disturbs least.
`peak_mib` is the most that PyTorch's allocator held on the GPU (null on a CPU). `round_milliseconds` is what a
round costs beside its steps: the model to the device, its change back, and the upload's bytes. With bf16 the ghost
kinds are left out: the product refuses them, and Opacus's would clip by the norms of other gradients.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from machine import processor, report
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

from fedfair.aggregation.contribution import Contribution, encode
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import PlanError
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from fedfair.plan.learning_rates import LearningRates
from fedfair.privacy.noise import Draws
from fedfair.privacy.per_sample import Way, per_sample_gradients
from fedfair.privacy.sample_level import Mechanism, PrivateSteps
from fedfair.statistics.table import Purpose
from fedfair.training.device import SplitRecords, choose_device, plain_arithmetic
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_sgd import AUTOCAST, Batch, LocalSteps, loss_function
from fedfair.training.loss_weightings.fedavg import equal_coefficients
from fedfair.training.loss_weightings.fedsrcvar import tail_weighting
from fedfair.training.models import mlp
from fedfair.training.resnet import resnet18

RATE, CLASSES = 1e-4, 10
CASES: dict[str, tuple[int, ...]] = {"mlp-512": (784,), "resnet18-32": (3, 32, 32), "resnet18-64": (3, 64, 64)}
WAYS: dict[str, Way] = {way: way for way in get_args(Way)}
KINDS = ("torch", "fedavg", "fedsrcvar", *WAYS, "opacus", "opacus-ghost")
NOT_IN_BF16 = ("ghost", "opacus-ghost")
Step = Callable[[Tensor], object]
"""One step on the records at these indices."""


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    records: int
    batch: int
    steps: int
    blocks: int
    warm_up: int


def module_of(case: str) -> nn.Module:
    shape = CASES[case]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return mlp(shape[0], (512,), CLASSES) if len(shape) == 1 else resnet18(3, shape[1], CLASSES, "group")


def records_of(case: str, count: int, device: torch.device) -> SplitRecords:
    source = np.random.Generator(np.random.PCG64(0))
    features = source.standard_normal((count, *CASES[case]), dtype=np.float32)
    labels = source.integers(0, CLASSES, count)
    held = SplitRecords(torch.from_numpy(features), torch.from_numpy(labels), device)
    return SplitRecords(*held.everything(), device)


def own_step(kind: str, model: FlatModel, records: SplitRecords, precision: str, batch: int) -> Step:
    losses = loss_function(model, precision, compiled=False)
    objective = Objective(0.1, 0.01, smoothing("softplus", 0.05))
    threshold = torch.tensor(0.5, device=records.device)
    if kind in WAYS:
        gradients, mechanism = per_sample_gradients(model.module, WAYS[kind]), Mechanism(objective, 1.0, 1.0)
        private, draws = PrivateSteps(model, losses, gradients, mechanism, LearningRates(RATE, RATE)), Draws(0)
        return lambda indices: private.descend([Batch(*records.take(indices))], threshold, batch, draws)
    if kind == "fedsrcvar":
        steps = LocalSteps(model, losses, tail_weighting(objective), LearningRates(RATE, RATE))
    else:
        steps = LocalSteps(model, losses, equal_coefficients, LearningRates(RATE, None))
    return lambda indices: steps.descend([Batch(*records.take(indices))], threshold)


def library_step(kind: str, module: nn.Module, records: SplitRecords, precision: str, batch: int) -> Step:
    """Return the loop of somebody who uses torch, or Opacus, alone."""
    module = module.to(records.device)
    noise = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": batch}
    criterion: Callable[[Tensor, Tensor], Tensor] = nn.CrossEntropyLoss()
    if kind == "torch":
        optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    elif kind == "opacus":
        module = GradSampleModule(module)
        optimizer = DPOptimizer(torch.optim.SGD(module.parameters(), lr=RATE), **noise)
    else:
        module = GradSampleModuleFastGradientClipping(module, max_grad_norm=1.0, use_ghost_clipping=True)
        optimizer = DPOptimizerFastGradientClipping(torch.optim.SGD(module.parameters(), lr=RATE), **noise)
        criterion = DPLossFastGradientClipping(module, optimizer, nn.CrossEntropyLoss())

    def half() -> AbstractContextManager[object]:
        return torch.autocast(records.device.type, AUTOCAST[precision]) if precision in AUTOCAST else nullcontext()

    def step(indices: Tensor) -> None:
        features, labels = records.take(indices)
        optimizer.zero_grad()
        with half():
            logits = module(features)
        criterion(logits.float(), labels).backward()
        optimizer.step()

    return step


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_per_block(step: Step, device: torch.device, effort: Effort) -> list[tuple[float, float]]:
    """Return for each block the time on the clock and that of this process's threads."""
    source, taken = torch.Generator().manual_seed(0), []
    for _ in range(effort.warm_up + effort.blocks):
        wait(device)
        began, worked = time.perf_counter(), time.process_time()
        for _ in range(effort.steps):
            step(torch.randint(effort.records, (effort.batch,), generator=source))
        wait(device)
        taken.append((time.perf_counter() - began, time.process_time() - worked))
    return taken[effort.warm_up :]


def round_milliseconds(model: FlatModel, device: torch.device, repeats: int) -> dict[str, float]:
    vector, width = model.vector(), model.layout.dtype.newbyteorder("<")
    spec = SumSpec(Purpose.TRAINING, 2, model.layout.dimension, width)
    taken: dict[str, list[float]] = {"load": [], "change": [], "encode": []}
    for _ in range(repeats + 1):
        wait(device)
        moments = [time.perf_counter()]
        model.load(vector)
        wait(device)
        moments.append(time.perf_counter())
        change = model.take_change()
        moments.append(time.perf_counter())
        encode(Contribution(np.zeros(2), change), spec)
        moments.append(time.perf_counter())
        for name, (start, end) in zip(taken, itertools.pairwise(moments), strict=True):
            taken[name].append(1000 * (end - start))
    return {name: statistics.median(values[1:]) for name, values in taken.items()}


def measure(case: str, kind: str, precision: str, device: torch.device, effort: Effort) -> dict[str, object]:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    records = records_of(case, effort.records, device)
    row: dict[str, object] = {"case": case, "kind": kind, "precision": precision, "batch": effort.batch}
    if kind in ("torch", "opacus", "opacus-ghost"):
        step = library_step(kind, module_of(case), records, precision, effort.batch)
        blocks = seconds_per_block(step, device, effort)
    else:
        model = FlatModel(module_of(case), torch.float32, device)
        step = own_step(kind, model, records, precision, effort.batch)
        with plain_arithmetic():
            blocks = seconds_per_block(step, device, effort)
        row["round_milliseconds"] = round_milliseconds(model, device, effort.blocks)
    rates = sorted(effort.steps * effort.batch / seconds for seconds, _ in blocks)
    row["samples_per_second"], row["range"] = statistics.median(rates), [rates[0], rates[-1]]
    row["processor_milliseconds_per_step"] = (
        1000 * statistics.median(worked for _, worked in blocks) / effort.steps
    )
    on_gpu = device.type == "cuda"
    row["peak_mib"] = torch.cuda.max_memory_allocated(device) / 2**20 if on_gpu else None
    return row


def effort_of(arguments: argparse.Namespace, case: str) -> Effort:
    if arguments.quick:
        return Effort(records=8, batch=2, steps=1, blocks=1, warm_up=0)
    batch = arguments.batch or (256 if case == "mlp-512" else 128)
    return Effort(max(2048, batch), batch, arguments.steps, arguments.blocks, 2)


def wanted(precisions: Sequence[str], kinds: Sequence[str]) -> list[tuple[str, str]]:
    pairs = itertools.product(precisions, kinds)
    return [(precision, kind) for precision, kind in pairs if precision == "fp32" or kind not in NOT_IN_BF16]


def device_words(device: torch.device) -> dict[str, object]:
    if device.type != "cuda":
        return {"type": device.type, "name": processor(), "threads": torch.get_num_threads()}
    name, versions = torch.cuda.get_device_name(device), (torch.version.cuda, torch.backends.cudnn.version())
    return {"type": "cuda", "name": name, "cuda": versions[0], "cudnn": versions[1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=tuple(CASES))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"], choices=("fp32", "bf16"))
    parser.add_argument("--batch", type=int, help="records in a batch; by default 256 (MLP) or 128")
    parser.add_argument("--steps", type=int, default=20, help="steps in a block")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch, on a CPU")
    parser.add_argument("--quick", action="store_true", help="one step of two records each, to see that it runs")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    # What Opacus says of its own step.
    warnings.filterwarnings("ignore", "Full backward hook is firing|Secure RNG turned off", UserWarning)
    try:
        device, rows = choose_device(arguments.device), []
    except PlanError as fault:
        raise SystemExit(f"{fault.message}; {fault.remedy}") from fault
    for case, (precision, kind) in itertools.product(
        arguments.cases, wanted(arguments.precisions, arguments.kinds)
    ):
        rows.append(measure(case, kind, precision, device, effort_of(arguments, case)))
        rate = rows[-1]["samples_per_second"]
        print(f"{case} {precision} {kind}: {rate:.0f} samples/s", file=sys.stderr, flush=True)
    report("gpu", device=device_words(device), quick=arguments.quick, rows=rows)


if __name__ == "__main__":
    main()
