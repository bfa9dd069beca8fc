"""An aggregator that asks twice about one crafted model: whether a site leaves tells nothing of its records.

One weight is near the largest float, so every loss of a site with records above a threshold is NaN: its updates
are equal whatever its batches are. Below the threshold the updates of two batches differ.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.aggregation.requests import GlobalModel
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from tests import bc10
from tests.actors.test_masked_worker import OneSite, form
from tests.attacks.test_values_in_the_clear import ABOVE, BELOW, THRESHOLD

RECORDS, BATCH = 40, 8
SCHEMA = FeatureSchema((2,), 2, (0, 1))


def records(value: float, count: int) -> Splits:
    """Return records that all have one value in their first column, and values of their own in the second."""
    source = np.random.default_rng(1)
    features = np.stack([np.full(count, value), source.normal(size=count)], axis=1)
    return Splits(Dataset(features, np.arange(count) % 2, SCHEMA))


def crafted(task: TrainingClient) -> GlobalModel:
    """Return a model with finite numbers below the threshold, and none above it."""
    vector = np.zeros(task.layout.dimension)
    weights = next(place for entry, place in task.layout.slices() if entry.name.endswith("weight"))
    vector[weights.start] = np.finfo(np.float64).max / THRESHOLD
    return GlobalModel(vector, 0.5)


def attempts(folder: Path, held: Splits, plan: Plan, granted: tuple[int, ...]) -> list[list[tuple[str, int]]]:
    """Return kind and length of what a site says to each attempt at a training round about one crafted model."""
    flat = flat_model(plan, SCHEMA, torch.device("cpu"), Path())
    task = TrainingClient(plan, ParticipantId("site-0"), held, flat, masked=True)
    folder.mkdir()
    site, said = OneSite(folder, task=task, model=crafted(task)), []
    try:
        for attempt in granted:
            site.answers._rule = lambda _, attempt=attempt: attempt
            said.append([form(frame) for frame in site.round()])
    finally:
        site.answers.close()
    return said


@pytest.mark.parametrize("granted", [(1, 2), (1, 1), (1, 2, 1)], ids=str)
@pytest.mark.parametrize(
    "training", [{"batch_size": BATCH}, {}, {"batch_size": BATCH, "local_epochs": 1}], ids=str
)
def test_whether_a_site_leaves_a_second_attempt_does_not_tell_whether_its_values_exceed_a_threshold(
    tmp_path: Path, training: dict[str, object], granted: tuple[int, ...]
) -> None:
    plan = bc10.plan(1, **training)
    below = attempts(tmp_path / "below", records(BELOW, RECORDS), plan, granted)
    assert attempts(tmp_path / "above", records(ABOVE, RECORDS), plan, granted) == below
    refused = [len(said) == 1 for said in below]
    repeats = [attempt in granted[:place] for place, attempt in enumerate(granted)]
    assert refused == (repeats if training else [False] + [True] * (len(granted) - 1))


def test_a_site_whose_records_are_one_batch_adds_one_computation_to_one_set_of_sites_only(tmp_path: Path) -> None:
    said = attempts(tmp_path / "small", records(BELOW, BATCH), bc10.plan(1, batch_size=BATCH), (1, 2))
    assert [len(each) == 1 for each in said] == [False, True]


def test_a_site_without_records_leaves_a_second_attempt_where_one_with_records_does(tmp_path: Path) -> None:
    plan = bc10.plan(1)
    without = attempts(tmp_path / "without", records(BELOW, 0), plan, (1, 2))
    assert without == attempts(tmp_path / "with", records(BELOW, RECORDS), plan, (1, 2))
    assert [len(said) == 1 for said in without] == [False, True]
