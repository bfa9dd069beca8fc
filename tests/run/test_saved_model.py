from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedfair.aggregation import model_file
from fedfair.aggregation.calibration import NOT_SAID, Calibration, ClassFit, Uncalibrated
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.cli.commands import app
from fedfair.errors import DataError
from fedfair.ids import RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.results.document import to_json
from fedfair.run.calibration_text import CALIBRATION_KEY, calibration_fields
from fedfair.run.saved_model import SCALING_KEY, ModelOrigin, TrainedModel, load_saved, model_words
from fedfair.simulation.evaluate import evaluate
from tests import plans

SCHEMA = FeatureSchema((2,), 2, (0, 1), ("radius", "texture"), ranges=((0.0, 50.0), (0.0, 5.0)))
DIGEST = "sha256:" + "0" * 64
LAYOUT = Layout((LayoutEntry("weight", (3,)),), np.dtype(np.float64))
SCALING = FeatureScaling(np.array([0.1, 1e-300]), np.array([1 / 3, 7e22]))

PLAN = """
federation: {name: demo, collaborators: [clinic-a, clinic-b, clinic-c]}
task:
  data: breast-cancer
  partition: {scheme: dirichlet, alpha: 0.5}
  test_fraction: 0.2
  standardize: secure
  model: {name: linear}
objective: {worst_group_size: 0.1, tradeoff: 0.1}
training: {rounds: 6, batch_size: 32, output: OUTPUT, device: cpu, precision: fp64}
evaluation: {every: 3}
"""


SOUND = '{"method":"platt","split":"train","fits":{"1":["0.5","0"]}}'


def make_plan(standardize: str = "secure") -> Plan:
    return plans.parsed(["a"], task={"standardize": standardize}, training={"rounds": 8})


PLATT = Calibration("validation", (ClassFit(1, 0.712345678, -1.5e-7),))


def write(path: Path, calibration: Calibration | Uncalibrated = NOT_SAID, /, **changes: str | None) -> Path:
    saved = TrainedModel(GlobalModel(np.ones(3), 0.1), RoundNumber(7), DIGEST, SCALING, calibration=calibration)
    words = model_words(saved, ModelOrigin.of_plan(make_plan(), DIGEST, SCHEMA)) | changes
    kept = {key: value for key, value in words.items() if value is not None}
    model_file.save(path, LAYOUT, np.array([1.0, -2.0, 1 / 3]), kept)
    return path


def test_a_saved_model_comes_back_bit_for_bit(tmp_path: Path) -> None:
    saved = load_saved(write(tmp_path / "m.safetensors"), make_plan(), LAYOUT, SCHEMA)
    assert saved.model.vector.tolist() == [1.0, -2.0, 1 / 3]
    assert (saved.model.threshold, saved.round, saved.plan_digest) == (0.1, 7, DIGEST)
    assert saved.scaling is not None
    assert saved.scaling.mean.tolist() == SCALING.mean.tolist()
    assert saved.scaling.scale.tolist() == SCALING.scale.tolist()


@pytest.mark.parametrize("stated", [PLATT, Uncalibrated("the plan sums no scores"), NOT_SAID])
def test_a_calibration_or_why_there_is_none_comes_back_exactly(
    tmp_path: Path, stated: Calibration | Uncalibrated
) -> None:
    path = write(tmp_path / "m.safetensors", stated)
    assert load_saved(path, make_plan(), LAYOUT, SCHEMA).calibration == stated


def test_a_calibration_is_stored_as_decimal_texts() -> None:
    assert calibration_fields(PLATT) == {
        CALIBRATION_KEY: '{"method":"platt","split":"validation","fits":{"1":["0.712345678","-1.5e-07"]}}'
    }


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"threshold": None}, "does not say its threshold"),
        ({"threshold": "nan"}, "says threshold nan"),
        ({"round": "9"}, "round 9 of 8"),
        ({"round": "seven"}, "does not say"),
        ({SCALING_KEY: None}, "does not say how its features were scaled"),
        ({SCALING_KEY: '{"mean": [0], "scale": [1]}'}, "not of 2 numeric columns"),
        ({SCALING_KEY: '{"mean": [0, 0], "scale": [1, 0]}'}, "not positive"),
        ({SCALING_KEY: "[]"}, "does not say"),
        ({CALIBRATION_KEY: "[]"}, "does not say"),
        ({CALIBRATION_KEY: SOUND.replace("platt", "isotonic")}, "none that fedfair writes"),
        ({CALIBRATION_KEY: SOUND.replace('"0.5"', '"-0.5"')}, "none that fedfair writes"),
        ({CALIBRATION_KEY: SOUND.replace('"0.5"', '"nan"')}, "none that fedfair writes"),
        ({CALIBRATION_KEY: SOUND.replace('"1"', '"0"')}, "of 1 classes, and the model has 2"),
    ],
)
def test_a_file_that_does_not_say_what_is_needed_is_refused(
    tmp_path: Path, changes: dict[str, str | None], fault: str
) -> None:
    with pytest.raises(DataError, match=fault):
        load_saved(write(tmp_path / "m.safetensors", **changes), make_plan(), LAYOUT, SCHEMA)


def test_a_model_of_another_shape_is_refused(tmp_path: Path) -> None:
    other = Layout((LayoutEntry("weight", (4,)),), np.dtype(np.float64))
    with pytest.raises(DataError, match="a model of 3 values in 1 tensors, not the plan's 4"):
        load_saved(write(tmp_path / "m.safetensors"), make_plan(), other, SCHEMA)


@pytest.mark.parametrize("output", ["last", "average", "best"])
def test_a_model_that_was_saved_is_judged_as_it_was_at_the_end_of_its_run(tmp_path: Path, output: str) -> None:
    plan_file = tmp_path / "plan" / "plan.yaml"
    plan_file.parent.mkdir()
    plan_file.write_text(PLAN.replace("OUTPUT", output))
    paths = {name: str(tmp_path / f"{name}.json") for name in ("run", "again")}
    save = ["--save", str(tmp_path / "save"), "--output", paths["run"], "--engine", "loop"]
    model = str(tmp_path / "save" / "last.safetensors")
    for command in (
        ["simulate", "-p", str(plan_file), "-q", *save],
        ["evaluate", "-p", str(plan_file), "-q", "--model", model, "--exact", "--output", paths["again"]],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    run, again = (json.loads(Path(path).read_text()) for path in paths.values())
    # A file tells of its model, and not how long its run went on after it.
    assert again["rounds"] == run["model"]["round"]
    for key in ("format", "plan_digest", "threshold", "model", "objective", "train", "test", "collaborators"):
        assert again[key] == run[key], key
    assert again["evaluation"] == {"method": "exact", "given_up": None}
    assert len(again["history"]) == 1


def test_a_model_of_another_plan_is_not_judged(tmp_path: Path) -> None:
    plan_file = tmp_path / "plan" / "plan.yaml"
    plan_file.parent.mkdir()
    plan_file.write_text(PLAN.replace("OUTPUT", "last"))
    save = ["simulate", "-p", str(plan_file), "-q", "--save", str(tmp_path / "save")]
    assert CliRunner().invoke(app, save).exit_code == 0
    plan_file.write_text(PLAN.replace("OUTPUT", "last").replace("alpha: 0.5", "alpha: 0.6"))
    with pytest.raises(DataError, match="was trained by the plan sha256"):
        evaluate(load_plan(plan_file), tmp_path, tmp_path / "save" / "last.safetensors", exact=False)


def test_whoever_holds_all_data_judges_a_model_of_noised_training_without_noise_and_promises_none(
    tmp_path: Path,
) -> None:
    text = PLAN.replace("standardize: secure", "standardize: none").replace("OUTPUT", "last")
    path = tmp_path / "plan.yaml"
    path.write_text(text + "privacy: {sample_level: {noise_multiplier: 2.0}}\n")
    assert (
        CliRunner().invoke(app, ["simulate", "-p", str(path), "-q", "--save", str(tmp_path / "save")]).exit_code
        == 0
    )
    model = tmp_path / "save" / "last.safetensors"
    exact = to_json(evaluate(load_plan(path), tmp_path, model, exact=True).result)
    again = to_json(evaluate(load_plan(path), tmp_path, model, exact=True).result)
    assert exact["privacy"] == {"sample_level": None, "collaborator_level": None}
    assert exact["train"] == again["train"]
