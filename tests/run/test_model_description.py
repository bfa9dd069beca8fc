"""A saved model says by itself what it takes and returns, and is refused by a plan that says otherwise."""

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfair.aggregation import model_file
from fedfair.aggregation.feature_moments import unit_of
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.errors import DataError, PlanError
from fedfair.ids import RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.run.initial_model import check_initial_model, initial_model_file, is_current, read_initial_model
from fedfair.run.model_description import PARTS, describe_model, difference, read_description, schema_of, source_of
from fedfair.run.saved_model import (
    ModelOrigin,
    TrainedModel,
    load_saved,
    model_identity,
    model_words,
    read_saved,
    save_model,
)
from fedfair.tables.source_modules import declared_schema
from fedfair.training.binding import plan_binding
from fedfair.training.freezing import freeze_plan
from fedfair.workspace.create import create_workspace
from tests import bc10, plans

TABLE: dict[str, Any] = {
    "label": "outcome",
    "label_values": ["alive", ["dead", "unknown"]],
    "numeric": ["age", "weight"],
    "categorical": {"ward": ["A", 2, 1.5, True], "sex": ["f"]},
    "ranges": {"age": [0, 120], "weight": [0.5, 300]},
    "missing": "mean",
    "missing_of": {"ward": "own", "weight": "zero"},
}
HEIGHT = {"height": [0, 120], "weight": [0.5, 300]}
NAMES = ("age", "weight", "ward=A", "ward=2", "ward=1.5", "ward=True", "ward=other", "ward=missing", "sex=f",
         "sex=other")  # fmt: skip
SCHEMA = FeatureSchema((10,), 2, (0, 1), NAMES, (unit_of(0, 120), unit_of(0.5, 300)), ((0, 120), (0.5, 300)))
LAYOUT = Layout((LayoutEntry("weight", (2, 10)),), np.dtype(np.float32))
SAVED = TrainedModel(
    GlobalModel(np.linspace(-1, 1, 20, dtype=np.float32), 1 / 3),
    RoundNumber(3),
    "sha256:" + "ab" * 32,
    FeatureScaling(np.array([61.5, 1 / 3]), np.array([0.1, 7e22])),
)


def table_plan(model: object = None, **changes: object) -> Plan:
    task = {
        "data": {"csv": {**TABLE, **changes}},
        "model": model or {"name": "mlp", "hidden": [4]},
        "standardize": "secure",
    }
    return plans.parsed(["a"], task=task, training={"rounds": 3})


def write(path: Path, plan: Plan | None = None) -> Path:
    save_model(path, LAYOUT, SAVED, ModelOrigin.of_plan(plan or table_plan(), SAVED.plan_digest, SCHEMA))
    return path


def altered(path: Path, **words: str) -> Path:
    """Write the file again with other words, as somebody would who means to."""
    layout, vector, found = model_file.load(write(path))
    model_file.save(path, layout, vector, found | words)
    return path


def test_a_file_alone_says_everything_that_is_needed_to_use_its_model(tmp_path: Path) -> None:
    found = read_saved(write(tmp_path / "m.safetensors"))
    said = found.origin.description
    assert (found.origin.federation, said.architecture) == ("heart", {"name": "mlp", "hidden": [4]})
    assert (said.input.shape, said.input.standardize) == ((10,), "secure")
    age, weight, ward, sex = said.columns
    assert age.model_dump() == {
        "kind": "number", "name": "age", "features": 1, "unit": SCHEMA.units[0], "range": (0.0, 120.0),
        "missing": "mean",
    }  # fmt: skip
    assert weight.model_dump()["missing"] == "zero"
    assert ward.model_dump() == {
        "kind": "category", "name": "ward", "values": ("A", 2, 1.5, True), "missing": "own",
        "coding": ("ward=A", "ward=2", "ward=1.5", "ward=True", "ward=other", "ward=missing"),
    }  # fmt: skip
    assert sex.model_dump()["coding"] == ("sex=f", "sex=other")
    assert said.label.model_dump() == {
        "column": "outcome", "classes": 2, "names": ("alive", "dead or unknown"),
        "values": (("alive",), ("dead", "unknown")), "above": None,
    }  # fmt: skip


def test_a_file_says_how_raw_records_are_read_and_names_no_file_of_a_simulation(tmp_path: Path) -> None:
    plan = table_plan(train="data/all.csv", collaborator="site", missing_values=["", "n/a"])
    source = source_of(read_saved(write(tmp_path / "m.safetensors", plan)).origin.description)
    assert source.csv == plan.task.data.csv.model_copy(update={"train": None})
    assert source_of(describe_model(plans.parsed(), bc10.dataset().schema)) == "breast-cancer"


@pytest.mark.parametrize("data", ["breast-cancer", "digits", {"acs_employment": {}}, {"eicu": {}}, {"mnist": {}}])
def test_the_schema_of_the_features_follows_from_the_description(data: object) -> None:
    plan = plans.parsed(["a"], task={"data": data})
    schema = declared_schema(plan)
    found = schema_of(describe_model(plan, schema))
    assert (found.input_shape, found.classes, found.numeric) == (
        schema.input_shape,
        schema.classes,
        schema.numeric,
    )
    assert (found.names, found.ranges) == (schema.names, schema.ranges)
    assert schema_of(describe_model(table_plan(), SCHEMA)) == SCHEMA


def test_texts_that_mean_missing_are_compared_and_the_form_of_a_file_is_not() -> None:
    ours = describe_model(table_plan(), SCHEMA)
    other = describe_model(table_plan(missing_values=["", "-"]), SCHEMA)
    assert difference(other, ours) == (
        'its records are read with missing_values ["","-"], the plan\'s with ["","?","NA"]'
    )
    assert difference(describe_model(table_plan(separator=";", comment="#"), SCHEMA), ours) == ""


def test_what_is_saved_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors")
    found = read_saved(path)
    assert (found.layout, found.saved.model.vector.tobytes()) == (LAYOUT, SAVED.model.vector.tobytes())
    words = model_words(SAVED, ModelOrigin.of_plan(table_plan(), SAVED.plan_digest, SCHEMA))
    assert model_words(found.saved, found.origin) == words
    assert load_saved(path, table_plan(), LAYOUT, SCHEMA).scaling is not None
    # A whole number, another number and true are values of one category; JSON keeps them apart.
    values = [type(value) for value in json.loads(words["columns"])[2]["values"]]
    assert values == [str, int, float, bool]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"numeric": ["height", "weight"], "ranges": HEIGHT},
            "column 1 is the number 'age', the plan's is the number 'height'",
        ),
        ({"ranges": {"age": [0, 120], "weight": [1, 300]}}, "column 'weight' has range [0.5,300.0]"),
        ({"missing_of": {"ward": "own"}}, 'column \'weight\' has missing "zero", the plan\'s has "mean"'),
        ({"categorical": {"ward": ["A", 2, 1.5, True], "sex": ["m"]}}, "column 'sex' has values"),
        ({"categorical": {"ward": ["A", 3, 1.5, True], "sex": ["f"]}}, "column 'ward' has values"),
        ({"categorical": {"ward": ["A", 2, 1.5, True]}}, "its column 4, 'sex', is not in the plan"),
        ({"label": "died"}, 'its label has column "outcome", the plan\'s has "died"'),
        ({"label_values": [["dead", "unknown"], "alive"]}, "its label has names"),
        ({"model": {"name": "mlp", "hidden": [5]}}, "its architecture is"),
    ],
)
def test_a_model_of_other_columns_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    plan = table_plan(**changes)
    ranges = plan.task.data.csv.ranges  # type: ignore[union-attr]
    names = plan.task.data.csv.numeric  # type: ignore[union-attr]
    schema = FeatureSchema(
        (10,), 2, (0, 1), (*names, *NAMES[2:]), SCHEMA.units,
        tuple(ranges.get(name, (0.0, 120.0)) for name in names),
    )  # fmt: skip
    with pytest.raises(DataError) as refused:
        load_saved(write(tmp_path / "m.safetensors"), plan, LAYOUT, schema)
    assert "holds no model of this plan: its " in refused.value.message
    assert fault in refused.value.message


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_missing_or_is_something_else_is_refused_in_words(tmp_path: Path, part: str) -> None:
    layout, vector, words = model_file.load(write(tmp_path / "m.safetensors"))
    for told in (None, "[", "{}", '"x"] ', "3", "[" * 100_000):
        kept = {key: value for key, value in words.items() if key != part}
        model_file.save(tmp_path / "other", layout, vector, kept if told is None else kept | {part: told})
        if part == "architecture" and told == "{}":
            continue  # A mapping without a name is a mapping; the plan's has one.
        with pytest.raises(DataError, match="does not say its threshold, its round, its scaling or its columns"):
            read_saved(tmp_path / "other")


def test_a_word_cannot_smuggle_another_part_in(tmp_path: Path) -> None:
    path = altered(tmp_path / "m", architecture='{"name":"linear"},"input":{"shape":[3],"standardize":"none"}')
    with pytest.raises(DataError, match="Extra data"):
        read_saved(path)


def test_words_that_were_altered_after_the_file_was_written_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors")
    for word, other in ((b'\\"alive\\"', b'\\"brave\\"'), (b"0.3333", b"0.9999"), (b"ab" * 8, b"cd" * 8)):
        raw = path.read_bytes()
        assert word in raw
        damaged = tmp_path / "damaged"
        damaged.write_bytes(raw.replace(word, other))
        with pytest.raises(DataError, match=r"its words .*threshold.* are not those that were written"):
            read_saved(damaged)


def test_what_only_the_data_can_tell_is_described_alike_by_a_simulation_and_a_deployment() -> None:
    named = FeatureSchema((3,), 2, (0, 1, 2), ("a", "b", "c"))
    plan = plans.parsed(
        ["a"], task={"data": {"csv": {"label": "y", "numeric": "all"}}, "input_shape": [3], "classes": 2}
    )
    assert describe_model(plan, named) == describe_model(plan, FeatureSchema((3,), 2, (0, 1, 2)))
    plan = plans.parsed(["a"], task={"data": "records:load", "input_shape": [3], "classes": 2})
    assert describe_model(plan, named) == describe_model(plan, FeatureSchema((3,), 2, (0, 1, 2)))
    assert describe_model(plan, named).columns[0].model_dump()["features"] == 3


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ("breast-cancer", ("malignant", "benign")),
        ("digits", ()),
        ({"mnist": {}}, ()),
        ({"images": {"label": "Smiling"}}, ("not Smiling", "Smiling")),
        ({"acs_employment": {}}, ("not employed", "employed")),
        ({"eicu": {}}, ("Alive", "Expired")),
        ({"csv": {"label": "y", "label_above": 2.5, "numeric": ["x"]}}, ("at most 2.5", "above 2.5")),
        ({"csv": {"label": "y", "numeric": ["x"]}}, ()),
    ],
)
def test_every_source_names_its_classes_and_comes_back(data: object, names: tuple[str, ...]) -> None:
    said = describe_model(plans.parsed(["a"], task={"data": data}), FeatureSchema((1,), 2, (0,), ("x",)))
    assert (said.label.names, read_description(said.words()), difference(said, said)) == (names, said, "")


def test_another_model_has_another_identity() -> None:
    vector, scaling = SAVED.model.vector, SAVED.scaling
    other = vector.copy()
    other[7] = np.nextafter(other[7], np.float32(9))
    moved = FeatureScaling(scaling.mean, np.nextafter(scaling.scale, 1.0))
    renamed = Layout((LayoutEntry("bias", (2, 10)),), np.dtype(np.float32))
    found = {
        model_identity(LAYOUT, SAVED.model, scaling),
        model_identity(LAYOUT, GlobalModel(other, SAVED.model.threshold), scaling),
        model_identity(LAYOUT, GlobalModel(vector, float(np.nextafter(SAVED.model.threshold, 1))), scaling),
        model_identity(LAYOUT, SAVED.model, moved),
        model_identity(LAYOUT, SAVED.model, None),
        model_identity(renamed, SAVED.model, scaling),
    }
    assert (len(found), {len(identity) for identity in found}) == (6, {32})
    assert model_identity(LAYOUT, GlobalModel(vector.copy(), SAVED.model.threshold), scaling) in found


# ---- the model before round 1 in the workspace: what an aggregator without torch knows a plan by


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    create_workspace(tmp_path / "heart", "heart", "breast-cancer")
    return tmp_path / "heart" / "plan" / "plan.yaml"


def test_what_is_read_is_what_the_plan_is_bound_to(plan_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, plan = freeze_plan(plan_file), load_plan(plan_file)
    assert made.digest == plan_binding(plan, plan_file.parent.parent).digest
    imported = builtins.__import__

    def without_torch(name: str, *rest: object) -> object:
        assert not name.startswith("torch")
        return imported(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_torch)
    read = read_initial_model(plan_file, plan)
    assert (read.layout, read.schema, read.plan_digest) == (made.layout, made.schema, made.digest)
    assert read.vector.tobytes() == made.vector.tobytes()


def test_the_same_plan_has_the_same_bytes(plan_file: Path) -> None:
    freeze_plan(plan_file)
    first = initial_model_file(plan_file).read_bytes()
    freeze_plan(plan_file)
    assert initial_model_file(plan_file).read_bytes() == first


def test_without_a_file_the_remedy_is_named(plan_file: Path) -> None:
    with pytest.raises(PlanError, match=r"plan\.initial\.safetensors is missing") as fault:
        read_initial_model(plan_file, load_plan(plan_file))
    assert "fedfair plan freeze" in fault.value.remedy


def test_a_change_of_what_the_model_is_made_of_voids_the_file_and_another_change_does_not(plan_file: Path) -> None:
    freeze_plan(plan_file)
    plan = load_plan(plan_file)
    longer = plan.model_copy(update={"training": plan.training.model_copy(update={"rounds": 7})})
    workspace = plan_file.parent.parent
    assert read_initial_model(plan_file, longer).plan_digest == plan_binding(longer, workspace).digest
    reseeded = plan.model_copy(update={"training": plan.training.model_copy(update={"seed": 9})})
    assert not is_current(plan_file, reseeded)
    with pytest.raises(PlanError, match="out of date"):
        read_initial_model(plan_file, reseeded)


def test_other_weights_are_refused_where_a_site_makes_its_own(plan_file: Path) -> None:
    made = freeze_plan(plan_file)
    check_initial_model(plan_file, made.vector)
    place = initial_model_file(plan_file)
    layout, vector, words = model_file.load(place)
    model_file.save(place, layout, vector + 1, words)
    with pytest.raises(PlanError, match="other initial weights than the plan's seed gives here"):
        check_initial_model(plan_file, made.vector)
    place.unlink()
    check_initial_model(plan_file, made.vector)


def test_a_newer_or_damaged_file_is_refused_in_words(plan_file: Path) -> None:
    freeze_plan(plan_file)
    place, plan = initial_model_file(plan_file), load_plan(plan_file)
    layout, vector, words = model_file.load(place)
    model_file.save(place, layout, vector, {**words, "format": "fedfair/initial-model/2"})
    with pytest.raises(PlanError, match=r"initial-model/2, and fedfair .* reads fedfair/initial-model/1"):
        read_initial_model(plan_file, plan)
    place.write_bytes(place.read_bytes()[:-4])
    with pytest.raises(DataError, match="is not a model that can be read"):
        read_initial_model(plan_file, plan)
