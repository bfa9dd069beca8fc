"""What a local step of FedSRCVaR costs over one of FedAvg: MLP with 512 hidden units, batches of 64.

Both run the product's own local steps on the same batches, in turn, so that a change of the machine's speed hits
both alike; the figure is the median of the ratios of neighbouring blocks. Inputs: 784 (MNIST) and 16 (ACS), the
two models of the paper.
"""

from __future__ import annotations

import statistics
import time

import torch
from machine import report

from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import smoothing
from fedfair.plan.learning_rates import LearningRates
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_sgd import Batch, LocalSteps, loss_function
from fedfair.training.loss_weightings.fedavg import equal_coefficients
from fedfair.training.loss_weightings.fedsrcvar import tail_weighting

BLOCKS, STEPS, BATCH, HIDDEN = 60, 50, 64, 512


def measure(inputs: int, classes: int) -> dict[str, object]:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(inputs, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, classes)
    )
    model = FlatModel(module, torch.float32)
    batches = [Batch(torch.randn(BATCH, inputs), torch.randint(classes, (BATCH,))) for _ in range(STEPS)]
    objective = Objective(0.1, 0.01, smoothing("softplus", 0.05))
    losses = loss_function(model, "fp32", compiled=False)
    rules = {
        "fedavg": equal_coefficients,
        "fedsrcvar": tail_weighting(objective),
    }
    rates = {"fedavg": LearningRates(1e-4, None), "fedsrcvar": LearningRates(1e-4, 1e-4)}
    steps = {name: LocalSteps(model, losses, rule, rates[name]) for name, rule in rules.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for block in range(BLOCKS + 2):
        for name in sorted(steps, reverse=block % 2 == 1):
            start = time.perf_counter()
            steps[name].descend(batches, torch.tensor(0.5))
            if block >= 2:  # the first two blocks warm up
                seconds[name].append((time.perf_counter() - start) / STEPS)
    ratios = [fair / plain for fair, plain in zip(seconds["fedsrcvar"], seconds["fedavg"], strict=True)]
    return {
        "fedavg_microseconds": 1e6 * statistics.median(seconds["fedavg"]),
        "fedsrcvar_microseconds": 1e6 * statistics.median(seconds["fedsrcvar"]),
        "ratio_median": statistics.median(ratios),
        "ratio_quartiles": statistics.quantiles(ratios, n=4)[::2],
    }


if __name__ == "__main__":
    report(
        "step_overhead",
        target_ratio=1.03,
        batch=BATCH,
        hidden=HIDDEN,
        threads=torch.get_num_threads(),
        inputs_784=measure(784, 10),
        inputs_16=measure(16, 2),
    )
