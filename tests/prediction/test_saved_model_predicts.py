"""A saved model predicts from its file alone, as it was evaluated."""

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fedfair.errors import DataError
from fedfair.prediction.loaded_model import SavedModel, load_model
from fedfair.prediction.model_inputs import rows_of_table
from fedfair.prediction.prediction_files import read_input
from fedfair.tables.source import load_federation
from fedfair.tables.sources.acs_employment import FEATURES, MAX_CODES
from fedfair.tables.text_file import read_table
from tests import plans
from tests.prediction.saved_runs import HOSPITALS, SavedRun, heart_values, saved_run
from tests.rounding import rounding


@pytest.fixture(scope="module")
def heart_files(data_root: Path) -> dict[str, str]:
    folder = data_root.resolve() / "heart"
    return {name: str(folder / f"processed.{name}.data") for name in HOSPITALS}


@pytest.fixture(scope="module")
def heart(heart_files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    return saved_run(tmp_path_factory.mktemp("heart"), heart_values(heart_files))


@pytest.fixture(scope="module")
def cancer(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    task = {"partition": {"scheme": "random"}, "standardize": "secure", "test_fraction": 0.2}
    return saved_run(tmp_path_factory.mktemp("cancer"), plans.stated(task=task, training={"rounds": 3}))


def test_predictions_from_a_raw_file_reproduce_losses(heart: SavedRun, heart_files: dict[str, str]) -> None:
    model = load_model(heart.model)
    for name, file in heart_files.items():
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
    assert losses == pytest.approx(cancer.losses("clinic-a", "test"), abs=rounding(1e-9))
    assert model.classes == ("malignant", "benign")
    assert set(model.predict(test.features)) == {"malignant", "benign"}


def test_models_are_known_by_digest_and_losses_need_known_labels(cancer: SavedRun) -> None:
    model = load_model(cancer.model)
    assert isinstance(model, SavedModel)
    assert model.plan_digest == cancer.outcome.origin.plan_digest
    records = {name: [1.0, 2.0] for name in model.columns}
    with pytest.raises(DataError, match="the records given have no label target"):
        model.losses(records)
    with pytest.raises(DataError, match=r"label that the model does not know in 1 row \(row 1: '7'\); it knows 0"):
        model.losses({**records, "target": [1, 7]})


def test_acs_rows_are_predicted_with_the_columns_of_the_census_beside_them(tmp_path: Path) -> None:
    draws = np.random.default_rng(1)
    rows = [[draws.integers(0, most + 1) for most in MAX_CODES] for _ in range(200)]
    texts = [",".join(["" if value == 0 and place == 5 else str(value) for place, value in enumerate(row)]
                      + [str(draws.choice([1, 6])), "10", str(draws.integers(1, 7))]) for row in rows]  # fmt: skip
    (tmp_path / "persons.csv").write_text("\n".join([",".join([*FEATURES, "ST", "PWGTP", "ESR"]), *texts]) + "\n")
    task = {
        "data": {"acs_employment": {"train": "persons.csv"}},
        "partition": {"scheme": "contiguous"},
        "standardize": "secure",
    }
    run = saved_run(tmp_path, plans.stated(("a", "b"), task=task))
    model = load_model(run.model)
    losses = model.losses(pd.read_csv(tmp_path / "persons.csv"))
    assert losses == pytest.approx(np.concatenate([run.losses(name, "train") for name in ("a", "b")]), abs=1e-6)
    rows_read = read_input(tmp_path / "persons.csv", model.raw, ["PWGTP"])
    assert model.scores_and_classes(rows_read)[0].min(axis=1) == pytest.approx(
        model.predict_proba(pd.read_csv(tmp_path / "persons.csv")).min(axis=1)
    )
    assert model.columns == FEATURES
    assert model.classes == ("not employed", "employed")


@pytest.mark.parametrize("scaling", ["secure", "ranges"])
def test_intensive_care_stays_are_predicted_from_a_table(data_root: Path, tmp_path: Path, scaling: str) -> None:
    folder = data_root.resolve() / "eicu_demo"
    task = {
        "data": {"eicu": {"folder": str(folder)}}, "partition": {"scheme": "contiguous"}, "standardize": scaling,
        "model": {"name": "mlp", "hidden": [4]},
    }  # fmt: skip
    run = saved_run(tmp_path, plans.stated(("a",), task=task))
    table = read_table(folder / "eicu_demo_mortality.csv.gz")
    known = np.isin(table.columns["hospitaldischargestatus"], ("Alive", "Expired"))
    model = load_model(run.model)
    chances, _ = model.scores_and_classes(rows_of_table(model.raw, table.take(known)))
    labels = (table.take(known).columns["hospitaldischargestatus"] == "Expired").astype(int)
    losses = -np.log(chances[np.arange(len(labels)), labels])
    assert losses == pytest.approx(run.losses("a", "train"), abs=1e-6)


def test_columns_that_the_plan_does_not_name_are_taken_in_the_order_of_their_names(tmp_path: Path) -> None:
    draws = np.random.default_rng(2)
    values = draws.normal(size=(80, 3)).round(3)
    rows = [f"{b},{a},{c},{int(a + b > c)},{place}" for place, (a, b, c) in enumerate(values)]
    (tmp_path / "all.csv").write_text("\n".join(["beta,alpha,gamma,y,id", *rows]) + "\n")
    table = {"label": "y", "numeric": "all", "keep": ["id"], "train": "all.csv"}
    task = {"data": {"csv": table}, "partition": {"scheme": "contiguous"}, "standardize": "secure",
            "input_shape": [3], "classes": 2}  # fmt: skip
    run = saved_run(tmp_path, plans.stated(("a",), task=task, training={"learning_rate": 0.5}))
    model = load_model(run.model)
    chances = model.predict_proba(values)
    frame = pd.DataFrame({"gamma": values[:, 2], "alpha": values[:, 0], "beta": values[:, 1]})
    assert np.array_equal(model.predict_proba(frame), chances)
    labels = (values[:, 0] + values[:, 1] > values[:, 2]).astype(int)
    assert -np.log(chances[np.arange(80), labels]) == pytest.approx(run.losses("a", "train"), abs=1e-6)
    with pytest.raises(DataError, match="has 2 numeric columns, the model takes 3: alpha, beta"):
        model.predict(frame.drop(columns="gamma").to_dict("list"))


OWN_CODE = """
import numpy as np
import torch

def load(folder):
    draws = np.random.default_rng(0)
    features = draws.normal(size=(60, 4))
    return features, (features[:, 0] > 0).astype(int)

def model(schema):
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
"""


def test_a_model_of_own_code_needs_its_workspace_unchanged(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_CODE)
    task = {"data": "mine:load", "model": "mine:model", "partition": {"scheme": "contiguous"},
            "input_shape": [4], "classes": 2}  # fmt: skip
    run = saved_run(tmp_path, plans.stated(("a",), task=task))
    with pytest.raises(DataError, match="a model of own code, mine:model") as refused:
        load_model(run.model)
    assert "--workspace" in refused.value.remedy
    model = load_model(run.model, workspace=tmp_path)
    draws = np.random.default_rng(0)
    features = draws.normal(size=(60, 4))
    losses = -np.log(model.predict_proba(features)[np.arange(60), (features[:, 0] > 0).astype(int)])
    assert losses == pytest.approx(run.losses("a", "train"), abs=1e-6)
    assert np.array_equal(model.predict(features), model.predict(pd.DataFrame(features, columns=list("abcd"))))
    with pytest.raises(DataError, match=r"feature \(2,\) of record 1 is nan"):
        model.predict(np.where(np.arange(8).reshape(2, 4) == 6, np.nan, 1.0))
    (tmp_path / "mine.py").write_text(OWN_CODE.replace("Tanh", "ReLU"))
    with pytest.raises(DataError, match="was trained by the plan"):
        load_model(run.model, workspace=tmp_path)


def test_images_are_predicted_from_a_folder_and_from_an_array(tmp_path: Path) -> None:
    draws = np.random.default_rng(4)
    for place in range(12):
        Image.fromarray(draws.integers(0, 256, (9, 7, 3), np.uint8)).save(tmp_path / f"{place:02d}.png")
    rows = [f"{place:02d}.png,{place % 2}" for place in range(12)]
    (tmp_path / "attributes.csv").write_text("\n".join(["image,Smiling", *rows]) + "\n")
    spec = {"folder": ".", "attributes": "attributes.csv", "label": "Smiling", "height": 8, "width": 8}
    task = {"data": {"images": spec}, "partition": {"scheme": "contiguous"}}
    run = saved_run(tmp_path, plans.stated(("a",), task=task))
    model = load_model(run.model)
    rows_read = read_input(tmp_path, model.raw)
    assert rows_read.kept["file"].tolist() == [f"{place:02d}.png" for place in range(12)]
    chances, _ = model.scores_and_classes(rows_read)
    assert -np.log(chances[np.arange(12), np.arange(12) % 2]) == pytest.approx(run.losses("a", "train"), abs=1e-6)
    assert np.array_equal(model.predict_proba(rows_read.features), chances)
    assert model.classes == ("not Smiling", "Smiling")
    with pytest.raises(DataError, match="the model takes"):
        model.predict(np.zeros((2, 3, 8, 9)))


def test_a_saved_model_reads_files_in_the_form_that_its_plan_declares(tmp_path: Path) -> None:
    days = [dt.date(1950 + place, 1 + place % 12, 3) for place in range(12)]
    doses = [1234.5 + place for place in range(12)]
    rows = [f"{day:%d.%m.%Y};1.2{place + 34:02},5;{int(place > 5)};ä" for place, day in enumerate(days)]
    text = "\n".join(["born;dose;died;ort", *rows]) + "\n"
    (tmp_path / "all.csv").write_bytes(text.encode("latin-1"))
    table = {"label": "died", "numeric": ["born", "dose"], "dates": {"born": "%d.%m.%Y"}, "train": "all.csv",
             "separator": ";", "decimal": ",", "thousands": ".", "encoding": "latin-1"}  # fmt: skip
    task = {"data": {"csv": table}, "partition": {"scheme": "contiguous"}, "standardize": "secure",
            "model": {"name": "linear", "init": "random"}}  # fmt: skip
    run = saved_run(tmp_path, plans.stated(("a",), task=task))
    model = load_model(run.model)
    expected = model.scores_and_classes(read_input(tmp_path / "all.csv", model.raw, ignores_unknown=True))[0]
    assert len(np.unique(expected)) > 12
    frame = pd.DataFrame({"dose": doses, "born": pd.to_datetime(days)})
    assert np.array_equal(model.predict_proba(frame), expected)
    frame.to_parquet(tmp_path / "new.csv")
    assert np.array_equal(model.scores_and_classes(read_input(tmp_path / "new.csv", model.raw))[0], expected)
    texts = frame.assign(dose=[f"{dose:,}".translate({44: 46, 46: 44}) for dose in doses],
                         born=[f"{day:%d.%m.%Y}" for day in days])  # fmt: skip
    assert np.array_equal(model.predict_proba(texts), expected)
    (tmp_path / "points.csv").write_text("born;dose\n03.01.1950;1234.5\n")
    with pytest.raises(
        DataError, match="decimal point: write numbers with ',' before decimals, as the model's plan"
    ):
        read_input(tmp_path / "points.csv", model.raw)


def test_data_of_many_types_are_read_as_the_texts_of_a_file_are(tmp_path: Path) -> None:
    rows = [f"{age},{ward},{int(age > 5)}" for age, ward in zip(range(12), (1, 2) * 6, strict=True)]
    (tmp_path / "all.csv").write_text("\n".join(["age,ward,died", *rows]) + "\n")
    table = {"label": "died", "numeric": ["age"], "categorical": {"ward": [1, True, "x"]}, "train": "all.csv",
             "missing_of": {"ward": "own"}}  # fmt: skip
    task = {"data": {"csv": table}, "partition": {"scheme": "contiguous"}, "standardize": "secure",
            "model": {"name": "linear", "init": "random"}}  # fmt: skip
    model = load_model(saved_run(tmp_path, plans.stated(("a",), task=task)).model)
    lone = model.predict_proba({"age": [1, 1, 1, 1], "ward": [1, True, "x", None]})
    assert len(np.unique(lone[:, 0])) == 4
    for ward, row in ((np.float64(1.0), 0), ("1.0", 0), ("true", 1), (" x", 2), (np.nan, 3)):
        assert np.array_equal(model.predict_proba({"age": np.float32([1]), "ward": [ward]})[0], lone[row])
    with pytest.raises(DataError, match=r"column 'age': not a finite number in 1 row \(row 1: 'inf'\)"):
        model.predict({"age": [1.0, np.inf], "ward": [1, 1]})
    with pytest.raises(DataError, match="missing values in 1 row"):
        model.predict({"age": [1.0, None], "ward": [1, 1]})
    with pytest.raises(DataError, match="are none"):
        model.predict({"age": [], "ward": []})
    with pytest.raises(DataError, match="no table"):
        model.predict({"age": [1, 2], "ward": [1]})
