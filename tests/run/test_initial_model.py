"""The model before round 1 in the workspace: what an aggregator without torch knows a plan by."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from fedfair.aggregation import model_file
from fedfair.errors import DataError, PlanError
from fedfair.plan.loading import load_plan
from fedfair.run.initial_model import (
    check_initial_model,
    initial_model_file,
    is_current,
    read_initial_model,
)
from fedfair.training.binding import plan_binding
from fedfair.training.freezing import freeze_plan
from fedfair.workspace.create import create_workspace


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    create_workspace(tmp_path / "heart", "heart", "breast-cancer")
    return tmp_path / "heart" / "plan" / "plan.yaml"


def test_what_is_read_is_what_the_plan_is_bound_to(plan_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = freeze_plan(plan_file)
    plan = load_plan(plan_file)
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
