"""The settings of each method of `fedfair demo`, by validation records of its four hospitals.

Eight draws, of seeds that the demonstration does not use, hold out a quarter of each hospital's patients as
validation records; all others train. Plain averaging is judged by its mean loss, the two others by their own
objective, of their loss or of their excess. The rate is the sites' of plain averaging, and the server's of the
others. References of the excess, by steps between two sums and records of a batch, are judged by the mean loss of
the model less its mean excess: so much the reference reaches, as far as it is calibrated. Prints the mean over the
draws of each, and the best.

    python benchmarks/demo_rates.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import report

from fedfair.cli.demo_plans import METHODS, DemoMethod, plan_of, put_files
from fedfair.plan.schema import Plan
from fedfair.results.risks import SplitRisk
from fedfair.simulation.simulate import simulate

SEEDS = range(10, 18)
RATES = {"fedavg": (0.03, 0.1, 0.3, 1.0, 3.0), "loss": (0.03, 0.1, 0.3, 1.0), "excess": (0.03, 0.1, 0.3, 1.0)}
REFERENCES = tuple({"local_steps": steps, "batch_size": batch} for steps in (5, 20) for batch in (64, 256))

Change = Callable[[dict[str, Any]], None]


def rate_of(rate: float) -> Change:
    """Return what gives a plan this rate."""

    def change(plan: dict[str, Any]) -> None:
        training = plan["training"]
        server = training["server_optimizer"]
        if server["name"] == "sgd":
            training["learning_rate"] = rate
        else:
            training["server_optimizer"] = {**server, "learning_rate": rate}

    return change


def reference_of(stated: Mapping[str, int]) -> Change:
    """Return what gives a plan such references."""

    def change(plan: dict[str, Any]) -> None:
        plan["objective"]["reference"] = {**plan["objective"]["reference"], **stated}

    return change


def validated(method: DemoMethod, change: Change, root: Path) -> list[tuple[Plan, SplitRisk]]:
    """Return the plan of every draw with its validation records' figures."""
    found = []
    for seed in SEEDS:
        values = plan_of(method, seed)
        change(values)
        held_out = values["task"]["test_fraction"]
        values["task"] |= {"test_fraction": 0.0, "validation_fraction": held_out}
        plan = Plan.model_validate(values)
        risk = simulate(plan, root).result.validation
        assert risk is not None  # noqa: S101 - the plan holds validation records out
        found.append((plan, risk))
    return found


def objective(plan: Plan, risk: SplitRisk) -> float:
    """Return what the method of a plan is judged by."""
    if plan.training.algorithm == "fedavg":
        return risk.mean
    stated, metrics = plan.objective, excess(risk)
    worst, mean = metrics or (risk.worst_risk(stated.worst_group_size), risk.mean)
    return (1.0 - stated.tradeoff) * worst + stated.tradeoff * mean


def excess(risk: SplitRisk) -> tuple[float, float] | None:
    """Return the excess of the worst group and of everybody; None where it is not measured."""
    told: dict[str, Any] = risk.metrics or {}
    return (told["worst_group_excess"], told["mean_excess"]) if told else None


def reached(_: Plan, risk: SplitRisk) -> float:
    """Return what the references of a run reach."""
    measured = excess(risk)
    assert measured is not None  # noqa: S101 - they are references of the excess
    return risk.mean - measured[1]


def mean_of(method: DemoMethod, change: Change, root: Path, judge: Callable[[Plan, SplitRisk], float]) -> float:
    """Return the mean of a figure over the draws."""
    return float(np.mean([judge(plan, risk) for plan, risk in validated(method, change, root)]))


def main() -> None:
    torch.set_num_threads(1)
    *_, by_excess = METHODS
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        put_files(root)
        told = {
            each.name: {str(rate): mean_of(each, rate_of(rate), root, objective) for rate in RATES[each.name]}
            for each in METHODS
        }
        told["reference"] = {
            "{local_steps} steps of {batch_size}".format(**stated): mean_of(
                by_excess, reference_of(stated), root, reached
            )
            for stated in REFERENCES
        }
    best = {name: min(figures, key=lambda one: figures[one]) for name, figures in told.items()}
    report("demo_rates", figures=told, best=best)


if __name__ == "__main__":
    main()
