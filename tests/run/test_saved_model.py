import json
from pathlib import Path

import numpy as np
import pytest
import torch
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
from fedfair.report.model_card import model_card
from fedfair.report.run_page import run_page
from fedfair.results.document import to_json, to_text
from fedfair.results.reading import parse_result
from fedfair.results.warnings import reassurance, result_warnings
from fedfair.run.calibration_text import CALIBRATION_KEY, calibration_fields
from fedfair.run.saved_model import (
    SCALING_KEY,
    ModelOrigin,
    TrainedModel,
    load_saved,
    model_words,
    read_saved,
    save_model,
)
from fedfair.run.which_model import KINDS, UNTRAINED, WhichModel
from fedfair.simulation.evaluate import evaluate
from fedfair.simulation.simulate import SimulationOutcome, simulate_sites
from tests import bc10, plans

pytestmark = pytest.mark.usefixtures("undrawn")

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
objective: {measure: loss, worst_group_size: 0.1, tradeoff: 0.1}
training: {rounds: 2, batch_size: 32, threshold_init: bound, output: OUTPUT, device: cpu, precision: fp64}
evaluation: {every: 1}
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


@pytest.mark.parametrize("stated", [PLATT, Uncalibrated("the plan sums no scores"), NOT_SAID])
def test_a_calibration_or_why_there_is_none_comes_back(tmp_path: Path, stated: Calibration | Uncalibrated) -> None:
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
def test_a_file_that_says_too_little_is_refused(
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
    # A file tells of its model, and not how long its run continued after it.
    assert again["rounds"] == run["model"]["round"]
    for key in ("format", "plan_digest", "threshold", "model", "objective", "train", "test", "collaborators"):
        assert again[key] == run[key], key
    assert (again["evaluation"], len(again["history"])) == ({"method": "exact", "given_up": None}, 1)


def test_a_model_of_another_plan_is_not_judged(tmp_path: Path) -> None:
    plan_file = tmp_path / "plan" / "plan.yaml"
    plan_file.parent.mkdir()
    plan_file.write_text(PLAN.replace("OUTPUT", "last"))
    save = ["simulate", "-p", str(plan_file), "-q", "--save", str(tmp_path / "save")]
    assert CliRunner().invoke(app, save).exit_code == 0
    plan_file.write_text(PLAN.replace("OUTPUT", "last").replace("alpha: 0.5", "alpha: 0.6"))
    with pytest.raises(DataError, match="was trained by the plan sha256"):
        evaluate(load_plan(plan_file), tmp_path, tmp_path / "save" / "last.safetensors", exact=False)


def test_whoever_holds_all_data_judges_a_noised_model_without_noise(tmp_path: Path) -> None:
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


# ---- which of its models a run has returned is one fact, in one sentence, in every file and output

torch.set_num_threads(1)

FALLEN_BACK = f"{UNTRAINED}: no trained one was better"


def too_fast(output: str) -> Plan:
    """Return a plan whose one step leaves the worst tenth worse off than guessing, from which training begins."""
    plan = bc10.plan(3, rounds=2, learning_rate=300.0, threshold_init=0.7, output=output,
                     objective={"worst_group_size": 0.1})  # fmt: skip
    return Plan.model_validate(plan.model_dump() | {"evaluation": plan.evaluation.model_dump() | {"every": 1}})


def simulated(output: str) -> SimulationOutcome:
    return simulate_sites(too_fast(output), bc10.sites(bc10.random_thirds()), Path())


@pytest.fixture(scope="module")
def fallen_back() -> SimulationOutcome:
    return simulated("best")


@pytest.mark.parametrize(("output", "state"), [("last", "worse"), ("tail", "worse"), ("average", "fine")])
def test_a_stated_output_is_what_is_returned_however_it_fares(output: str, state: str) -> None:
    outcome = simulated(output)
    assert outcome.model.vector.any()
    assert (outcome.result.model.kind, outcome.result.model.round) == (output, 2)
    verdict = outcome.result.verdict
    # The model is returned as the plan says, and the warning is clear.
    assert verdict.state == state
    assert verdict.sentences[0].startswith("Do not use this model as it is") == (state == "worse")
    if output == "last":
        assert outcome.saved.model.vector.tobytes() == outcome.trained.model.vector.tobytes()


def test_best_may_fall_back_and_keeps_what_training_ended_with(fallen_back: SimulationOutcome) -> None:
    assert not fallen_back.model.vector.any()
    assert fallen_back.saved.which == WhichModel("best", 0, 2)
    assert fallen_back.trained.which == WhichModel("last", 2, 2)
    assert fallen_back.trained.model.vector.tobytes() == simulated("last").model.vector.tobytes()


def test_every_output_says_which_model_it_is(fallen_back: SimulationOutcome, tmp_path: Path) -> None:
    result, path = fallen_back.result, tmp_path / "last.safetensors"
    save_model(path, fallen_back.layout, fallen_back.saved, fallen_back.origin)
    read = parse_result(to_text(result), "result.json")
    shown = CliRunner().invoke(app, ["model", "show", "--model", str(path)])
    as_json = CliRunner().invoke(app, ["model", "show", "--json", "--model", str(path)])
    assert json.loads(as_json.output)["which_model"] == FALLEN_BACK
    outputs = {
        "result": to_text(result),
        "terminal": "\n".join(reassurance(result)),
        "page": run_page({"result.json": read}),
        "card": model_card(read_saved(path), read),
        "model show": " ".join(shown.output.split()),
    }
    assert {name for name, text in outputs.items() if FALLEN_BACK not in text} == set()
    assert read.model == result.model


def test_all_that_stands_on_one_page_is_of_one_model(fallen_back: SimulationOutcome, tmp_path: Path) -> None:
    result, path = fallen_back.result, tmp_path / "last.safetensors"
    save_model(path, fallen_back.layout, fallen_back.saved, fallen_back.origin)
    verdict = result.verdict
    assert any(FALLEN_BACK.partition(":")[0] in sentence for sentence in verdict.sentences)
    assert any(finding.subject == "training" for finding in verdict.findings)
    # The untrained model guesses, so that no figure of the verdict may differ from those of the result.
    for finding in verdict.findings:
        if finding.subject == "objective":
            assert finding.value == pytest.approx(result.objective.rcvar)  # type: ignore[union-attr]
    for text in (run_page({"result.json": result}), model_card(read_saved(path), result)):
        # What no model of this kind can do may be said of it; that it serves somebody may not.
        assert "his model serves" not in text or "serves no group" in text
        assert "certainly does" not in text
    assert verdict.better_than_guess_from is None
    assert any("no trained model was better" in doubt for doubt in result_warnings(result))


def test_a_card_of_another_model_of_the_run_is_refused(fallen_back: SimulationOutcome, tmp_path: Path) -> None:
    path = tmp_path / "trained.safetensors"
    assert fallen_back.trained is not None
    save_model(path, fallen_back.layout, fallen_back.trained, fallen_back.origin)
    with pytest.raises(Exception, match="the result is about"):
        model_card(read_saved(path), fallen_back.result)


def test_the_words_tell_every_kind_apart() -> None:
    said = {WhichModel(kind, at, 80).words for kind in KINDS for at in ((0,) if kind == "initial" else (40, 80))}
    assert len(said) == 2 * len(KINDS) - 1
    assert WhichModel("best", 40, 80).words == "the model of round 40 of 80, the best that was evaluated"
    assert WhichModel("best", 0, 80).words == FALLEN_BACK
