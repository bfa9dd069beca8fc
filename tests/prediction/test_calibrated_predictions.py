"""Predictions of a model whose file has a calibration: probabilities, and the scores beside them."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedfair import load_model
from fedfair.aggregation.calibration import Calibration, ClassFit, Uncalibrated, calibrated
from fedfair.cli.commands import app
from fedfair.errors import DataError
from fedfair.prediction.answers import calibrated_chances, fits_of
from fedfair.prediction.export import TOLERANCE, export_metadata, export_model
from fedfair.prediction.loaded_model import SavedModel
from fedfair.run.saved_model import read_saved, save_model
from fedfair.tables.source import load_federation
from tests import plans
from tests.prediction.saved_runs import SavedRun, saved_run

TASK: dict[str, object] = {"partition": {"scheme": "random"}, "standardize": "secure", "validation_fraction": 0.3}
TRAINING: dict[str, object] = {"rounds": 4, "learning_rate": 0.3}


def made(folder: Path, data: str = "breast-cancer", **evaluation: object) -> SavedRun:
    values = plans.stated(task=TASK | {"data": data}, training=TRAINING, evaluation=evaluation)
    return saved_run(folder, values)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    return made(tmp_path_factory.mktemp("two"), scores=True)


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    return made(tmp_path_factory.mktemp("ten"), "digits", scores=True)


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    return made(tmp_path_factory.mktemp("raw"))


def records_of(run: SavedRun, split: str = "validation") -> tuple[Any, Any]:
    sites = [getattr(site, split) for site in load_federation(run.plan, run.workspace).values()]
    return np.concatenate([part.features for part in sites]), np.concatenate([part.labels for part in sites])


def fits(model: SavedModel) -> tuple[ClassFit, ...]:
    found = model.described.saved.calibration
    assert isinstance(found, Calibration)
    assert found.split == "validation"
    return found.fits


def test_the_predicted_class_is_the_one_that_the_evaluation_judged(run: SavedRun, tmp_path: Path) -> None:
    found = read_saved(run.model)
    # A calibration that says class 1 of nobody.
    never = replace(found.saved, calibration=Calibration("train", (ClassFit(1, 1.0, -50.0),)))
    save_model(tmp_path / "never.safetensors", found.layout, never, found.origin)
    model, features = load_model(tmp_path / "never.safetensors"), records_of(run)[0]
    assert (model.predict_proba(features)[:, 1] < 0.5).all()
    assert model.predict(features).tolist() == load_model(run.model).predict(features).tolist()


@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20),
    st.floats(0.0, 1e6, allow_subnormal=False),
    st.floats(-1e6, 1e6),
)
def test_exports_compute_as_the_evaluation(given_scores: list[float], slope: float, intercept: float) -> None:
    fit, ones = ClassFit(1, slope, intercept), np.array(given_scores)
    pair = torch.from_numpy(np.stack([1.0 - ones, ones], axis=1))
    found = calibrated_chances(pair, *fits_of(Calibration("train", (fit,))))[:, 1].numpy()
    assert found == pytest.approx(calibrated(ones, fit), rel=1e-9, abs=1e-300)


def test_probabilities_are_calibrated_scores_of_two_and_of_ten_classes(run: SavedRun, ten: SavedRun) -> None:
    model, (features, labels) = load_model(run.model), records_of(run)
    scores, chances = model.scores(features), model.predict_proba(features)
    (fit,) = fits(model)
    assert chances[:, 1] == pytest.approx(calibrated(scores[:, 1], fit), abs=1e-15)
    assert chances.sum(axis=1) == pytest.approx(np.ones(len(chances)), abs=1e-15)
    # The mean is the share that is of the class, but for the smoothed outcomes and the middles of bins.
    assert chances[:, 1].mean() == pytest.approx(labels.mean(), abs=1.0 / len(labels) + 1e-3)
    assert abs(scores[:, 1].mean() - labels.mean()) > abs(chances[:, 1].mean() - labels.mean())
    # People keep their order.
    assert (np.diff(chances[np.argsort(scores[:, 1]), 1]) >= 0.0).all()
    model, (features, _) = load_model(ten.model), records_of(ten)
    scores, chances = model.scores(features), model.predict_proba(features)
    apart = np.stack([calibrated(scores[:, fit.wanted], fit) for fit in fits(model)], axis=1)
    assert chances == pytest.approx(apart / apart.sum(axis=1, keepdims=True), abs=1e-12)
    steep = Calibration("train", tuple(ClassFit(place, 1e9, -1e9) for place in range(3)))
    found = calibrated_chances(torch.full((2, 3), 1 / 3, dtype=torch.float64), *fits_of(steep))
    assert found.numpy() == pytest.approx(np.full((2, 3), 1 / 3))


def predict(run: SavedRun, folder: Path, *more: str) -> Result:
    np.save(folder / "new.npy", records_of(run)[0])
    words = ["predict", "--model", str(run.model), "--data", str(folder / "new.npy"), "--output", "-"]
    return CliRunner().invoke(app, [*words, *more])


def test_predict_writes_probabilities_and_on_request_scores(run: SavedRun, tmp_path: Path) -> None:
    model, features = load_model(run.model), records_of(run)[0]
    for more, values, said in (
        ((), model.predict_proba(features), "probabilities, calibrated on validation records"),
        (("--scores",), model.scores(features), "scores, not probabilities: --scores asks for them"),
    ):
        done = predict(run, tmp_path, *more)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        # A program reads the columns by names that do not change.
        assert list(rows[0]) == ["predicted", "probability_malignant", "probability_benign"]
        assert [float(row["probability_benign"]) for row in rows] == values[:, 1].tolist()
        assert [row["predicted"] for row in rows] == model.predict(features).tolist()
        assert said in done.stderr


def test_files_without_calibration_have_scores_and_show_it(raw: SavedRun, tmp_path: Path, run: SavedRun) -> None:
    why = "scores, not probabilities: the plan sums no scores (evaluation.scores: false)"
    done = predict(raw, tmp_path)
    assert done.stdout.startswith("predicted,probability_malignant,probability_benign\n")
    assert why in done.stderr
    model = load_model(raw.model)
    assert (model.is_calibrated, model.answer_words) == (False, why)
    assert np.array_equal(model.predict_proba(records_of(raw)[0]), model.scores(records_of(raw)[0]))
    shown = CliRunner().invoke(app, ["model", "show", "--model", str(raw.model), "--json"])
    assert json.loads(shown.stdout)["returns"] == why
    assert export_metadata(model)["returns"] == why
    assert "calibration" not in export_metadata(model)
    found = read_saved(run.model)
    older = replace(found.saved, calibration=Uncalibrated())
    save_model(tmp_path / "older.safetensors", found.layout, older, found.origin)
    words = load_model(tmp_path / "older.safetensors").answer_words
    assert words == "scores, not probabilities: nothing says how to calibrate them"
    shown = CliRunner().invoke(app, ["model", "show", "--model", str(run.model)])
    assert "probabilities, calibrated on validation records" in " ".join(shown.stdout.split())


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
@pytest.mark.parametrize("which", ["ten", pytest.param("run", marks=pytest.mark.slow)])
def test_an_export_has_the_calibration_inside(which: str, request: pytest.FixtureRequest) -> None:
    run: SavedRun = request.getfixturevalue(which)
    model, (features, _) = load_model(run.model), records_of(run)
    exported = export_model(model, "torchscript", features)
    assert exported.difference <= 1e-12
    extra = {"fedfair.json": ""}
    loaded = torch.jit.load(io.BytesIO(exported.content), _extra_files=extra)
    predicted, chances = loaded(torch.from_numpy(features))
    assert chances.detach().numpy() == pytest.approx(model.predict_proba(features), abs=1e-12)
    assert [model.classes[place] for place in predicted.tolist()] == model.predict(features).tolist()
    told = json.loads(extra["fedfair.json"])
    assert told["returns"] == "probabilities, calibrated on validation records"
    assert len(json.loads(told["calibration"])["fits"]) == len(fits(model))
    assert export_model(model, "state-dict", features).difference <= 1e-12


@pytest.mark.slow
@pytest.mark.usefixtures("operators_read_once")
@pytest.mark.parametrize("which", ["run", "ten"])
def test_onnxruntime_returns_calibrated_probabilities(which: str, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run: SavedRun = request.getfixturevalue(which)
    assert export_model(load_model(run.model), "onnx", records_of(run)[0]).difference <= TOLERANCE


def test_scores_of_a_model_without_classes_are_refused(tmp_path: Path) -> None:
    csv_data = {"target": "y", "numeric": ["x"], "collaborator": "site", "train": "all.csv"}
    rows = [f"{place % 7},{place % 7 * 2},{plans.NAMES[place % 3]}" for place in range(60)]
    (tmp_path / "all.csv").write_text("x,y,site\n" + "\n".join(rows) + "\n")
    task = {"data": {"csv": csv_data}, "loss": {"name": "squared"}, "standardize": "none"}
    evaluation = {"loss_range": 200.0}
    saved = saved_run(tmp_path, plans.stated(task=task, training={"rounds": 1}, evaluation=evaluation))
    words = ["predict", "--model", str(saved.model), "--data", str(tmp_path / "all.csv"), "--output", "-"]
    fault = CliRunner().invoke(app, [*words, "--scores"]).exception
    assert isinstance(fault, DataError)
    assert "no scores of classes" in str(fault)
