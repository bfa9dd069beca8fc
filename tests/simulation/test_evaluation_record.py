import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedfair.aggregation import model_file
from fedfair.aggregation.cvar_bounds import summarise
from fedfair.aggregation.evaluation_file import parse_evaluation
from fedfair.aggregation.requests import vector_sha256
from fedfair.cli.commands import app
from fedfair.plan.schema import Plan
from fedfair.results.document import to_json
from fedfair.simulation.simulate import simulate
from tests import plans


def make_plan(**training: object) -> Plan:
    return plans.parsed(
        ["a", "b"],
        task={"standardize": "secure", "partition": {"scheme": "label"}},
        training={"rounds": 3, "batch_size": "full", "precision": "fp64", **training},
        evaluation={"every": 1, "group_sizes": [0.5], "bins": 16},
    )


def test_a_model_is_named_by_its_little_endian_values_in_order() -> None:
    expected = hashlib.sha256(struct.pack("<3d", 1.0, -2.0, 0.5)).digest()
    assert vector_sha256(np.array([1.0, -2.0, 0.5])) == expected
    assert vector_sha256(np.array([1.0, -2.0, 0.5], ">f8")) == expected
    assert vector_sha256(np.array([1.0, -2.0, 0.5], np.float32)) != expected


@pytest.mark.parametrize(
    "training",
    [
        {"output": "last"},
        {"output": "average"},
        {"output": "tail"},
        # A step far too long: the model before it stays the best, and is not evaluated twice.
        {"output": "best", "learning_rate": 50.0},
        # The mean of one model, the one that was broadcast last and was evaluated when it came to be.
        {"output": "tail", "rounds": 1},
    ],
)
def test_the_kept_sums_are_those_of_the_output_model(training: dict[str, object], tmp_path: Path) -> None:
    outcome = simulate(make_plan(**training), tmp_path)
    record = outcome.evaluation
    assert record.model_digest == "sha256:" + vector_sha256(outcome.model.vector).hex()
    assert record.plan_digest == outcome.result.plan_digest
    assert (record.participants, record.masked) == (2, False)
    proven = summarise(record.block("train"), [0.5], record.spec)
    shown = to_json(outcome.result)["train"]
    bound = proven.by_group_size[0.5].bound
    assert bound.lower <= shown["by_group_size"]["0.5"]["worst"] <= bound.upper
    assert (proven.n, proven.accuracy) == (shown["n"], shown["accuracy"])
    assert proven.mean_bound.lower <= shown["mean"] <= proven.mean_bound.upper


def test_simulate_saves_the_model_and_the_sums_that_a_certificate_needs(tmp_path: Path) -> None:
    plan_file = tmp_path / "plan" / "plan.yaml"
    plan_file.parent.mkdir()
    plan_file.write_text(json.dumps(make_plan().model_dump(mode="json")))
    folder = tmp_path / "save"
    done = CliRunner().invoke(app, ["simulate", "-p", str(plan_file), "--save", str(folder), "--quiet"])
    assert done.exit_code == 0, done.output
    record = parse_evaluation((folder / "evaluation.json").read_bytes(), "evaluation.json")
    _, vector, metadata = model_file.load(folder / "last.safetensors")
    assert record.model_digest == "sha256:" + vector_sha256(vector).hex()
    assert record.classes == 2
    assert float(metadata["threshold"]) == record.threshold
    assert (metadata["round"], record.round) == ("3", 3)
