"""Own code of a saved model runs only where plan and code are known to have trained it."""

import os
import py_compile
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import cache_from_source
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import DataError, PlanError
from fedfair.prediction.loaded_model import load_model
from fedfair.run.saved_model import read_saved, save_model
from tests import plans
from tests.prediction.saved_runs import SavedRun, saved_run

MODULE = "fedfair_test_own_code"
CODE = """
from pathlib import Path

import numpy as np
from torch import nn

(Path({place!r}) / "ran").write_text("ran")

def load(folder):
    features = np.random.default_rng(0).normal(size=(40, 3))
    return features, (features[:, 0] > 0).astype(int)

def model(schema):
    return nn.Linear(3, 2)

def amounts(folder):
    features, _ = load(folder)
    return features, features @ [1.0, -2.0, 0.5]

def cost(outputs, targets):
    return (outputs[:, 0] - targets).abs()
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SavedRun]:
    (tmp_path / "src").mkdir()
    source_in(tmp_path).write_text(CODE.format(place=str(tmp_path)))
    task = {"data": f"{MODULE}:load", "model": f"{MODULE}:model", "partition": {"scheme": "contiguous"},
            "input_shape": [3], "classes": 2}  # fmt: skip
    made = saved_run(tmp_path, plans.stated(("a",), task=task))
    np.save(tmp_path / "new.npy", np.zeros((2, 3)))
    forget(made)
    yield made
    forget(made)


def source_in(folder: Path) -> Path:
    return folder / "src" / f"{MODULE}.py"


def forget(run: SavedRun) -> None:
    sys.modules.pop(MODULE, None)
    (run.workspace / "ran").unlink(missing_ok=True)


def has_run(run: SavedRun) -> bool:
    return MODULE in sys.modules or (run.workspace / "ran").exists()


def command(run: SavedRun, name: str, *more: str) -> BaseException | None:
    data = ["--data", str(run.workspace / "new.npy")]
    words = ["predict"] if name == "predict" else ["model", "export", "--format", "torchscript"]
    output = str(run.workspace / f"{name}.out")
    place = ["--model", str(run.model), "--workspace", str(run.workspace), "--output", output, "--replace"]
    return CliRunner().invoke(app, [*words, *data, *place, *more]).exception


@pytest.mark.parametrize("name", ["predict", "export"])
def test_a_module_that_was_changed_by_one_byte_is_not_imported(run: SavedRun, name: str) -> None:
    assert command(run, name) is None
    assert has_run(run)
    forget(run)
    content = bytearray(source_in(run.workspace).read_bytes())
    content[-2] ^= 1
    source_in(run.workspace).write_bytes(content)
    fault = command(run, name)
    assert isinstance(fault, DataError)
    assert f"was trained by the plan {run.outcome.origin.plan_digest}" in fault.message
    assert fault.remedy
    assert not has_run(run)


def test_a_new_neighbour_or_a_changed_plan_runs_nothing(run: SavedRun) -> None:
    neighbour = run.workspace / "src" / "numpy.py"
    neighbour.write_text("raise SystemExit\n")
    assert isinstance(command(run, "predict"), DataError)
    neighbour.unlink()
    text = run.plan_file.read_text()
    run.plan_file.write_text(text.replace(f"model: {MODULE}:model", f"model: {MODULE}:load"))
    assert "states task.model" in str(command(run, "predict"))
    changed = yaml.safe_load(text)
    changed["training"]["rounds"] = 77
    run.plan_file.write_text(yaml.safe_dump(changed))
    assert isinstance(command(run, "predict"), DataError)
    assert not has_run(run)


def test_a_file_without_its_initial_weights_needs_its_user_to_name_the_code(run: SavedRun) -> None:
    found = read_saved(run.model)
    save_model(run.model, found.layout, found.saved, replace(found.origin, initial_weights=None))
    fault = command(run, "predict")
    assert isinstance(fault, DataError)
    assert "does not state its initial weights" in fault.message
    digest = fault.remedy.split("--code-digest ")[1]
    assert isinstance(command(run, "predict", "--code-digest", "sha256:" + "0" * 64), DataError)
    assert isinstance(command(run, "predict", "--code-digest", "sha256"), PlanError)
    assert not has_run(run)
    assert command(run, "predict", "--code-digest", digest) is None
    assert has_run(run)


def test_compiled_code_is_not_what_runs_and_loaded_models_are_loaded_again(run: SavedRun) -> None:
    source = source_in(run.workspace)
    honest, times = source.read_bytes(), source.stat()
    source.write_bytes(honest.replace(b'write_text("ran")', b'write_text("bad")'))
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    py_compile.compile(str(source), cache_from_source(str(source)))
    source.write_bytes(honest)
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert command(run, "predict") is None
    assert (run.workspace / "ran").read_text() == "ran"
    features = np.ones((2, 3))
    first = load_model(run.model, workspace=run.workspace).predict_proba(features)
    again = load_model(run.model, workspace=run.workspace).predict_proba(features)
    assert np.array_equal(first, again)


def test_a_model_whose_loss_alone_is_own_code_predicts_and_is_exported(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    source_in(tmp_path).write_text(CODE.format(place=str(tmp_path)))
    task = {"data": f"{MODULE}:amounts", "loss": f"{MODULE}:cost", "model": {"name": "linear"},
            "partition": {"scheme": "contiguous"}, "input_shape": [3]}  # fmt: skip
    run = saved_run(tmp_path, plans.stated(("a",), task=task, evaluation={"loss_range": 50.0}))
    np.save(tmp_path / "new.npy", np.eye(3))
    forget(run)
    try:
        assert command(run, "predict") is None
        assert command(run, "export") is None
        assert load_model(run.model, workspace=tmp_path).predict(np.eye(3)).shape == (3, 1)
        run.plan_file.write_text(run.plan_file.read_text().replace(f"{MODULE}:cost", f"{MODULE}:other"))
        assert "states task.model linear and task.loss" in str(command(run, "predict"))
    finally:
        forget(run)
