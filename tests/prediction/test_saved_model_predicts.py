"""A saved model predicts from its file alone, as it was evaluated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedfair.data.reading import read_table
from fedfair.data.source import load_federation
from fedfair.prediction.saved_model import SavedModel, load_model
from tests import plans
from tests.prediction.saved_runs import DATA, HOSPITALS, SavedRun, heart_values, saved_run

HEART_FILES = {name: str((DATA / "heart" / f"processed.{name}.data").resolve()) for name in HOSPITALS}
needs_heart = pytest.mark.skipif(not (DATA / "heart").is_dir(), reason="FEDFAIR_DATA has no heart data")


@pytest.fixture(scope="module")
def heart(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    return saved_run(tmp_path_factory.mktemp("heart"), heart_values(HEART_FILES))


@pytest.fixture(scope="module")
def cancer(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    task = {"partition": {"scheme": "random"}, "standardize": "secure", "test_fraction": 0.2}
    return saved_run(tmp_path_factory.mktemp("cancer"), plans.stated(task=task, training={"rounds": 3}))


@needs_heart
def test_predictions_from_a_raw_file_reproduce_the_losses_of_the_evaluation(heart: SavedRun) -> None:
    model = load_model(heart.model)
    for name, file in HEART_FILES.items():
        table = read_table(Path(file), form=model.raw.form)
        records = pd.DataFrame(dict(table.columns)).replace({"?": None})
        evaluated = heart.losses(name, "train", "test")
        assert np.sort(model.losses(records)) == pytest.approx(np.sort(evaluated), abs=1e-6)


def test_a_built_in_data_set_is_predicted_from_a_frame_and_from_an_array_alike(cancer: SavedRun) -> None:
    model = load_model(str(cancer.model))
    sites = load_federation(cancer.plan, cancer.workspace)
    test = sites["clinic-a"].test
    assert test is not None
    found = model.predict_proba(test.features)
    assert found.shape == (len(test), 2)
    assert found.sum(axis=1) == pytest.approx(1.0)
    frame = pd.DataFrame(test.features, columns=list(model.columns))
    assert np.array_equal(model.predict_proba(frame), found)
    assert np.array_equal(model.predict_proba(frame.iloc[:, ::-1]), found)
    losses = -np.log(found[np.arange(len(test)), test.labels])
    assert losses == pytest.approx(cancer.losses("clinic-a", "test"), abs=1e-9)
    assert model.classes == ("malignant", "benign")
    assert set(model.predict(test.features)) == {"malignant", "benign"}


def test_a_model_is_known_by_type_and_digest(cancer: SavedRun) -> None:
    model = load_model(cancer.model)
    assert isinstance(model, SavedModel)
    assert model.plan_digest == cancer.outcome.origin.plan_digest
