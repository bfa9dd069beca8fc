"""The weights before round 1 from a file: what a model takes, what is refused, and what the plan then says."""

import json
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file
from torch import Tensor
from typer.testing import CliRunner

from fedfair.aggregation import model_file
from fedfair.cli.commands import app
from fedfair.cli.initial_model import put_initial_model
from fedfair.errors import DataError, PlanError
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import initial_path, load_plan
from fedfair.plan.schema import Plan
from fedfair.run.initial_model import initial_model_file, read_initial_model, stated_weights, vector_digest
from fedfair.training.binding import plan_binding
from fedfair.training.freezing import freeze_from, freeze_plan
from fedfair.training.imported_weights import Allowance
from fedfair.workspace.archive import pack, unpack
from tests import plans
from tests.prediction.saved_runs import SavedRun, saved_run

MLP = {"data": "breast-cancer", "model": {"name": "mlp", "hidden": [4]}, "standardize": "none"}


LEARNING = {"rounds": 20, "learning_rate": 0.3}
"""Enough to leave the zeros that a linear model begins with."""


def scaled(**sections: plans.Section) -> plans.Values:
    """Return a plan that standardises the columns by a sum, unless it states another task."""
    task = {"partition": {"scheme": "contiguous"}, "standardize": "secure", **sections.get("task", {})}
    return plans.stated(**{**sections, "task": task})


def put_plan(folder: Path, **sections: plans.Section) -> Path:
    path = folder / "plan" / "plan.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(json.loads(json.dumps(scaled(**sections)))))
    return path


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    return put_plan(tmp_path, task=MLP)


def old_run(folder: Path, values: plans.Values) -> SavedRun:
    """Return a run that has ended, in a folder of its own."""
    (folder / "old").mkdir()
    return saved_run(folder / "old", values)


def weights(plan_file: Path, seed: int = 5) -> dict[str, Tensor]:
    """Return other weights of the plan's model, by the names of its tensors."""
    layout = plan_binding(load_plan(plan_file), plan_file.parent.parent).layout
    draw = np.random.default_rng(seed)
    return {
        entry.name: torch.from_numpy(draw.normal(size=entry.shape).astype(np.float32)) for entry in layout.entries
    }


def safetensors(path: Path, tensors: Mapping[str, Tensor]) -> Path:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return path


def pickled(path: Path, content: object) -> Path:
    torch.save(content, path)
    return path


def flat(plan_file: Path, tensors: Mapping[str, Tensor]) -> np.ndarray:
    layout = plan_binding(load_plan(plan_file), plan_file.parent.parent).layout
    return layout.flatten({name: tensor.to(torch.float32).numpy() for name, tensor in tensors.items()})


@pytest.mark.parametrize("kind", ["safetensors", "pt", "checkpoint"])
def test_the_weights_of_a_file_are_those_before_round_1(plan_file: Path, tmp_path: Path, kind: str) -> None:
    before, tensors = freeze_plan(plan_file), weights(plan_file)
    source = {
        "safetensors": lambda: safetensors(tmp_path / "w.safetensors", tensors),
        "pt": lambda: pickled(tmp_path / "w.pt", tensors),
        "checkpoint": lambda: pickled(tmp_path / "w.pth", {"epoch": 3, "state_dict": tensors}),
    }[kind]()
    expected = flat(plan_file, tensors)
    made, imported = freeze_from(plan_file, source)
    assert made.vector.tobytes() == imported.vector.tobytes() == expected.tobytes()
    assert made.digest != before.digest
    plan = load_plan(plan_file)
    assert plan.training.initial is not None
    assert plan.training.initial.weights == format_digest(vector_digest(expected))
    read = read_initial_model(plan_file, plan)
    assert (read.plan_digest, read.vector.tobytes()) == (made.digest, expected.tobytes())
    # The same command again, and without --from, changes nothing.
    content = initial_model_file(plan_file).read_bytes()
    assert freeze_from(plan_file, source)[0].digest == freeze_plan(plan_file).digest == made.digest
    assert initial_model_file(plan_file).read_bytes() == content


Changed = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def with_value(value: float) -> Changed:
    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        tensors["output.bias"][0] = value
        return tensors

    return change


FAULTS: dict[str, tuple[Changed, str, str]] = {
    "missing": (
        lambda tensors: {name: each for name, each in tensors.items() if name != "output.bias"},
        r"w\.safetensors does not fit the plan's model: output\.bias is missing", "--allow-missing",
    ),
    "unknown": (
        lambda tensors: {**tensors, "head.bias": torch.zeros(2)},
        r"has tensors that the plan's model does not: head\.bias", "--allow-extra",
    ),
    "renamed": (
        lambda tensors: {f"module.{name}": each for name, each in tensors.items()},
        r"does not: module\.hidden1\.bias, module\.hidden1\.weight", "rename",
    ),
    "shape": (
        lambda tensors: {**tensors, "output.bias": torch.zeros(3)},
        r"output\.bias has shape \(3,\), the model's has \(2,\)", "--allow-missing",
    ),
    "integer": (
        lambda tensors: {**tensors, "output.bias": torch.zeros(2, dtype=torch.int64)},
        r"output\.bias is int64, no floating-point number", "give weights of this model",
    ),
    "complex": (
        lambda tensors: {**tensors, "output.bias": torch.zeros(2, dtype=torch.complex64)},
        r"output\.bias is complex64, no floating-point number", "give weights of this model",
    ),
    "nan": (with_value(float("nan")), r"output\.bias holds 1 values that are NaN or infinite", "diverged"),
    "infinite": (with_value(float("-inf")), r"output\.bias holds 1 values that are NaN or infinite", "diverged"),
    "too wide": (
        lambda tensors: {**tensors, "output.bias": torch.full((2,), 1e300, dtype=torch.float64)},
        r"output\.bias holds 1e\+300, which float32 cannot hold", "fp64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_weights_that_are_not_the_models_are_refused(plan_file: Path, tmp_path: Path, fault: str) -> None:
    change, message, remedy = FAULTS[fault]
    source = safetensors(tmp_path / "w.safetensors", change(weights(plan_file)))
    with pytest.raises(DataError, match=message) as refused:
        freeze_from(plan_file, source)
    assert remedy in refused.value.remedy
    assert not initial_path(plan_file).exists()
    assert not initial_model_file(plan_file).exists()


def test_a_file_that_is_none_is_refused(plan_file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        freeze_from(plan_file, tmp_path / "none.safetensors")
    with pytest.raises(DataError, match="is no file"):
        freeze_from(plan_file, tmp_path)
    (tmp_path / "text.safetensors").write_text("no tensors")
    with pytest.raises(DataError, match="is no safetensors file that can be read"):
        freeze_from(plan_file, tmp_path / "text.safetensors")
    (tmp_path / "text.pt").write_text("no tensors")
    with pytest.raises(DataError, match=r"text\.pt is no file of tensors that torch can read"):
        freeze_from(plan_file, tmp_path / "text.pt")
    (tmp_path / "empty.PT").touch()
    with pytest.raises(DataError, match=r"empty\.PT is empty"):
        freeze_from(plan_file, tmp_path / "empty.PT")
    with pytest.raises(DataError, match="holds list, which is no mapping"):
        freeze_from(plan_file, pickled(tmp_path / "list.pt", [1, 2]))
    frozen = freeze_plan(plan_file)
    copied = tmp_path / "copied.safetensors"
    copied.write_bytes(initial_model_file(plan_file).read_bytes())
    with pytest.raises(DataError, match="is the model before round 1 of some plan"):
        freeze_from(plan_file, copied)
    assert freeze_plan(plan_file).digest == frozen.digest


class Planted:
    """What a pickle would run when it is opened."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.place,)  # type: ignore[return-value]


@pytest.mark.parametrize("ending", ["pt", "PTH", "bin", "safetensors", "pkl"])
def test_no_code_of_a_pickle_is_run(plan_file: Path, tmp_path: Path, ending: str) -> None:
    planted = Planted(tmp_path / "ran")
    source = pickled(tmp_path / f"w.{ending}", {"output.bias": planted})
    bare = tmp_path / f"bare.{ending}"
    bare.write_bytes(pickle.dumps(planted))
    for path in (source, bare):
        with pytest.raises(DataError, match=r"no code of a file is run|is no (safetensors )?file") as refused:
            freeze_from(plan_file, path)
        assert "weights_only" not in refused.value.message
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Tensor.to_sparse, "hidden1.bias is stored as sparse_coo, not number by number"),
        (lambda each: torch.empty_like(each, device="meta"), "hidden1.bias has a shape and no values"),
        (lambda each: each.to(torch.float8_e4m3fn), "hidden1.bias is float8_e4m3fn, no floating-point"),
    ],
    ids=["sparse", "meta", "8 bits"],
)
def test_tensors_without_plain_numbers_are_refused(
    plan_file: Path, tmp_path: Path, change: Callable[[Tensor], Tensor], message: str
) -> None:
    tensors = {name: change(each) for name, each in weights(plan_file).items()}
    with pytest.raises(DataError, match=message):
        freeze_from(plan_file, pickled(tmp_path / "w.pt", tensors))
    assert not initial_path(plan_file).exists()


def test_what_would_not_fit_is_told_at_once_and_nothing_is_taken(plan_file: Path, tmp_path: Path) -> None:
    tensors = weights(plan_file)
    del tensors["hidden1.bias"]
    tensors["output.bias"] = torch.zeros(3)
    with pytest.raises(DataError, match=r"hidden1\.bias is missing; output\.bias has shape"):
        freeze_from(plan_file, safetensors(tmp_path / "w.safetensors", tensors))
    with pytest.raises(DataError, match=r"holds torch\.nn\.modules\.linear\.Linear, which is code") as refused:
        freeze_from(plan_file, pickled(tmp_path / "w.pt", torch.nn.Linear(30, 2)))
    assert "state_dict" in refused.value.remedy
    with pytest.deprecated_call():
        compiled = torch.jit.script(torch.nn.Linear(30, 2))
    compiled.save(str(tmp_path / "compiled.pt"))
    with pytest.raises(DataError, match="holds a compiled module"):
        freeze_from(plan_file, tmp_path / "compiled.pt")
    source = safetensors(tmp_path / "w.safetensors", weights(plan_file))
    with pytest.raises(DataError, match="names every tensor of the model"):
        freeze_from(plan_file, source, Allowance(("*",)))


def test_a_check_of_the_plan_looks_at_what_it_begins_with(plan_file: Path, tmp_path: Path) -> None:
    freeze_from(plan_file, safetensors(tmp_path / "w.safetensors", weights(plan_file)))
    words = ["plan", "check", "-p", str(plan_file)]
    assert CliRunner().invoke(app, words).exit_code == 0
    initial_model_file(plan_file).unlink()
    found = CliRunner().invoke(app, words).exception
    assert isinstance(found, PlanError)
    assert "is missing: the plan names initial weights" in found.message


def test_the_seed_comes_back_without_the_file_and_large_files_are_unread(plan_file: Path, tmp_path: Path) -> None:
    before = freeze_plan(plan_file).digest
    freeze_from(plan_file, safetensors(tmp_path / "w.safetensors", weights(plan_file)))
    initial_path(plan_file).unlink()
    assert freeze_plan(plan_file).digest == before
    source = tmp_path / "w.safetensors"
    with source.open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(DataError, match=r"has 68157440 bytes; the plan's model has 134 values") as refused:
        freeze_from(plan_file, source)
    assert "optimizer" in refused.value.remedy


@pytest.mark.parametrize("width", [torch.float16, torch.bfloat16])
def test_numbers_of_16_bits_are_widened_exactly(plan_file: Path, tmp_path: Path, width: torch.dtype) -> None:
    narrow = {name: each.to(width) for name, each in weights(plan_file).items()}
    made, imported = freeze_from(plan_file, safetensors(tmp_path / "w.safetensors", narrow))
    assert made.vector.tobytes() == flat(plan_file, narrow).tobytes()
    assert imported.cast == (f"4 tensors of {str(width).removeprefix('torch.')}, held exactly as float32",)


def test_widths_of_numbers_are_those_of_the_plan(plan_file: Path, tmp_path: Path) -> None:
    wide = {name: each.double() / 3 for name, each in weights(plan_file).items()}
    made, imported = freeze_from(plan_file, safetensors(tmp_path / "w.safetensors", wide))
    assert made.vector.tobytes() == flat(plan_file, wide).tobytes()
    assert imported.cast == ("4 tensors of float64, rounded to float32",)
    plan_file = put_plan(tmp_path / "wide", task=MLP, training={"precision": "fp64"})
    tensors = weights(plan_file)
    made, imported = freeze_from(plan_file, safetensors(tmp_path / "w.safetensors", tensors))
    assert made.vector.dtype == np.float64
    assert (made.vector == flat_wide(plan_file, tensors)).all()
    assert imported.cast == ("4 tensors of float32, held exactly as float64",)


def flat_wide(plan_file: Path, tensors: Mapping[str, Tensor]) -> np.ndarray:
    layout = plan_binding(load_plan(plan_file), plan_file.parent.parent).layout
    return layout.flatten({name: tensor.to(torch.float64).numpy() for name, tensor in tensors.items()})


def test_a_backbone_takes_what_it_has_and_keeps_the_plans_head(plan_file: Path, tmp_path: Path) -> None:
    seeded = plan_binding(load_plan(plan_file), tmp_path)
    tensors = weights(plan_file)
    backbone = {**tensors, "output.weight": torch.zeros(1000, 4), "classifier.0.bias": torch.zeros(7)}
    del backbone["output.bias"]
    source = safetensors(tmp_path / "w.safetensors", backbone)
    allowed = Allowance(("output.*",), ("classifier.*",))
    made, imported = freeze_from(plan_file, source, allowed)
    assert imported.kept == ("output.bias", "output.weight")
    assert imported.ignored == ("classifier.0.bias", "output.weight")
    for entry, place in made.layout.slices():
        wanted = seeded.vector[place] if entry.name in imported.kept else tensors[entry.name].numpy().reshape(-1)
        assert made.vector[place].tobytes() == wanted.tobytes()
    # The same head may be named on both sides, as it is in the file and in the model.
    both = Allowance(("output.*",), ("classifier.*", "output.weight"))
    assert freeze_from(plan_file, source, both)[0].digest == made.digest
    for wrong in (Allowance(("head.*",)), Allowance(("output.*",), ("classifier.*", "pooler.*"))):
        with pytest.raises(DataError, match="names no tensor of"):
            freeze_from(plan_file, source, wrong)


def test_tied_tensors_and_counters_of_batches_are_no_misfits(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "fedfair_test_tied.py").write_text(
        "from torch import nn\n"
        "def model(schema):\n"
        "    net = nn.Sequential(nn.Linear(30, 30), nn.BatchNorm1d(30), nn.Linear(30, 30), nn.Linear(30, 2))\n"
        "    net[2].weight = net[0].weight\n"
        "    return net\n"
    )
    task = {"data": "breast-cancer", "model": "fedfair_test_tied:model", "standardize": "none"}
    plan_file = put_plan(tmp_path, task=task)
    tensors = weights(plan_file)
    state = {**tensors, "2.weight": tensors["0.weight"].clone(), "1.num_batches_tracked": torch.tensor(7)}
    made, imported = freeze_from(plan_file, pickled(tmp_path / "w.pt", state))
    assert made.vector.tobytes() == flat(plan_file, tensors).tobytes()
    assert imported.ignored == ("1.num_batches_tracked",)


# ------------------------------------------------------------------ a model that fedfair has saved


def test_a_saved_model_brings_its_threshold_and_its_scaling(tmp_path: Path) -> None:
    trained = old_run(tmp_path, scaled(training=LEARNING))
    plan_file = put_plan(tmp_path / "new", training={"rounds": 4})
    _, imported = freeze_from(plan_file, trained.model)
    initial = load_plan(plan_file).training.initial
    assert imported.scaling is not None
    assert initial is not None
    assert initial.scaling is not None
    assert initial.threshold == imported.threshold
    assert imported.threshold not in (None, 1.0)
    held = stated_weights(load_plan(plan_file), plan_file)
    assert held.carried.scaling is not None
    assert held.carried.scaling.mean.tobytes() == imported.scaling.mean.tobytes()
    assert freeze_from(plan_file, trained.model, new_threshold=True)[1].threshold is None
    initial = load_plan(plan_file).training.initial
    assert initial is not None
    assert initial.threshold is None


def test_saved_models_of_other_tasks_or_damaged_are_refused(tmp_path: Path) -> None:
    trained = old_run(tmp_path, scaled(training={"rounds": 2}))
    raw = put_plan(tmp_path / "raw", task={"standardize": "none"})
    with pytest.raises(DataError, match="holds a model of another plan: its input has standardize"):
        freeze_from(raw, trained.model)
    wider = put_plan(tmp_path / "wider", task={"model": {"name": "mlp", "hidden": [4]}})
    with pytest.raises(DataError, match="holds a model of another plan: its architecture is"):
        freeze_from(wider, trained.model)
    damaged = bytearray(trained.model.read_bytes())
    damaged[-3] ^= 1
    trained.model.write_bytes(damaged)
    with pytest.raises(DataError, match="its values are not those that were written"):
        freeze_from(put_plan(tmp_path / "new"), trained.model)


# ------------------------------------------------------------------ after the approval


def test_weights_travel_with_the_workspace_and_faults_keep_them_back(plan_file: Path, tmp_path: Path) -> None:
    made, _ = freeze_from(plan_file, safetensors(tmp_path / "w.safetensors", weights(plan_file)))
    copy = tmp_path / "copy"
    names = {path.name for path in unpack(pack(tmp_path), copy)}
    assert names == {"plan.yaml", "plan.initial.yaml", "plan.initial.safetensors"}
    found = plan_binding(load_plan(copy / "plan" / "plan.yaml"), copy)
    assert (found.digest, found.vector.tobytes()) == (made.digest, made.vector.tobytes())
    freeze_from(plan_file, safetensors(tmp_path / "w.safetensors", weights(plan_file)))
    place = initial_model_file(plan_file)
    layout, vector, words = model_file.load(place)
    model_file.save(place, layout, vector + 1, words)
    kept = place.read_bytes()
    with pytest.raises(PlanError, match="one of them was changed"):
        put_initial_model(plan_file)
    assert place.read_bytes() == kept


def test_another_scaling_beside_the_same_weights_is_refused(tmp_path: Path) -> None:
    trained = old_run(tmp_path, scaled(training={"rounds": 2}))
    plan_file = put_plan(tmp_path / "new")
    freeze_from(plan_file, trained.model)
    place = initial_model_file(plan_file)
    layout, vector, words = model_file.load(place)
    scaling = json.loads(words["feature_scaling"])
    scaling["mean"][0] += 1.0
    model_file.save(place, layout, vector, {**words, "feature_scaling": json.dumps(scaling)})
    with pytest.raises(PlanError, match=r"holds the feature scaling .* the plan names"):
        plan_binding(load_plan(plan_file), tmp_path / "new")
    del words["feature_scaling"]
    model_file.save(place, layout, vector, words)
    with pytest.raises(PlanError, match="holds the feature scaling none, the plan names"):
        plan_binding(load_plan(plan_file), tmp_path / "new")


def test_what_was_changed_after_the_freeze_is_refused(plan_file: Path, tmp_path: Path) -> None:
    freeze_from(plan_file, safetensors(tmp_path / "w.safetensors", weights(plan_file)))
    plan, place = load_plan(plan_file), initial_model_file(plan_file)
    layout, vector, words = model_file.load(place)
    model_file.save(place, layout, vector + 1, words)
    for reading in (lambda: read_initial_model(plan_file, plan), lambda: plan_binding(plan, tmp_path)):
        with pytest.raises(PlanError, match=r"holds initial weights .* the plan names .* was changed") as refused:
            reading()
        assert "freeze --from" in refused.value.remedy
    place.unlink()
    with pytest.raises(PlanError, match="is missing: the plan names initial weights"):
        plan_binding(plan, tmp_path)
    initial_path(plan_file).unlink()
    freeze_from(plan_file, safetensors(tmp_path / "w.safetensors", weights(plan_file)))
    stated = yaml.safe_load(plan_file.read_text())
    stated["task"]["model"]["hidden"] = [5]
    plan_file.write_text(yaml.safe_dump(stated))
    with pytest.raises(PlanError, match="the plan's model has 167 float32 in 4") as refused:
        freeze_plan(plan_file)
    assert "remove plan.initial.yaml" in refused.value.remedy


def test_stated_thresholds_and_missing_files_are_told(tmp_path: Path) -> None:
    trained = old_run(tmp_path, scaled(training={"rounds": 2}))
    for init in ("quantile", 0.25, None):
        plan_file = put_plan(tmp_path / "new", training={"threshold_init": init})
        assert freeze_from(plan_file, trained.model)[1].threshold is None
    fewer = {"collaborators": [*plans.NAMES[:2]]}
    plan_file = put_plan(tmp_path / "fewer", federation=fewer, training={"threshold_init": None})
    assert freeze_from(plan_file, trained.model)[1].threshold is not None
    plan = Plan.model_validate(plans.stated(training={"initial": {"weights": f"sha256:{'0' * 64}"}}))
    with pytest.raises(PlanError, match="no file beside the plan") as refused:
        plan_binding(plan, Path())
    assert "initial_model=FILE" in refused.value.remedy


def test_the_command_names_all_that_it_did(plan_file: Path, tmp_path: Path) -> None:
    tensors = {name: each.to(torch.bfloat16) for name, each in weights(plan_file).items()}
    del tensors["output.bias"]
    source = safetensors(tmp_path / "w.safetensors", tensors)
    words = ["plan", "freeze", "-p", str(plan_file), "--from", str(source)]
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, DataError)
    done = CliRunner().invoke(app, [*words, "--allow-missing", "output.bias"])
    assert done.exit_code == 0, done.output
    assert "with the plan's own values: output.bias" in done.output
    assert "3 tensors of bfloat16, held exactly as float32" in done.output
    assert "the threshold begins as the plan says" in done.output
    assert "every site has to approve the plan again" in done.output
    told = json.loads(CliRunner().invoke(app, [*words, "--allow-missing", "output.bias", "--json"]).stdout)
    assert told["from"]["plan_values"] == ["output.bias"]
    alone = CliRunner().invoke(app, ["plan", "freeze", "-p", str(plan_file), "--allow-missing", "output.bias"])
    assert isinstance(alone.exception, PlanError)
