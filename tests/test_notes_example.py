"""The example of notes: its README's commands with real processes, and what of its model travels."""

import csv
import json
from pathlib import Path

import pytest

from by_the_readme import run
from fedfair.aggregation import model_file
from fedfair.extras import is_installed
from tests.conftest import REPOSITORY
from tests.fork_server import ALSO, ENVIRONMENT, Server, commands

EXAMPLE = REPOSITORY / "examples" / "notes"

pytestmark = pytest.mark.skipif(
    not is_installed("transformers"),
    reason="the extra text is not installed: pip install --require-hashes --no-deps -r constraints.txt",
)


@pytest.mark.slow
def test_three_hospitals_train_adapters_by_the_commands_of_the_readme(tmp_path: Path) -> None:
    # A dozen commands make the model, and each would import its library.
    server = Server({**ENVIRONMENT, ALSO: "transformers.models.bert.modeling_bert"})
    try:
        variables = {"FEDFAIR": str(REPOSITORY), "HF_HUB_OFFLINE": "1", **commands(tmp_path, server)}
        hosts = run(EXAMPLE / "README.md", tmp_path, variables)
    finally:
        server.end()
    result = json.loads((hosts["lead"] / "result.json").read_text())
    assert (result["train"]["n"], result["test"]["n"]) == (540, 180)
    assert result["test"]["accuracy"] > 0.75
    # The tail of a model that is trained for the average loses 0.90 in its worse half.
    assert result["test"]["by_group_size"]["0.5"]["worst"] < 0.75
    layout, _, _ = model_file.load(hosts["lead"] / "save" / "last.safetensors")
    assert layout.dimension == 1090
    whole, _, _ = model_file.load(hosts["north"] / "plan" / "plan.frozen.safetensors")
    assert whole.dimension + 66 == 19906
    assert {entry.name.rpartition(".")[2] for entry in layout.entries} == {
        "bias", "weight", "lora_down", "lora_up",
    }  # fmt: skip
    with (hosts["north"] / "risks.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == 241
