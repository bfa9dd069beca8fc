"""What only a GPU can show: page-locked memory, its own stream, its generators, and its arithmetic.

Skipped where there is none; `test_accelerator.py` tests all that a stand-in can show.
"""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from fedfair.aggregation.requests import GlobalModel
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.privacy.noise import Draws
from fedfair.privacy.releases import ReleaseLog
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.device import SplitRecords
from fedfair.training.dp_sgd import RecordProtection
from tests import plans

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")

NAME = ParticipantId("site-0")
NO_NOISE = 1e-20
"""A noise multiplier whose noise is lost in float32: that of a GPU is drawn there, and is another one."""


@functools.cache
def records() -> Dataset:
    source = np.random.default_rng(4)
    return Dataset(source.normal(size=(500, 20)), source.integers(0, 3, 500), FeatureSchema((20,), 3))


def change(device: str, gradients: str | None, precision: str = "fp32", *, travelling: bool = False) -> np.ndarray:
    privacy = None if gradients is None else {"noise_multiplier": NO_NOISE, "gradients": gradients}
    plan = plans.parsed(
        [NAME], task={"model": {"name": "mlp", "hidden": [64]}, "standardize": "none"},
        training={"local_steps": 20, "batch_size": 50, "precision": precision}, privacy={"sample_level": privacy},
    )  # fmt: skip
    model = flat_model(plan, records().schema, torch.device(device), Path())
    protection = None if gradients is None else RecordProtection(lambda *words: len(words), ReleaseLog().record)
    task = TrainingClient(plan, NAME, Splits(records()), model, protection=protection)
    if travelling:
        held = task.records.placed["train"]
        task.records._placed = {"train": SplitRecords(held.features.cpu(), held.labels.cpu(), held.device)}
    found = task.descent.training_change(GlobalModel(model.vector(), 0.9), RoundNumber(1), 1)
    assert found is not None
    return np.append(found.model, found.threshold)


@pytest.mark.parametrize("gradients", [None, "auto", "hooks", "ghost"])
def test_a_round_on_a_gpu_is_that_of_the_cpu_up_to_rounding(gradients: str | None) -> None:
    expected, found = change("cpu", gradients), change("cuda", gradients)
    # 20 steps of sums of at most a few hundred products in float32, each off by some 1e-6 of its size.
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("gradients", [None, "hooks"])
def test_records_that_travel_train_the_same_model_as_those_that_stay(gradients: str | None) -> None:
    staying, travelling = change("cuda", gradients), change("cuda", gradients, travelling=True)
    assert staying.tobytes() == travelling.tobytes()


def test_a_round_on_a_gpu_repeats_itself_and_bf16_is_close() -> None:
    assert change("cuda", None).tobytes() == change("cuda", None).tobytes()
    full, half = change("cuda", None), change("cuda", None, "bf16")
    assert 0.0 < np.linalg.norm(half - full) < 0.1 * np.linalg.norm(full)


def test_noise_on_a_gpu_is_normal_in_whole_numbers_goes_on_and_begins_again() -> None:
    like = torch.empty(30_000, device="cuda")
    draws = Draws(13)
    first, second = draws.whole_noise(like, 2.0**18), draws.whole_noise(like, 2.0**18)
    assert torch.equal(first, first.round())
    assert stats.kstest(first.double().cpu().numpy() / 2.0**18, "norm").pvalue > 1e-4
    assert not torch.equal(first, second)
    assert torch.equal(draws.again().whole_noise(like, 2.0**18), first)
