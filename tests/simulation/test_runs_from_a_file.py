"""A run that begins with a saved model predicts with it, before round 1, exactly what that model predicts."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

import fedfair
from fedfair.aggregation.model_file import load
from fedfair.errors import PlanError
from fedfair.ids import RoundNumber
from fedfair.plan.loading import load_plan
from fedfair.plan.schedule import schedule_of
from fedfair.run.saved_model import TrainedModel, save_model
from fedfair.run.training_run import Evaluation, Progress
from fedfair.simulation.backend import Engine
from fedfair.simulation.simulate import SimulationOutcome, simulate
from fedfair.statistics.table import Purpose
from fedfair.training.freezing import freeze_from
from tests import plans

SCALED = {"data": "breast-cancer", "partition": {"scheme": "label"}, "standardize": "secure"}
MODELS = {"linear": {"name": "linear"}, "mlp": {"name": "mlp", "hidden": [4]}}


def values(model: str = "linear", names: tuple[str, ...] = plans.NAMES, **training: object) -> plans.Values:
    steps = {"rounds": 20, "learning_rate": 0.05, **training}
    return plans.stated(names, task={**SCALED, "model": MODELS[model]}, training=steps)


def put(folder: Path, stated: plans.Values, source: Path | None = None) -> Path:
    """Write a plan in a folder of its own, which may begin with a file."""
    plan_file = folder / "plan" / "plan.yaml"
    plan_file.parent.mkdir(parents=True)
    plan_file.write_text(yaml.safe_dump(json.loads(json.dumps(stated))))
    if source is not None:
        freeze_from(plan_file, source)
    return plan_file


def played(plan_file: Path, engine: Engine = "loop") -> tuple[SimulationOutcome, list[Evaluation], list[Purpose]]:
    seen: list[Progress] = []
    outcome = simulate(load_plan(plan_file), plan_file.parent.parent, engine=engine, on_progress=seen.append)
    evaluations = [progress.evaluation for progress in seen if progress.evaluation is not None]
    return outcome, evaluations, [progress.purpose for progress in seen]


def saved(outcome: SimulationOutcome, path: Path) -> Path:
    done = RoundNumber(outcome.result.rounds)
    trained = TrainedModel(outcome.model, done, outcome.origin.plan_digest, outcome.scaling)
    save_model(path, outcome.layout, trained, outcome.origin)
    return path


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_the_evaluation_before_round_1_is_the_old_final_one(tmp_path: Path, model: str, engine: Engine) -> None:
    old, earlier, _ = played(put(tmp_path / "old", values(model)), engine)
    file = saved(old, tmp_path / "model.safetensors")
    new, later, purposes = played(put(tmp_path / "new", values(model, rounds=1), file), engine)
    # The columns keep the scaling of the file: no sum is made of them, and the same numbers come out of it.
    assert purposes[:2] == [Purpose.EVALUATION, Purpose.TRAINING]
    assert old.scaling is not None
    assert new.scaling is not None
    assert new.scaling.mean.tobytes() == old.scaling.mean.tobytes()
    assert (later[0].round, later[0].threshold) == (0, earlier[-1].threshold)
    assert later[0].splits == earlier[-1].splits != earlier[0].splits


def test_weights_come_with_their_scaling_and_an_approved_one_saves_the_sum_of_the_columns(tmp_path: Path) -> None:
    old, earlier, _ = played(put(tmp_path / "old", values()))
    bare = tmp_path / "bare.safetensors"
    save_file(old.layout.unflatten(old.model.vector), bare)
    fewer = values(names=plans.NAMES[:2])
    _, later, purposes = played(put(tmp_path / "new", fewer, bare))
    assert purposes[0] is Purpose.STANDARDISATION
    assert later[0].splits != earlier[-1].splits
    plan = load_plan(put(tmp_path / "scaled", values(), saved(old, tmp_path / "model.safetensors")))
    assert Purpose.STANDARDISATION in schedule_of(load_plan(tmp_path / "old" / "plan" / "plan.yaml")).purposes
    assert Purpose.STANDARDISATION not in schedule_of(plan).purposes


def test_programs_and_arrays_begin_with_the_file_of_a_model(tmp_path: Path) -> None:
    old, _, _ = played(put(tmp_path / "old", values()))
    file = saved(old, tmp_path / "model.safetensors")
    deployed = put(tmp_path / "new", values(rounds=3), file)
    by_command, _, _ = played(deployed)
    plain = put(tmp_path / "plain", values(rounds=3))
    by_program = fedfair.simulate(plain, engine="loop", initial_model=file)
    assert by_program.result.plan_digest == by_command.result.plan_digest
    by_program.save(tmp_path / "program.safetensors")
    assert (load(tmp_path / "program.safetensors")[1] == by_command.model.vector).all()
    with pytest.raises(PlanError, match="initial_model is given, and the plan names initial weights itself"):
        fedfair.simulate(deployed, initial_model=file)
    draw = np.random.default_rng(0)
    features = draw.normal(size=(3, 60, 2))
    sites = {f"site-{place}": (each, (each[:, 0] > 0).astype(int)) for place, each in enumerate(features)}
    stated, measured = {"rounds": 20, "output": "last"}, {"measure": "loss"}
    two = {name: sites[name] for name in ("site-0", "site-1")}
    first = fedfair.simulate(two, training=stated, objective=measured)
    first.save(tmp_path / "two.safetensors")
    once = {"training": {**stated, "rounds": 1}, "objective": measured}
    both = fedfair.simulate(sites, initial_model=tmp_path / "two.safetensors", **once)
    again = fedfair.simulate(sites, **once)
    assert (
        both.evaluate(features[2], sites["site-2"][1]).mean < again.evaluate(features[2], sites["site-2"][1]).mean
    )
