"""Writes a module of own code into a workspace: a loader and a model, with comments, which run as they are."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path

from fedfair.errors import PlanError
from fedfair.plan.module_code import SOURCE_FOLDER

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}", re.ASCII)

MODULE = '''\
"""The records and the model of this federation. Every site reads this file before it approves the plan."""

from pathlib import Path

import numpy as np
import torch


def records(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return this site's records.

    `folder` is `data.root` of the site's own collaborator.yaml, or else the folder of that file; in a simulation
    it is the workspace. Read your files from it, such as np.load(folder / "records.npz"); name no absolute path.

    Returns features, a float array (records, columns) or (records, channels, height, width) without NaN, and
    labels, an array (records,) of whole numbers from 0 to classes - 1.
    """
    # Replace these lines. They read records that come with scikit-learn, so that this module runs as it is.
    from sklearn.datasets import load_wine

    features, labels = load_wine(return_X_y=True)
    return features, labels


class Network(torch.nn.Module):
    """From features (batch, *input_shape) to logits (batch, classes); also two classes have two logits.

    Dropout draws from the plan's seed, another draw for each round and site. GroupNorm and LayerNorm are the same
    at every size of a batch; the running statistics of BatchNorm are averaged over sites as weights are.
    """

    def __init__(self, columns: int, classes: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(columns, 32),
            torch.nn.LayerNorm(32),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.1),
            torch.nn.Linear(32, classes),
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.layers(features)


def build(schema) -> torch.nn.Module:
    """Return the model with its initial weights.

    `schema.input_shape` is the shape of one record and `schema.classes` the number of classes. Weights that torch
    draws here are the same on every machine: they follow from `training.seed` of the plan.
    """
    return Network(schema.input_shape[0], schema.classes)
'''

TASK = """\
task:
  data: {name}:records             # a function of {path}
  partition: {{scheme: random}}      # the example's records are one set; remove it where each site reads its own
  test_fraction: 0.2
  validation_fraction: 0.2
  standardize: secure              # or none, where the loader scales; for (records, columns) only
  input_shape: [13]                # of one record: nobody else tells the aggregator
  classes: 3
  model: {name}:build
"""


def write_module(workspace: Path, name: str) -> Path:
    """Write the module into the workspace's `src` and return its place.

    Args:
        workspace: the folder of the plan.
        name: of the module: a lower-case Python name that no installed module has.

    Raises:
        PlanError: the name is none that can be imported, or the file exists.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise PlanError(f"{name!r} is no name of a module", "use 1 to 40 of a-z, 0-9 and '_', such as own")
    if name in sys.stdlib_module_names or name in {"fedfair", "aggregator", "collaborator", "torch", "numpy"}:
        raise PlanError(f"{name!r} is the name of another module", "choose another, such as own")
    place = workspace / SOURCE_FOLDER / f"{name}.py"
    if place.exists():
        raise PlanError(f"{place} exists and is not replaced", "choose another name, or move the file away")
    place.parent.mkdir(exist_ok=True)
    place.write_text(MODULE, encoding="utf-8")
    return place


def task_text(name: str) -> str:
    """Return the section of the plan that uses a module, as YAML."""
    return TASK.format(name=name, path=f"{SOURCE_FOLDER}/{name}.py")
