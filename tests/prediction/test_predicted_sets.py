"""Sets and intervals of a model from its file: those of the evaluation, by command, in Python and in exports."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from fedfair import load_model
from fedfair.cli.commands import app
from fedfair.conformal.prediction_sets import NoSets, PredictionSets
from fedfair.errors import DataError
from fedfair.prediction.export import export_metadata
from fedfair.run.saved_model import read_saved, save_model
from fedfair.tables.source import load_federation
from tests import plans
from tests.prediction.saved_runs import SavedRun, saved_run

TASK: dict[str, object] = {"partition": {"scheme": "random"}, "standardize": "secure", "test_fraction": 0.5}
SETS = {"group_size": 0.5, "missed": 0.2}


def made(folder: Path, data: object, **evaluation: object) -> SavedRun:
    values = plans.stated(
        task=TASK | {"data": data},
        training={"rounds": 4, "learning_rate": 0.3},
        evaluation={"sets": SETS, **evaluation},
    )
    return saved_run(folder, values)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    return made(tmp_path_factory.mktemp("two"), "breast-cancer", scores=True)


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    return made(tmp_path_factory.mktemp("ten"), "digits", scores=True)


@pytest.fixture(scope="module")
def number(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    folder, draws = tmp_path_factory.mktemp("number"), np.random.default_rng(4)
    pairs = draws.normal(size=(600, 2)).tolist()
    rows = [f"{x},{3 * x + error},{plans.NAMES[place % 3]}" for place, (x, error) in enumerate(pairs)]
    (folder / "all.csv").write_text("x,y,site\n" + "\n".join(rows) + "\n")
    table = {"csv": {"target": "y", "numeric": ["x"], "collaborator": "site", "train": "all.csv"}}
    task = {"data": table, "loss": {"name": "squared"}, "standardize": "secure", "test_fraction": 0.5}
    evaluation = {"loss_range": 100.0, "sets": SETS}
    return saved_run(folder, plans.stated(task=task, training={"rounds": 30}, evaluation=evaluation))


def held_out(run: SavedRun) -> tuple[np.ndarray, np.ndarray]:
    parts = [site.test for site in load_federation(run.plan, run.workspace).values()]
    features = np.concatenate([part.features for part in parts if part is not None])
    return features, np.concatenate([part.labels for part in parts if part is not None])


@pytest.mark.parametrize("which", ["run", "ten"])
def test_sets_are_those_that_the_evaluation_counted(which: str, request: pytest.FixtureRequest) -> None:
    run: SavedRun = request.getfixturevalue(which)
    model, (features, labels) = load_model(run.model), held_out(run)
    sets = model.described.saved.sets
    assert isinstance(sets, PredictionSets)
    assert (sets.split, sets.records) == ("test", len(labels))
    found, scores = model.predict_sets(features), model.scores(features)
    assert np.array_equal(found, scores >= sets.bound * (1 - 2.0**-12))
    missed = ~found[np.arange(len(labels)), labels]
    # A tenth of all may be missed.
    assert missed.sum() <= sets.promise.allowed(len(labels)) - 1
    # By training records here; what is predicted by scores has nothing of it.
    assert model.is_calibrated
    assert set_text(model.set_words) == "sets of classes"


def set_text(words: str) -> str:
    return words.partition(" that miss at most 0.2 of any group of a share of 0.5 or more")[0]


def predict(run: SavedRun, folder: Path, *more: str) -> Result:
    np.save(folder / "new.npy", held_out(run)[0])
    words = ["predict", "--model", str(run.model), "--data", str(folder / "new.npy"), "--output", "-"]
    return CliRunner().invoke(app, [*words, *more])


def test_predict_writes_sets_beside_probabilities_and_beside_scores(run: SavedRun, tmp_path: Path) -> None:
    model, (features, _) = load_model(run.model), held_out(run)
    expected = model.predict_sets(features)
    for more in ((), ("--scores",)):
        done = predict(run, tmp_path, "--sets", *more)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        assert list(rows[0])[-2:] == ["in_set_malignant", "in_set_benign"]
        assert [[row["in_set_malignant"], row["in_set_benign"]] for row in rows] == expected.astype(int).astype(
            str
        ).tolist()
        assert model.set_words in " ".join(done.stderr.split())
    assert "in_set" not in predict(run, tmp_path).stdout
    shown = CliRunner().invoke(app, ["model", "show", "--model", str(run.model), "--json"])
    assert json.loads(shown.stdout)["sets"] == model.set_words
    shown = CliRunner().invoke(app, ["model", "show", "--model", str(run.model)])
    assert "sets of classes that miss at most 0.2" in " ".join(shown.stdout.split())
    assert json.loads(export_metadata(model)["prediction_sets"])["records"] == len(features)


def test_intervals_are_around_the_prediction_in_the_targets_own_unit(number: SavedRun, tmp_path: Path) -> None:
    model, (features, targets) = load_model(number.model), held_out(number)
    sets = model.described.saved.sets
    assert isinstance(sets, PredictionSets)
    found, predicted = model.predict_intervals(features), np.asarray(model.predict(features))
    assert found.mean(axis=1) == pytest.approx(predicted, abs=1e-9)
    assert found[:, 1] - found[:, 0] == pytest.approx(np.full(len(found), 2.0 * sets.bound**0.5))
    missed = (targets < found[:, 0]) | (targets > found[:, 1])
    assert 0 < missed.sum() <= sets.promise.allowed(len(targets)) - 1
    rows = list(csv.DictReader(io.StringIO(predict(number, tmp_path, "--sets").stdout)))
    assert list(rows[0]) == ["predicted", "lower", "upper"]
    assert [[float(row["lower"]), float(row["upper"])] for row in rows] == found.tolist()
    with pytest.raises(DataError, match="predicts no class"):
        model.predict_sets(features)


def test_a_model_without_sets_says_why_before_records_are_read(run: SavedRun, tmp_path: Path) -> None:
    found = read_saved(run.model)
    without = replace(found.saved, sets=NoSets("there are too few"))
    path = tmp_path / "without.safetensors"
    save_model(path, found.layout, without, found.origin)
    (tmp_path / "wrong.csv").write_text("no,such,column\n1,2,3\n")
    words = ["predict", "--model", str(path), "--data", str(tmp_path / "wrong.csv"), "--output", "-", "--sets"]
    fault = CliRunner().invoke(app, words).exception
    assert isinstance(fault, DataError)
    assert "this model has no prediction sets: there are too few" in str(fault)
    model = load_model(path)
    assert model.set_words == "none: there are too few"
    with pytest.raises(DataError, match="there are too few"):
        model.predict_sets(held_out(run)[0])
    with pytest.raises(DataError, match="predicts classes"):
        model.predict_intervals(held_out(run)[0])


def test_a_file_with_altered_sets_is_refused(run: SavedRun, tmp_path: Path) -> None:
    found = read_saved(run.model)
    assert isinstance(found.saved.sets, PredictionSets)
    path = tmp_path / "altered.safetensors"
    save_model(path, found.layout, replace(found.saved, sets=replace(found.saved.sets, bound=0.3)), found.origin)
    with pytest.raises(DataError, match=r"no bin of scores begins at 0\.3"):
        read_saved(path)
