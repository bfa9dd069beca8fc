"""What a smaller trained part buys under differential privacy of records: all of a model, adapters, or its head.

The digits 5 to 9 of scikit-learn are public: a perceptron of 64 inputs and two hidden layers is trained on them
without privacy. The digits 0 to 4 are private records of one site, a fifth of them held out. The perceptron gets a
new head, and is trained on the private records by plain averaging with noise, at several epsilons:

    full    every parameter
    lora    adapters beside the hidden layers, and the head
    head    the head alone; the body is frozen

A record's gradient is clipped by its norm over what is trained, and noise is added there alone. Its norm in the
mean of a batch, sigma C sqrt(numbers) / batch, grows with how much is trained; C is 1. The noise multiplier is
found by bisection so that training alone costs epsilon. The learning rate is the best of a few by the mean loss of
the training records; that choice is not accounted.

    python benchmarks/private_adapters.py --table

Prints JSON, or a table; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import report
from private_risk import DELTA, noise_for
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from fedfair.errors import TrainingError
from fedfair.fairness.cvar import cvar
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.dataset import Dataset
from fedfair.tables.holdout import hold_out

SITE, PIXELS, CLASSES = ParticipantId("site"), 64, 5
CLIP, BATCH, STEPS, HELD_OUT, TENTH = 1.0, 128, 5, 0.2, 0.1
WIDE, PUBLIC_STEPS = 64, 1000
EPSILONS: tuple[float | None, ...] = (1.0, 3.0, 8.0, None)
RATES, PUBLIC_RATE = (0.1, 0.5, 2.0), 0.2
PARTS: Mapping[str, dict[str, object] | None] = {
    "full": None,
    "lora": {"train": ["output.*"], "lora": {"layers": ["hidden*"], "rank": 4, "alpha": 8.0}},
    "head": {"train": ["output.*"]},
}
MODEL = """
from pathlib import Path
import torch
from torch import nn


def build(_schema):
    body = torch.load(Path(__file__).with_name("body.pt"), weights_only=True)
    wide = len(body["hidden1.bias"])
    model = nn.Sequential()
    model.add_module("flat", nn.Flatten())
    for name, inputs in (("hidden1", 64), ("hidden2", wide)):
        model.add_module(name, nn.Linear(inputs, wide))
        model.add_module(f"{name}_relu", nn.ReLU())
    model.load_state_dict(body)
    model.add_module("output", nn.Linear(wide, 5))
    return model
"""
"""The workspace's own model: the pretrained body, and a head that the plan's seed draws."""

FIGURES = ("mean", "worst_tenth", "accuracy")


def digits(first: int) -> Dataset:
    """Return the records of five digits, pixels from -1 to 1."""
    bunch = load_digits()
    chosen = (bunch.target >= first) & (bunch.target < first + CLASSES)
    labels = bunch.target[chosen].astype(np.int64) - first
    return Dataset(bunch.data[chosen] / 8.0 - 1.0, labels, FeatureSchema((PIXELS,), CLASSES))


def pretrain(place: Path, wide: int, steps: int) -> None:
    """Write a workspace whose model has a body that was trained on the public digits."""
    torch.manual_seed(0)
    body = nn.Sequential()
    for name, inputs in (("hidden1", PIXELS), ("hidden2", wide)):
        body.add_module(name, nn.Linear(inputs, wide))
        body.add_module(f"{name}_relu", nn.ReLU())
    head, public = nn.Linear(wide, CLASSES), digits(CLASSES)
    features, labels = torch.from_numpy(public.features).float(), torch.from_numpy(public.labels)
    parameters = [*body.parameters(), *head.parameters()]
    for _ in range(steps):
        loss: Tensor = functional.cross_entropy(head(body(features)), labels)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.sub_(PUBLIC_RATE * gradient)
    torch.save(body.state_dict(), place / "body.pt")
    (place / "pretrained.py").write_text(MODEL)


class Trainer:
    """Trains parts of the pretrained model on the private digits.

    Args:
        workspace: from `pretrain`.
        rounds: each of `STEPS` steps.
        seeds: of splits, heads, batches and noise.
    """

    def __init__(self, workspace: Path, rounds: int, seeds: int) -> None:
        self._workspace, self._rounds, self._seeds = workspace, rounds, range(seeds)
        self._splits = [hold_out(digits(0), HELD_OUT, 0.0, seed, SITE) for seed in self._seeds]

    def best(self, part: str, noise: float | None, rates: Sequence[float]) -> dict[str, Any]:
        """Return the figures of a part at a noise multiplier, None for no privacy, at its best rate."""
        tried = {rate: runs for rate in rates if (runs := self._runs(part, noise, rate))}
        rate = min(tried, key=lambda one: statistics.fmean(run["train"] for run in tried[one]))
        runs, numbers = tried[rate], int(tried[rate][0]["numbers"])
        return {
            "part": part,
            "numbers": numbers,
            "noise_multiplier": noise,
            "noise_norm": None if noise is None else noise * CLIP * math.sqrt(numbers) / BATCH,
            "learning_rate": rate,
            **{name: statistics.fmean(run[name] for run in runs) for name in FIGURES},
            **{f"{name}_error": _error([run[name] for run in runs]) for name in FIGURES},
        }

    def _runs(self, part: str, noise: float | None, rate: float) -> list[dict[str, float]]:
        """Return the figures of every seed; none where a training left the finite numbers."""
        try:
            return [self._run(part, noise, rate, seed) for seed in self._seeds]
        except TrainingError:
            return []

    def _run(self, part: str, noise: float | None, rate: float, seed: int) -> dict[str, float]:
        outcome = simulate_sites(self._plan(part, noise, rate, seed), {SITE: self._splits[seed]}, self._workspace)
        found = outcome.losses[SITE]
        right = found["test"].correct
        return {
            "numbers": len(outcome.model.vector),
            "train": float(found["train"].values.mean()),
            "mean": float(found["test"].values.mean()),
            "worst_tenth": cvar(found["test"].values, TENTH),
            "accuracy": math.nan if right is None else float(right.mean()),
        }

    def _plan(self, part: str, noise: float | None, rate: float, seed: int) -> Plan:
        level = {"noise_multiplier": noise, "clip": CLIP, "delta": DELTA}
        return Plan.model_validate(
            {
                "federation": {"name": "bench", "collaborators": [SITE]},
                "secure_aggregation": {"mode": "off"},
                # The records are in memory; these have numeric columns too.
                "task": {"data": "breast-cancer", "standardize": "none", "model": "pretrained:build"},
                "objective": {"measure": "loss"},
                "training": {
                    "algorithm": "fedavg", "schedule": "constant", "server_optimizer": {"name": "sgd"},
                    "rounds": self._rounds, "local_steps": STEPS, "batch_size": BATCH, "learning_rate": rate,
                    "parameters": PARTS[part], "output": "last", "seed": seed, "device": "cpu",
                },
                "evaluation": {"every": self._rounds},
                "privacy": {"sample_level": None if noise is None else level},
            }
        )  # fmt: skip


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as Markdown; an error is a standard error over seeds."""
    lines = [
        "| epsilon | trained | numbers | noise norm | mean test loss | worst tenth | accuracy |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        at = "none" if row["epsilon"] is None else f"{row['epsilon']:g}"
        norm = "0" if row["noise_norm"] is None else f"{row['noise_norm']:.2f}"
        told = " | ".join(f"{row[name]:.3f} ± {row[f'{name}_error']:.3f}" for name in FIGURES)
        lines.append(f"| {at} | {row['part']} | {row['numbers']:,} | {norm} | {told} |")
    return "\n".join(lines)


def noises(targets: Sequence[float | None], rounds: int) -> dict[float | None, float | None]:
    """Return the noise multiplier at which a training costs each epsilon, whatever part is trained."""
    share = BATCH / len(hold_out(digits(0), HELD_OUT, 0.0, 0, SITE).train)
    return {target: None if target is None else noise_for(target, share, rounds * STEPS) for target in targets}


def measured(
    noise_of: Mapping[float | None, float | None],
    *,
    rounds: int,
    seeds: int,
    wide: int = WIDE,
    rates: Sequence[float] = RATES,
) -> list[dict[str, Any]]:
    """Return one row for each epsilon and part.

    Args:
        noise_of: the noise multiplier of each epsilon, None for no privacy.
        rounds: each of `STEPS` steps.
        seeds: how many trainings are averaged.
        wide: units of either hidden layer.
        rates: learning rates, of which the best is taken.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        pretrain(Path(folder), wide, PUBLIC_STEPS)
        trainer = Trainer(Path(folder), rounds, seeds)
        for target, noise in noise_of.items():
            for part in PARTS:
                rows.append({"epsilon": target, **trainer.best(part, noise, rates)})
                print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="print a table instead of JSON")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = measured(noises(EPSILONS, asked.rounds), rounds=asked.rounds, seeds=asked.seeds)
    if asked.table:
        print(table(rows))
    else:
        report("private_adapters", rows=rows)


if __name__ == "__main__":
    main()
