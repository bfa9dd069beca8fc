from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.feature_scaling import scaling_from_sums
from fedfair.aggregation.loss_histogram import rounded_losses
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, histogram_spec
from fedfair.errors import LocalProtocolError, PlanError, TrainingError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Dataset, Splits
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.device import EVALUATION_RECORDS, SplitRecords, choose_device
from tests import bc10, plans
from tests.contributions import evaluation_of, standardisation_of
from tests.oracles.header_places import HEAD, block_length, evaluation_header_length, split_header

NAME = ParticipantId("site-0")
FIRST = RoundNumber(1)


def make_plan(
    *, standardize: str = "none", model: dict[str, object] | str | None = None, **training: object
) -> Plan:
    return plans.parsed(
        [NAME], task={"model": model or {"name": "linear"}, "standardize": standardize},
        training={"rounds": 5, "device": "cpu", "batch_size": 8, **training}, evaluation={"bins": 16},
    )  # fmt: skip


def records(count: int, seed: int = 0) -> Dataset:
    source = np.random.default_rng(seed)
    return Dataset(source.normal(size=(count, 3)), source.integers(0, 2, count), FeatureSchema((3,), 2, (0, 2)))


def make_task(plan: Plan, train: Dataset, **others: Dataset) -> tuple[TrainingClient, GlobalModel]:
    flat = flat_model(plan, train.schema, torch.device("cpu"), Path())
    return TrainingClient(plan, NAME, Splits(train, **others), flat), GlobalModel(flat.vector(), 1.0)


def contribute(plan: Plan, train: Dataset, round_number: int = 1, attempt: int = 1) -> Contribution:
    task, model = make_task(plan, train)
    return task.rounds.contribution(model, RoundNumber(round_number), attempt)


def kept(contribution: Contribution) -> Contribution:
    """Return a copy: what a task contributes lies in memory that its next round overwrites."""
    return Contribution(contribution.header, contribution.body.copy())


def same(one: Contribution, other: Contribution) -> bool:
    return one.header.tobytes() == other.header.tobytes() and one.body.tobytes() == other.body.tobytes()


def test_a_step_of_logistic_regression_by_hand() -> None:
    # One record x = (1, 2, 0) of class 1 at zero weights: the loss is ln 2, its gradient in the logits
    # (1/2, -1/2). At c = 1 and gamma = 1/20, sigma = sigmoid(20 (ln 2 - 1)); u = 0.95 sigma / 0.1 + 0.05.
    train = Dataset(np.array([[1.0, 2.0, 0.0]]), np.array([1]), FeatureSchema((3,), 2))
    contribution = contribute(make_plan(precision="fp64", learning_rate=0.5), train)
    sigma = 1.0 / (1.0 + np.exp(-20.0 * (np.log(2.0) - 1.0)))
    u = 0.95 * sigma / 0.1 + 0.05
    # Sorted by name: the bias, then the weight matrix by classes.
    expected = -0.5 * u * np.array([0.5, -0.5, 0.5, 1.0, 0.0, -0.5, -1.0, 0.0])
    np.testing.assert_allclose(contribution.body, expected, rtol=1e-13)
    # A difference of thresholds near 1 keeps an absolute error of a few 2^-53.
    np.testing.assert_allclose(contribution.header, [1.0, -0.5 * (1.0 - u)], rtol=1e-13)


def test_everything_that_is_drawn_depends_on_round_attempt_participant_and_seed_alone() -> None:
    train = records(60)
    plan = make_plan(local_steps=3)
    reference = contribute(plan, train)
    assert same(reference, contribute(plan, train))
    others = [
        contribute(plan, train, round_number=2),
        contribute(plan, train, attempt=2),
        contribute(make_plan(local_steps=3, seed=1), train),
    ]
    flat = flat_model(plan, train.schema, torch.device("cpu"), Path())
    stranger = TrainingClient(plan, ParticipantId("site-1"), Splits(train), flat)
    others.append(stranger.rounds.contribution(GlobalModel(flat.vector(), 1.0), FIRST, 1))
    assert not any(same(reference, other) for other in others)


def test_a_module_that_draws_for_itself_repeats_and_leaves_the_global_generators(tmp_path: Path) -> None:
    (tmp_path / "dropping.py").write_text(
        "from torch import nn\n"
        "def build(schema):\n"
        "    return nn.Sequential(nn.Dropout(0.5), nn.Linear(*schema.input_shape, schema.classes))\n"
    )
    plan = make_plan(model="dropping:build", batch_size="full", local_steps=2)
    flat = flat_model(plan, records(1).schema, torch.device("cpu"), tmp_path)
    task = TrainingClient(plan, NAME, Splits(records(30)), flat)
    model = GlobalModel(flat.vector(), 1.0)
    before = torch.random.get_rng_state()
    first = kept(task.rounds.contribution(model, FIRST, 1))
    assert same(first, task.rounds.contribution(model, FIRST, 1))
    assert not same(first, task.rounds.contribution(model, RoundNumber(2), 1))
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_task_remembers_nothing_and_leaves_the_global_generators_alone() -> None:
    before = torch.random.get_rng_state()
    contribute(make_plan(local_steps=2), records(60))
    assert torch.equal(before, torch.random.get_rng_state())
    plan, train = make_plan(local_steps=2), records(60)
    task, model = make_task(plan, train)
    fresh = kept(task.rounds.contribution(model, FIRST, 1))
    task.rounds.contribution(GlobalModel(model.vector + 1, 0.3), RoundNumber(2), 1)
    evaluation_of(task, model)
    assert same(fresh, task.rounds.contribution(model, FIRST, 1))


def test_an_epoch_visits_every_record_once_each_in_another_order() -> None:
    # FedAvg at a tiny learning rate adds up mean gradients of batches of 8, 8 and 4 out of 20.
    train = records(20)
    plan = make_plan(algorithm="fedavg", local_epochs=1, learning_rate=1e-9, precision="fp64")
    task, model = make_task(plan, train)
    batches = list(task.descent.batches(task.records.placed["train"], FIRST, 1))
    assert [len(batch.labels) for batch in batches] == [8, 8, 4]
    seen = np.concatenate([batch.features.numpy() for batch in batches])
    np.testing.assert_array_equal(np.sort(seen[:, 0]), np.sort(train.features[:, 0]))
    assert task.rounds.contribution(model, FIRST, 1).header[0] == 20.0
    task, _ = make_task(make_plan(algorithm="fedavg", local_epochs=2, batch_size=20), records(20))
    task_batches = list(task.descent.batches(task.records.placed["train"], FIRST, 1))
    assert len(task_batches) == 2
    assert not torch.equal(task_batches[0][0], task_batches[1][0])
    # With a tiny learning rate two steps on one batch are twice one step; on two batches they are not.
    train = records(60)
    one = contribute(make_plan(resample="round", local_steps=1, learning_rate=1e-6, precision="fp64"), train)
    two = contribute(make_plan(resample="round", local_steps=2, learning_rate=1e-6, precision="fp64"), train)
    fresh = contribute(make_plan(resample="step", local_steps=2, learning_rate=1e-6, precision="fp64"), train)
    # The gradient changes by at most smoothness (below 100 (1 / gamma) (1 / rho)) times a step of 1e-6.
    np.testing.assert_allclose(two.body, 2 * one.body, rtol=1e-1)
    assert np.abs(fresh.body - two.body).max() > 0.1 * np.abs(two.body).max()


@pytest.mark.parametrize(
    ("weights", "batch_size", "expected"),
    [("samples", 8, 20.0), ("batch", 8, 8.0), ("batch", 64, 20.0), ("batch", "full", 20.0), ("uniform", 8, 1.0)],
)
def test_the_weight_of_a_site_is_what_the_plan_says(weights: str, batch_size: object, expected: float) -> None:
    contribution = contribute(make_plan(weights=weights, batch_size=batch_size), records(20))
    assert contribution.header[0] == expected


@pytest.mark.parametrize("weights", ["samples", "batch", "uniform"])
def test_a_site_without_training_records_adds_zeros(weights: str) -> None:
    plan = make_plan(weights=weights)
    task, model = make_task(plan, records(0), test=records(5))
    contribution = task.rounds.contribution(model, FIRST, 1)
    assert not contribution.header.any()
    assert not contribution.body.any()
    schema = records(0).schema
    header = evaluation_of(task, model).header
    block, _ = split_header(header, histogram_spec(plan, schema), schema.classes)
    assert block[:, 0].tolist() == [0.0, 0.0, 5.0]


@settings(deadline=None, max_examples=15)
@given(train=st.integers(0, 12), validation=st.integers(0, 5), test=st.integers(0, 5))
def test_the_length_of_an_evaluation_says_nothing_about_a_site(train: int, validation: int, test: int) -> None:
    plan = make_plan()
    task, model = make_task(plan, records(train), validation=records(validation), test=records(test))
    classes = records(1).schema.classes
    header = evaluation_of(task, model).header
    assert len(header) == evaluation_header_length(histogram_spec(plan, records(1).schema), classes)
    blocks, matrices = split_header(header, histogram_spec(plan, records(1).schema), classes)
    assert matrices is not None
    assert blocks[:, 0].tolist() == matrices.sum(axis=(1, 2)).tolist() == [train, validation, test]


def test_an_evaluation_holds_the_losses_hits_and_smoothed_objective_of_the_broadcast_model() -> None:
    plan, train = make_plan(precision="fp64"), records(50)
    task, model = make_task(plan, train)
    model.vector[:] = np.linspace(-1, 1, 8)
    header = evaluation_of(task, model).header[: block_length(histogram_spec(plan, train.schema))]
    logits = train.features @ model.vector[2:].reshape(2, 3).T + model.vector[:2]
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(50), train.labels]
    losses = rounded_losses(losses, histogram_spec(plan, train.schema))
    smoothed = 0.95 * (1.0 + np.logaddexp(0.0, (losses - 1.0) / 0.05) * 0.05 / 0.1) + 0.05 * losses
    assert header[0] == 50
    assert header[1] == (logits.argmax(axis=1) == train.labels).sum()
    # Sums of 50 numbers below 100.
    assert header[2] == pytest.approx(smoothed.sum(), rel=1e-12)
    assert header[HEAD + 17 :].sum() == pytest.approx(losses.sum(), rel=1e-12)


def test_standardised_features_have_mean_zero_and_variance_one_over_all_sites() -> None:
    plan = make_plan(standardize="secure", precision="fp64")
    parts = [records(20, 1), records(35, 2)]
    tasks = [make_task(plan, part)[0] for part in parts]
    total = sum((standardisation_of(task).header for task in tasks), np.zeros(7))
    scaling = scaling_from_sums(total)
    for task in tasks:
        task.apply_scaling(scaling)
        task.apply_scaling(scaling)  # a second one replaces the first, as after a reconnection
    scaled = np.concatenate([task.records.placed["train"].features.numpy() for task in tasks])
    np.testing.assert_allclose(scaled.mean(axis=0)[[0, 2]], 0.0, atol=1e-14)
    np.testing.assert_allclose(scaled.std(axis=0)[[0, 2]], 1.0, rtol=1e-13)
    np.testing.assert_array_equal(scaled[:, 1], np.concatenate([part.features[:, 1] for part in parts]))


def test_a_scaling_that_has_not_arrived_or_of_another_length_is_refused() -> None:
    task, model = make_task(make_plan(standardize="secure"), records(10))
    with pytest.raises(LocalProtocolError, match="scaling has not arrived"):
        task.rounds.contribution(model, FIRST, 1)
    task, _ = make_task(make_plan(standardize="secure"), records(10))
    with pytest.raises(LocalProtocolError, match="2 numeric columns"):
        task.apply_scaling(FeatureScaling(np.zeros(3), np.ones(3)))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_a_float32_model_close_to_fp32(precision: str) -> None:
    train = records(200)
    spec = {"name": "mlp", "hidden": [16]}
    half = contribute(make_plan(model=spec, precision=precision, batch_size="full", local_steps=3), train)
    full = contribute(make_plan(model=spec, precision="fp32", batch_size="full", local_steps=3), train)
    assert half.body.dtype == np.float32
    # bf16 keeps 8 bits: activations and gradients are off by about 2^-8 per operation, times the sensitivity of
    # the weights u_i to the loss, at most gap / gamma; fp16 keeps 11 bits.
    size = float(np.linalg.norm(full.body))
    assert 0.0 < np.linalg.norm(half.body - full.body) < {"bf16": 0.1, "fp16": 0.02}[precision] * size


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own compiler uses what PyTorch deprecated
def test_a_compiled_model_takes_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else PyTorch starts a process for each core, and each of them imports it.
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    train = records(200)
    options = {"model": {"name": "mlp", "hidden": [16]}, "batch_size": 16, "local_steps": 3}
    plain, compiled = (
        contribute(make_plan(**options), train),
        contribute(make_plan(compile=True, **options), train),
    )
    # Fused operations round differently: a few 2^-24 per operation, a dozen operations per step, weights u_i that
    # multiply a difference of losses by up to 1 / (4 gamma rho) = 50.
    np.testing.assert_allclose(compiled.body, plain.body, atol=50 * 36 * 2.0**-23 * np.abs(plain.body).max())


def test_gradients_that_overflow_in_fp16_are_taken_at_a_smaller_scale() -> None:
    train = records(50)
    large = Dataset(train.features * 3000.0, train.labels, train.schema)
    options = {"batch_size": "full", "algorithm": "fedavg", "learning_rate": 1e-9}
    half = contribute(make_plan(precision="fp16", **options), large)
    full = contribute(make_plan(precision="fp32", **options), large)
    # The mean gradient of features of size 3000 times 2^15 exceeds 65504.
    assert np.abs(full.body).max() / 50 / 1e-9 * 2**15 > 65504
    np.testing.assert_allclose(half.body, full.body, atol=0.01 * np.abs(full.body).max())


def test_records_that_do_not_fit_and_a_missing_accelerator() -> None:
    resident = SplitRecords.place(np.ones((5, 2)), np.zeros(5, np.int64), torch.float32, torch.device("cpu"))
    features, labels = resident.take(torch.tensor([1, 3]))
    assert features.shape == (2, 2)
    assert features.dtype == torch.float32
    assert labels.tolist() == [0, 0]
    assert len(list(resident.in_order())) == 1
    missing = [name for name, there in (("cuda", torch.cuda.is_available()), ("mps", False)) if not there]
    if torch.backends.mps.is_available():
        missing.remove("mps")
    for name in missing:
        with pytest.raises(PlanError, match=name) as fault:
            choose_device(name)
        assert "auto" in fault.value.remedy
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in {"cuda", "mps", "cpu"}


def test_batch_normalisation_statistics_travel_with_the_model() -> None:
    # Running statistics are part of the vector, so a local step changes them although they have no gradient.
    images = Dataset(
        np.random.default_rng(0).random((6, 1, 16, 16)),
        np.array([0, 1, 0, 1, 0, 1]),
        FeatureSchema((1, 16, 16), 2),
    )
    plan = make_plan(model={"name": "resnet18", "norm": "batch"}, batch_size=6)
    task, model = make_task(plan, images)
    contribution = task.rounds.contribution(model, FIRST, 1)
    change = task.records.model.layout.unflatten(contribution.body)
    assert all(change[name].any() for name in change if name.endswith("running_mean"))


def test_simulated_tasks_share_a_model_and_batches_change_no_evaluation() -> None:
    plan, train = make_plan(precision="fp64"), records(2 * EVALUATION_RECORDS + 3)
    task, model = make_task(plan, train)
    model.vector[:] = 0.3
    losses = task.records.losses(model)["train"]
    assert losses.values.dtype == np.float64
    logits = train.features @ model.vector[2:].reshape(2, 3).T + model.vector[:2]
    expected = np.logaddexp(logits[:, 0], logits[:, 1]) - logits[np.arange(len(train)), train.labels]
    np.testing.assert_allclose(losses.values, expected, atol=1e-12)
    plan = bc10.plan(3, rounds=1)
    federation = bc10.Federation(plan, bc10.sites(bc10.random_thirds()))
    model = federation.training_run.model
    shared = [kept(task.rounds.contribution(model, FIRST, 1)) for task in federation.tasks]
    for (name, splits), contribution in zip(bc10.sites(bc10.random_thirds()).items(), shared, strict=True):
        own = flat_model(plan, splits.train.schema, torch.device("cpu"), Path())
        assert same(contribution, TrainingClient(plan, name, splits, own).rounds.contribution(model, FIRST, 1))
    contribution = contribute(make_plan(), records(30))
    assert contribution.header.shape == (2,)
    assert contribution.body.shape == (2 * 3 + 2,)
    assert contribution.body.dtype == np.float32


def test_a_model_that_fails_on_a_batch_is_one_fault_that_quotes_no_record(tmp_path: Path) -> None:
    (tmp_path / "normed_model.py").write_text(
        "from torch import nn\n\n"
        "def build(schema):\n    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))\n"
    )
    plan, train = make_plan(model="normed_model:build", batch_size=1), records(4)
    flat = flat_model(plan, train.schema, torch.device("cpu"), tmp_path)
    task = TrainingClient(plan, NAME, Splits(train), flat)
    with pytest.raises(
        TrainingError, match=r"^the model or its loss fails on a batch of records: ValueError$"
    ) as fault:
        task.rounds.contribution(GlobalModel(flat.vector(), 1.0), FIRST, 1)
    assert "Expected more than 1 value per channel" in fault.value.remedy
