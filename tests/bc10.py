"""The data set of tests/vectors/bc10.json, cut into federations, and plans over it. For tests of training only."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from fedfair.aggregation.contribution import encode
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.running_sum import PlainSum, Totals
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.run.training_run import GlobalModel, SumRequest, TrainingRun
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.simulate import play
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from tests import plans

ORACLE = json.loads((Path(__file__).parent / "vectors" / "bc10.json").read_text())

Parts = list[NDArray[np.int64]]
"""The records of each collaborator, by their indices."""


@cache
def dataset() -> Dataset:
    """Return all 569 records: ten columns, standardised with ddof=0; class 0 is malignant."""
    bunch = load_breast_cancer()
    features = bunch.data[:, :10]
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    return Dataset(features, bunch.target.astype(np.int64), FeatureSchema((10,), 2, tuple(range(10))))


def pooled() -> tuple[torch.Tensor, torch.Tensor]:
    """Return features and labels of all records, in float64."""
    return torch.tensor(dataset().features), torch.tensor(dataset().labels)


def random_thirds() -> Parts:
    """Return three disjoint random parts of very different sizes."""
    order = np.random.default_rng(7).permutation(len(dataset()))
    return [order[:40], order[40:200], order[200:]]


def by_class() -> Parts:
    """Return the records of each class: the most unlike collaborators there can be."""
    return [np.flatnonzero(dataset().labels == label) for label in (0, 1)]


def everybody() -> Parts:
    """Return one part that holds all records, in their order."""
    return [np.arange(len(dataset()))]


def sites(parts: Parts) -> dict[ParticipantId, Splits]:
    """Return one collaborator for each part."""
    return {ParticipantId(f"site-{i}"): Splits(dataset().take(part)) for i, part in enumerate(parts)}


def plan(collaborators: int, *, objective: dict[str, object] | None = None, **training: object) -> Plan:
    """Return a full-batch fp64 plan for logistic regression from zero; `training` and `objective` override it."""
    return plans.parsed(
        [f"site-{i}" for i in range(collaborators)],
        task={"model": {"name": "linear", "init": "zeros"}},
        objective={"worst_group_size": 0.3, "tradeoff": 0.1, **(objective or {})},
        training={
            "rounds": 20,
            "batch_size": "full",
            "learning_rate": 0.1,
            "precision": "fp64",
            "device": "cpu",
            **training,
        },
        evaluation={"every": 10**9, "group_sizes": [0.1, 0.3]},
    )


class Federation:
    """A training run with all sites that take part in it, in one process."""

    def __init__(self, plan: Plan, members: dict[ParticipantId, Splits]) -> None:
        schema = next(iter(members.values())).train.schema
        self.flat = flat_model(plan, schema, torch.device("cpu"), Path())
        self.layout: Layout = self.flat.layout
        self.training_run = TrainingRun(plan, self.layout, schema, self.flat.vector())
        self.tasks = [TrainingClient(plan, name, splits, self.flat) for name, splits in members.items()]

    def begin_at(self, vector: NDArray[np.floating], threshold: float | None = None) -> None:
        """Take another model, and another threshold if one is given, in place of the present ones."""
        state = self.training_run.state
        kept = state.model.threshold if threshold is None else threshold
        self.training_run.state = replace(state, model=GlobalModel(vector.astype(state.model.vector.dtype), kept))

    def run(self) -> GlobalModel:
        """Run to the end and return the model."""
        play(self.training_run, LoopClients({task.participant: task for task in self.tasks}))
        return self.training_run.model

    def total(self, request: SumRequest, order: int = 1) -> Totals:
        """Return the total of a sum over all sites, in their order or (with -1) against it."""
        running = PlainSum(request.spec)
        for task in self.tasks[::order]:
            running.add(encode(task.contribution(request, self.training_run.model), request.spec))
        return running.totals()

    def next_training(self) -> SumRequest | None:
        """Let everything pass that comes before the next training sum, and return that; None at the end."""
        while (request := self.training_run.next_sum()) is not None and request.purpose is not Purpose.TRAINING:
            self.training_run.apply_aggregate(self.total(request))
        return request

    def losses(self) -> NDArray[np.float64]:
        """Return the training losses of all sites under the run's model."""
        held = [task.records.losses(self.training_run.model)["train"].values for task in self.tasks]
        return np.concatenate(held)


def final_model(plan: Plan, parts: Parts) -> GlobalModel:
    """Return the model that the plan trains on a federation with these parts."""
    return Federation(plan, sites(parts)).run()
