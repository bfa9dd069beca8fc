"""A saved model of a number says it in the number's own unit, in every form in which it is used."""

import functools
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.aggregation.requests import FeatureScaling
from fedfair.errors import DataError
from fedfair.ids import RoundNumber
from fedfair.prediction.export import export_model
from fedfair.prediction.loaded_model import SavedModel, load_model
from fedfair.run.model_description import schema_of
from fedfair.run.saved_model import TrainedModel, load_saved, save_model
from fedfair.simulation.simulate import SimulationOutcome, simulate
from tests.simulation.test_targets_in_units import COLUMNS, DEFAULTS, TEMPLATE, diabetes, plan_of, write

Trained = Callable[..., tuple[SimulationOutcome, SavedModel, Path]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Train each kind of model once."""

    @functools.cache
    def once(name: str, standardize: str = "secure") -> tuple[SimulationOutcome, SavedModel, Path]:
        return train(tmp_path_factory.mktemp("trained"), name, standardize)

    return once


def train(folder: Path, name: str, standardize: str) -> tuple[SimulationOutcome, SavedModel, Path]:
    write(folder, *diabetes(scaled=standardize == "none"))
    loss = DEFAULTS[name].model_dump(mode="json")
    training = {**TEMPLATE, "rounds": 40, "precision": "fp64", "output": "last"}
    outcome = simulate(plan_of(loss, {"standardize": standardize}, training=training), folder)
    place = folder / "model.safetensors"
    saved = TrainedModel(outcome.model, RoundNumber(40), outcome.origin.plan_digest, outcome.scaling)
    save_model(place, outcome.layout, saved, outcome.origin)
    return outcome, load_model(place), place


@pytest.mark.parametrize("standardize", ["secure", "none"])
@pytest.mark.parametrize("name", DEFAULTS)
def test_predictions_and_losses_are_those_of_the_evaluation(trained: Trained, name: str, standardize: str) -> None:
    outcome, model, _ = trained(name, standardize)
    features, targets = diabetes(scaled=standardize == "none")
    records = {**dict(zip(COLUMNS, features.T, strict=True)), "y": targets}
    predicted = np.asarray(model.predict(records), np.float64)
    assert 20.0 < predicted.min() < predicted.max() < 400.0
    errors, losses = targets - predicted, model.losses(records)
    by_hand = {
        "squared": errors**2,
        "huber": np.where(np.abs(errors) < 1.0, errors**2 / 2, np.abs(errors) - 0.5),
        "wide": np.where(np.abs(errors) < 100.0, errors**2 / 2, 100.0 * (np.abs(errors) - 50.0)),
        "pinball": np.abs(errors) / 2,
    }[name]
    np.testing.assert_allclose(losses, by_hand, rtol=1e-9, atol=1e-9)
    train = outcome.result.train
    assert train is not None
    assert losses.mean() == pytest.approx(train.mean, rel=1e-9)
    assert np.sort(losses) == pytest.approx(
        np.sort(np.concatenate([site["train"].values for site in outcome.losses.values()])), rel=1e-12
    )


@pytest.mark.filterwarnings("ignore:`torch.jit.*deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("form", "standardize"),
    [
        ("torchscript", "none"),
        ("torchscript", "secure"),
        ("state-dict", "none"),
        pytest.param("onnx", "secure", marks=pytest.mark.slow),
    ],
)
def test_an_export_has_the_unit_inside(trained: Trained, form: str, standardize: str) -> None:
    if form == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(package)
    _, model, _ = trained("squared", standardize)
    features, _ = diabetes(scaled=standardize == "none")
    exported = export_model(model, form, features)  # type: ignore[arg-type]
    assert exported.checked == len(features)
    if form == "torchscript":
        found = torch.jit.load(io.BytesIO(exported.content))(torch.from_numpy(features))[0].numpy()[:, 0]
        assert found == pytest.approx(model.predict(features), rel=1e-6)


def test_a_scaling_without_the_target_is_refused(trained: Trained, tmp_path: Path) -> None:
    outcome, model, place = trained("squared")
    full = model.described.saved.scaling
    assert full is not None
    assert len(full.mean) == len(COLUMNS) + 1
    assert full.mean[-1] == pytest.approx(diabetes()[1].mean())
    assert full.scale[-1] == pytest.approx(diabetes()[1].std())
    plan = plan_of(DEFAULTS["squared"].model_dump(mode="json"), training={**TEMPLATE, "precision": "fp64"})
    schema = schema_of(model.description)
    assert load_saved(place, plan, outcome.layout, schema).round == 40
    short = FeatureScaling(full.mean[:-1], full.scale[:-1])
    saved = TrainedModel(outcome.model, RoundNumber(40), outcome.origin.plan_digest, short)
    place = tmp_path / "model.safetensors"
    save_model(place, outcome.layout, saved, outcome.origin)
    with pytest.raises(DataError, match="not of 11 numeric columns"):
        load_model(place)
