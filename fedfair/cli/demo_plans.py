"""The plans of `fedfair demo`: three ways to train one model for the patients of four hospitals.

The files are shipped beside this module (`heart/README.md` says whose they are, and under which licence). All keys
that a figure of the demonstration depends on are stated here, so that a new default of a plan changes none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedfair.plan.dataset_presets import HEART

Section = Mapping[str, object]

HOSPITALS: Mapping[str, str] = {
    "cleveland": "Cleveland", "hungarian": "Budapest", "switzerland": "Switzerland", "va": "Long Beach",
}  # fmt: skip
"""Where each collaborator is."""

FILES: Mapping[str, str] = {name: f"data/processed.{name}.data" for name in HOSPITALS}
"""Each hospital's own file, from the folder of a workspace."""

SEEDS, FOLDS = (0, 1, 2), 4
"""Draws of the parts into which a hospital's patients are dealt, and how many parts; each is held out once."""

ROUNDS = 100

SIZES = (0.1, 0.5)
"""Of the worst groups that are shown: those that the excess and the loss are trained for."""


def _adam(rate: float) -> Section:
    """Return the steps of today's algorithm with a rate of the server."""
    return {
        "algorithm": "fedsrcvar",
        "learning_rate": 0.01,
        "server_optimizer": {"name": "adam", "learning_rate": rate},
        "schedule": "cosine",
        "warm_up": 0.1,
    }


@dataclass(frozen=True, slots=True)
class DemoMethod:
    """One way to train.

    Attributes:
        name: of its folder.
        label: its name in a table.
        objective: of its plan.
        training: what its plan states beside what all plans state.
    """

    name: str
    label: str
    objective: Mapping[str, Any]
    training: Section

    @property
    def worst_group_size(self) -> float:
        """The share of all patients that is its worst group."""
        return float(self.objective["worst_group_size"])


METHODS = (
    DemoMethod(
        "fedavg",
        "FedAvg",
        {"measure": "loss", "worst_group_size": 0.1, "tradeoff": 0.05},
        {"algorithm": "fedavg", "learning_rate": 0.3, "server_optimizer": {"name": "sgd"}, "schedule": "constant"},
    ),
    DemoMethod(
        "loss", "RCVaR of the loss", {"measure": "loss", "worst_group_size": 0.5, "tradeoff": 0.1}, _adam(0.1)
    ),
    DemoMethod(
        "excess",
        "RCVaR of the excess",
        {
            "worst_group_size": 0.1,
            "tradeoff": 0.05,
            "measure": "excess",
            "reference": {
                "hidden": [32],
                "folds": 2,
                "rounds": 60,
                "patience": 5,
                "local_steps": 5,
                "batch_size": 256,
                "learning_rate": 0.1,
            },
        },
        _adam(0.03),
    ),
)  # fmt: skip
"""Plain averaging; the loss of the smallest group that `fedfair plan advise` finds served better than by guessing,
with the tradeoff that it advises (docs/explain/group-size.md); and the excess as docs/results/measures has it.

Their settings are the best on validation records (`benchmarks/demo_rates.py`, once, in November 2026):

    mean loss by averaging, at .03, .1, .3, 1, 3   .4381  .4032  .4026  .4128  .6140
    objective by loss, at .03, .1, .3, 1           .67277  .67238  .67245  .67280
    objective by excess, at the same               .01000  .01050  .01038  .01289
    references of 5 and 20 steps of 64; of 256     .4080  .4158; .4063  .4147
"""


def plan_of(method: DemoMethod, seed: int = SEEDS[0], fold: int = 1) -> dict[str, Any]:
    """Return the mapping of a plan.

    Args:
        method: how it trains.
        seed: of every draw, that of the parts among them.
        fold: which part is held out, from 1.
    """
    return {
        "federation": {
            "name": "demo",
            "collaborators": [*HOSPITALS],
            "min_collaborators": len(HOSPITALS),
            "join_deadline_seconds": 120,
            "round_deadline_seconds": 120,
        },
        "task": {
            "data": {"csv": {**HEART, "train_of": dict(FILES)}},
            "test_fraction": 1 / FOLDS,
            **({"test_fold": fold} if fold > 1 else {}),
            "standardize": "secure",
            "model": {"name": "linear", "init": "zeros"},
        },
        "objective": {"name": "rcvar", **method.objective, "smoothing": {"name": "zang", "gamma": 0.02}},
        "training": {
            **method.training,
            "rounds": ROUNDS,
            "local_steps": 1,
            "batch_size": "full",
            "threshold_init": "quantile",
            "weight_decay": 0.0,
            "precision": "fp64",
            "output": "last",
            "seed": seed,
        },
        "secure_aggregation": {"mode": "malicious", "most_records": 512},
        "evaluation": {"every": 25, "group_sizes": [0.1, 0.3, 0.5], "site_means": True},
    }


def put_files(folder: Path) -> None:
    """Copy each hospital's file to where the plans look for it from a folder."""
    for name, place in FILES.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files("fedfair.cli").joinpath("heart", f"processed.{name}.data").read_bytes())
