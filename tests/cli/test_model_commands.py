"""`fedfair model`: what a model is, its card, and its exports."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from fedfair.aggregation.evaluation_file import to_text as evaluation_text
from fedfair.cli.commands import app
from fedfair.errors import CertificateError, DataError
from fedfair.extras import install_command
from fedfair.prediction.export import TOLERANCE, export_metadata, scaled_model
from fedfair.prediction.loaded_model import load_model
from fedfair.results.document import to_text
from fedfair.tables.source import load_federation
from tests import plans
from tests.prediction.saved_runs import SavedRun, saved_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    folder = tmp_path_factory.mktemp("cancer")
    task = {"partition": {"scheme": "random"}, "standardize": "secure", "test_fraction": 0.3}
    made = saved_run(folder, plans.stated(task=task, training={"rounds": 3, "learning_rate": 0.1}))
    (folder / "result.json").write_text(to_text(made.outcome.result))
    (folder / "evaluation.json").write_text(evaluation_text(made.outcome.evaluation))
    words = ["certificate", "-e", "evaluation.json", "-p", "plan/plan.yaml", "--unsigned", "-q"]
    places = ["--output", "certificate.json", "--page", "certificate.html"]
    absolute = [str(folder / word) if "." in word else word for word in (*words, *places)]
    assert CliRunner().invoke(app, absolute).exit_code == 0
    return made


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, ["model", *map(str, words)])


def refused(*words: object) -> DataError | CertificateError:
    fault = invoke(*words).exception
    assert isinstance(fault, DataError | CertificateError), fault
    return fault


def test_a_model_is_shown_with_its_plan_its_columns_and_its_classes(run: SavedRun) -> None:
    done = invoke("show", "--model", run.model)
    assert done.exit_code == 0, done.exception
    for words in ("linear", "30 features", "malignant, benign", "the overall means and deviations", "mean radius"):
        assert words in done.stdout
    assert "the overall mean" not in done.stdout.replace("the overall means", "")
    assert "refused" in done.stdout
    told = json.loads(invoke("show", "--model", run.model, "--json").stdout)
    assert told["plan_digest"] == run.outcome.origin.plan_digest
    assert (told["round"], told["source"]) == (3, "breast-cancer")


def test_the_card_begins_with_the_verdict_and_the_worst_group(run: SavedRun, tmp_path: Path) -> None:
    card = tmp_path / "card.md"
    done = invoke(
        "card", "--model", run.model, "--result", run.workspace / "result.json",
        "--certificate", run.workspace / "certificate.json", "--output", card,
    )  # fmt: skip
    assert done.exit_code == 0, done.exception
    text = card.read_text()
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings[:3] == ["# Model card: heart", "## How the worst-off fare", "## What is certified"]
    rows = [line for line in text.splitlines() if line.startswith("| the worst")]
    size = run.plan.objective.worst_group_size
    risk = run.outcome.result.shown[1].worst_risk(size)
    assert rows[0] == f"| the worst {100 * size:g} % | {risk:.4f} | exact |"
    assert text.index("| the worst") < text.index("| everybody")
    assert "NOT SIGNED" in text
    assert run.outcome.origin.plan_digest in text


def test_a_card_is_of_one_model_one_result_and_one_certificate(run: SavedRun, tmp_path: Path) -> None:
    result = json.loads((run.workspace / "result.json").read_text())
    for changes, told in (
        ({"plan_digest": "sha256:" + "0" * 64}, "of the plan"),
        ({"threshold": 9.0}, "threshold 9"),
    ):
        other = tmp_path / "other.json"
        other.write_text(json.dumps(result | changes, indent=2))
        fault = refused("card", "--model", run.model, "--result", other, "--output", tmp_path / "card.md")
        assert told in fault.message
    certificate = (run.workspace / "certificate.json").read_text()
    lie = tmp_path / "lie.json"
    lie.write_text(certificate.replace('"n": 171', '"n": 172'))
    assert lie.read_text() != certificate
    words = ("--result", run.workspace / "result.json", "--certificate", lie, "--output", tmp_path / "card.md")
    assert isinstance(refused("card", "--model", run.model, *words), CertificateError)
    assert not (tmp_path / "card.md").exists()


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
@pytest.mark.parametrize("form", ["torchscript", "state-dict"])
def test_an_export_to_torch_has_the_scaling_inside(run: SavedRun, tmp_path: Path, form: str) -> None:
    path = tmp_path / "model.pt"
    assert invoke("export", "--model", run.model, "--format", form, "--output", path).exit_code == 0
    model = load_model(run.model)
    features = load_federation(run.plan, run.workspace)["clinic-a"].train.features
    if form == "torchscript":
        extra = {"fedfair.json": ""}
        loaded = torch.jit.load(path, _extra_files=extra)
        assert json.loads(extra["fedfair.json"]) == export_metadata(model)
    else:
        loaded = scaled_model(model)
        loaded.load_state_dict(torch.load(io.BytesIO(path.read_bytes()), weights_only=True))
    predicted, found = loaded(torch.from_numpy(features))
    assert found.detach().numpy() == pytest.approx(model.predict_proba(features), abs=1e-12)
    assert [model.classes[place] for place in predicted.tolist()] == model.predict(features).tolist()


@pytest.mark.slow
def test_onnxruntime_predicts_real_rows_as_the_model_does(run: SavedRun, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    path, rows = tmp_path / "model.onnx", tmp_path / "rows.npy"
    features = load_federation(run.plan, run.workspace)["clinic-b"].train.features
    np.save(rows, features)
    done = invoke("export", "--model", run.model, "--output", path, "--data", rows)
    assert done.exit_code == 0, done.exception
    assert f"compared on {len(features)} records" in done.stderr
    session = onnxruntime.InferenceSession(str(path))
    predicted, found = session.run(["predicted", "probabilities"], {"features": features})
    model = load_model(run.model)
    assert np.abs(found - model.predict_proba(features)).max() <= TOLERANCE
    assert [model.classes[place] for place in predicted] == model.predict(features).tolist()
    assert session.get_modelmeta().custom_metadata_map == export_metadata(model)
    assert session.run(["probabilities"], {"features": features[:1]})[0].shape == (1, 2)


def test_nothing_is_written_over_what_is_there(run: SavedRun, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for command in (("card", "--result", run.workspace / "result.json"), ("export", "--format", "state-dict")):
        assert "--replace" in refused(*command, "--model", run.model, "--output", tmp_path / "mine").remedy
        missing = tmp_path / "none" / "x"
        assert "does not exist" in refused(*command, "--model", run.model, "--output", missing).message
    assert (tmp_path / "mine").read_text() == "mine"
    assert "there is no model" in refused("show", "--model", tmp_path / "none").message


def test_missing_packages_name_the_extra(run: SavedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfair.prediction.export.ONNX_PACKAGES", ("no_such_package",))
    fault = refused("export", "--model", run.model, "--output", tmp_path / "model.onnx")
    assert fault.message == "--format onnx needs no_such_package"
    assert fault.remedy == install_command("onnx")
