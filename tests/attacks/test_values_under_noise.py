"""An aggregator that asks about one patient where single records are protected by noise, masks or no masks.

The promise is that a record might as well have been one that contributes nothing. A model may have no finite
numbers about this record, or fail on it; an update without noise, or a site that leaves, would tell.
"""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedfair.aggregation.contribution import encode
from fedfair.aggregation.requests import GlobalModel
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.plan.schema import Plan
from fedfair.statistics.table import Purpose
from fedfair.tables.dataset import Splits
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import RecordProtection
from tests.attacks.test_values_in_the_clear import MODULE, PICKY
from tests.contributions import evaluation_of
from tests.plans import small_plan

RECORDS = 16
OFF = 1e30
"""Times itself it is beyond the largest float32."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    yield
    sys.modules.pop(MODULE, None)


def site(folder: Path, features: NDArray[np.float64], model: object, *, masked: bool, way: str) -> TrainingClient:
    """Return one site under a plan that protects its records, with these features and labels 0."""
    protection = {"mode": "malicious"} if masked else None
    stated = small_plan(rounds=1, precision="fp32", local_steps=1, protection=protection)
    task = stated["task"]
    assert isinstance(task, dict)
    level = {"sample_level": {"noise_multiplier": 1.0, "clip": 1.0, "gradients": way}}
    plan = Plan.model_validate(
        {**stated, "task": {**task, "standardize": "none", "model": model}, "privacy": level}
    )
    name, splits = next(iter(load_federation(plan, folder).items()))
    columns = {key: values[: len(features)] for key, values in splits.train.columns.items()}
    labels = np.zeros(len(features), np.int64)
    train = replace(splits.train, features=features, labels=labels, columns=columns)
    seeds = itertools.count(1)
    protected = RecordProtection(lambda *_: next(seeds), lambda _: None)
    built = flat_model(plan, train.schema, torch.device("cpu"), folder)
    return TrainingClient(plan, name, Splits(train, None, None), built, protection=protected, masked=masked)


def crafted(task: TrainingClient) -> GlobalModel:
    """Return a model that has finite numbers about records whose second feature is 1, and about no others."""
    vector = np.zeros(task.layout.dimension, np.float32)
    place = {entry.name: where for entry, where in task.layout.slices()}
    first, second = np.zeros((4, 30), np.float32), np.zeros((2, 4), np.float32)
    first[:2, 1], second[0, :2] = (OFF, -OFF), OFF
    vector[place["hidden1.weight"]], vector[place["output.weight"]] = first.ravel(), second.ravel()
    vector[place["hidden1.bias"]] = [-OFF, OFF, 0.0, 0.0]
    return GlobalModel(vector, 0.1)


def sent(task: TrainingClient, model: GlobalModel, *, masked: bool) -> NDArray[np.floating]:
    """Return the change that leaves the site in round 1."""
    if masked:
        change = task.summable_change(model, 1, 1)
        assert change.replaced == 0
        return change.model
    contribution = task.rounds.contribution(model, 1, 1)
    spec = sum_specs(task._plan, task.layout, task.records.splits.train.schema)[Purpose.TRAINING]
    encode(contribution, spec)
    return contribution.body


@pytest.mark.parametrize("masked", [False, True], ids=["clear", "masked"])
@pytest.mark.parametrize("way", ["auto", "hooks", "ghost"])
@pytest.mark.parametrize("spoilt", [1, RECORDS], ids=["one record", "every record"])
def test_records_about_which_a_model_has_no_finite_numbers_leave_the_noise_in_place(
    tmp_path: Path, way: str, spoilt: int, *, masked: bool
) -> None:
    features = np.zeros((RECORDS, 30))
    features[:, 1] = 1.0
    features[:spoilt, 1] = 2.0
    task = site(tmp_path, features, {"name": "mlp", "hidden": [4]}, masked=masked, way=way)
    change = sent(task, crafted(task), masked=masked)
    assert np.isfinite(change).all()
    assert np.count_nonzero(change) > change.size / 2


@pytest.mark.parametrize("masked", [False, True], ids=["clear", "masked"])
def test_a_model_that_fails_on_a_record_leaves_the_noise_in_place(tmp_path: Path, *, masked: bool) -> None:
    source = tmp_path / "src" / f"{MODULE}.py"
    source.parent.mkdir()
    source.write_text(PICKY)
    features = np.zeros((RECORDS, 30))
    features[0, 0] = 1842.0
    task = site(tmp_path, features, f"{MODULE}:build", masked=masked, way="auto")
    model = GlobalModel(np.zeros(task.layout.dimension, np.float32), 0.1)
    change = sent(task, model, masked=masked)
    assert np.isfinite(change).all()
    assert np.count_nonzero(change) == change.size
    assert np.isfinite(evaluation_of(task, model).header).all()
    assert "ValueError" in task.last_fault
