"""Plans that freeze a part of their model: from the file that begins them to the model that predicts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import fedfair
from fedfair.aggregation import model_file
from fedfair.cli.commands import app
from fedfair.errors import DataError, PlanError
from fedfair.plan.loading import load_plan
from fedfair.prediction.export import export_model
from fedfair.run.initial_model import read_initial_model
from fedfair.tables.source import load_federation
from fedfair.training.binding import plan_binding
from fedfair.training.eight_bits import EightBitLinear
from fedfair.training.freezing import freeze_from, freeze_plan
from fedfair.workspace.archive import exported
from tests.training.test_initial_weights_of_files import put_plan

MODEL = {
    "data": "breast-cancer",
    "model": {"name": "mlp", "hidden": [4, 3]},
    "partition": {"scheme": "contiguous"},
}
HEAD = {"train": ["output.*"]}
ADAPTERS = {"lora": {"layers": ["hidden*"], "rank": 2}}
FROZEN = "plan.frozen.safetensors"


def given(folder: Path, seed: int = 5) -> Path:
    """Write weights of the whole model, and return their file."""
    draw = np.random.default_rng(seed)
    shapes = {"hidden1": (4, 30), "hidden2": (3, 4), "output": (2, 3)}
    tensors = {f"{name}.weight": draw.normal(size=shape) for name, shape in shapes.items()}
    tensors |= {f"{name}.bias": draw.normal(size=shape[:1]) for name, shape in shapes.items()}
    path = folder / f"pretrained-{seed}.safetensors"
    save_file({name: torch.from_numpy(one.astype(np.float32)) for name, one in tensors.items()}, path)
    return path


def predicted(place: Path, folder: Path, *options: str) -> int:
    """Return the exit status of a prediction of some records."""
    np.save(folder / "records.npy", np.zeros((2, 30)))
    said = ["predict", "--model", str(place), "--data", str(folder / "records.npy"), "-o", "-", *options]
    return CliRunner().invoke(app, said).exit_code


def begun(folder: Path, **parameters: object) -> Path:
    training = {"rounds": 3, "learning_rate": 0.1, "parameters": parameters or HEAD}
    plan_file = put_plan(folder, task=MODEL, objective={"measure": "loss"}, training=training)
    freeze_from(plan_file, given(folder))
    return plan_file


def test_a_file_begins_what_travels_and_lies_beside_the_plan_for_what_is_frozen(tmp_path: Path) -> None:
    plan_file = begun(tmp_path)
    source, plan = load_file(given(tmp_path)), load_plan(plan_file)
    held = read_initial_model(plan_file, plan)
    assert [entry.name for entry in held.layout.entries] == ["output.bias", "output.weight"]
    for name, tensor in held.layout.unflatten(held.vector).items():
        assert np.array_equal(tensor, source[name].numpy())
    layout, vector, _ = model_file.load(plan_file.with_name(FROZEN))
    frozen = layout.unflatten(vector)
    assert sorted(frozen) == ["hidden1.bias", "hidden1.weight", "hidden2.bias", "hidden2.weight"]
    assert all(np.array_equal(tensor, source[name].numpy()) for name, tensor in frozen.items())
    # Whoever has torch and whoever has none come to one digest; the archive takes both files along.
    assert plan_binding(plan, tmp_path).digest == held.plan_digest
    assert {f"plan/{FROZEN}", "plan/plan.initial.safetensors"} <= set(exported(tmp_path))
    # A site may have its own copy, also of the whole model.
    plan_file.with_name(FROZEN).unlink()
    with pytest.raises(PlanError, match=r"plan\.frozen\.safetensors is missing"):
        plan_binding(plan, tmp_path)
    assert plan_binding(plan.with_frozen(given(tmp_path)), tmp_path).digest == held.plan_digest


def test_frozen_values_that_were_swapped_at_one_site_are_refused(tmp_path: Path) -> None:
    plan_file = begun(tmp_path)
    plan = load_plan(plan_file)
    with pytest.raises(PlanError, match="holds other frozen parameters than the plan names: sha256:"):
        plan_binding(plan.with_frozen(given(tmp_path, seed=6)), tmp_path)
    place = plan_file.with_name(FROZEN)
    raw = bytearray(place.read_bytes())
    raw[-1] ^= 1
    place.write_bytes(raw)
    with pytest.raises(PlanError, match="holds other frozen parameters than the plan names"):
        plan_binding(plan, tmp_path)


def test_the_seed_makes_what_no_file_gives_and_is_part_of_what_a_plan_is_bound_to(tmp_path: Path) -> None:
    def digest(seed: int, **parameters: object) -> tuple[bytes, bytes]:
        plan_file = put_plan(tmp_path, task=MODEL, training={"seed": seed, "parameters": parameters})
        made = freeze_plan(plan_file)
        held = read_initial_model(plan_file, load_plan(plan_file))
        assert held.plan_digest == made.digest
        return made.layout.frozen, made.digest

    found = [
        digest(1, **HEAD),
        digest(2, **HEAD),
        digest(1, train=["output.*", "hidden2.*"]),
        digest(1, **ADAPTERS),
    ]
    assert len({frozen for frozen, _ in found}) == len({whole for _, whole in found}) == len(found)


@pytest.mark.parametrize(
    "parameters", [HEAD, ADAPTERS, {**HEAD, "frozen_bits": 8}], ids=["head", "adapters", "head of 8 bits"]
)
def test_a_saved_model_holds_what_travels_and_predicts_beside_the_frozen_values(
    tmp_path: Path, parameters: dict[str, object]
) -> None:
    plan_file = begun(tmp_path, **parameters)
    done = fedfair.simulate(load_plan(plan_file))
    place = tmp_path / "save" / "last.safetensors"
    place.parent.mkdir()
    done.save(place)
    held, _, _ = model_file.load(place)
    whole = 4 * 31 + 3 * 5 + 2 * 4
    assert held.dimension == {True: 2 * 4, False: 2 * (30 + 4) + 2 * (4 + 3)}["train" in parameters] < whole
    model = fedfair.load_model(place)
    kinds = {type(layer) for layer in model.module.modules()}
    assert (EightBitLinear in kinds) == ("frozen_bits" in parameters)
    features = np.random.default_rng(0).normal(size=(5, 30))
    expected = done.model.predict_proba(features)
    assert np.array_equal(model.predict_proba(features), expected)
    assert export_model(model, "state-dict").difference < 1e-6
    # With the file of the whole model in another place, and refused without it or with another.
    plan_file.with_name(FROZEN).unlink()
    assert np.array_equal(fedfair.load_model(place, frozen=given(tmp_path)).predict_proba(features), expected)
    assert predicted(place, tmp_path, "--frozen", str(given(tmp_path))) == 0
    assert predicted(place, tmp_path) == 1
    with pytest.raises(DataError, match=r"what was trained alone; .*plan\.frozen\.safetensors.* is not there"):
        fedfair.load_model(place)
    with pytest.raises(DataError, match="was trained beside frozen parameters sha256:"):
        fedfair.load_model(place, frozen=given(tmp_path, seed=6))


def test_a_frozen_network_and_a_trained_head_are_a_linear_model_of_its_features(tmp_path: Path) -> None:
    """Oracle: gradient descent on the features of the frozen layers, written out in numpy."""
    training = {
        "rounds": 5, "batch_size": "full", "learning_rate": 0.2, "algorithm": "fedavg", "precision": "fp64",
        "parameters": HEAD,
    }  # fmt: skip
    task = MODEL | {"standardize": "none", "partition": {"scheme": "contiguous"}}
    plan_file = put_plan(tmp_path, task=task, training=training, secure_aggregation={"mode": "off"})
    made = freeze_from(plan_file, given(tmp_path))[0]
    plan = load_plan(plan_file)
    done = fedfair.simulate(plan)
    records = load_federation(plan, tmp_path)
    features = np.concatenate([one.train.features for one in records.values()]).astype(np.float64)
    labels = np.concatenate([one.train.labels for one in records.values()])
    values = {name: one.numpy().astype(np.float64) for name, one in load_file(given(tmp_path)).items()}
    for name in ("hidden1", "hidden2"):
        features = np.maximum(features @ values[f"{name}.weight"].T + values[f"{name}.bias"], 0.0)
    start = made.layout.unflatten(made.vector)
    weight, bias = start["output.weight"].copy(), start["output.bias"].copy()
    for _ in range(5):
        logits = features @ weight.T + bias
        chances = np.exp(logits - logits.max(1, keepdims=True))
        error = (chances / chances.sum(1, keepdims=True) - np.eye(2)[labels]) / len(labels)
        weight, bias = weight - 0.2 * error.T @ features, bias - 0.2 * error.sum(0)
    found = made.layout.unflatten(done.model.module.vector())
    assert np.allclose(found["output.weight"], weight, rtol=1e-9, atol=1e-9)
    assert np.allclose(found["output.bias"], bias, rtol=1e-9, atol=1e-9)
