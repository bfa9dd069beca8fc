"""Every site ends a run of real processes with the model, the result and its own figures in its own hands."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.aggregation.model_file import load
from fedfair.cli.commands import app
from fedfair.cli.loopback import prepare
from fedfair.run.saved_model import SCALING_KEY
from tests.interop.federation_kit import NAMES, states_agree
from tests.interop.processes import Started, ended
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512}
OF_THE_AGGREGATOR = {"timing", "traffic", "left"}
"""What only the aggregator knows."""


@pytest.mark.slow
@pytest.mark.parametrize(("protection", "output"), [(None, "best"), (MASKED, "last")], ids=["plain", "masked"])
def test_every_site_has_the_model_the_result_and_its_own_figures(
    tmp_path: Path, started: Started, protection: dict[str, object] | None, output: str
) -> None:
    plan = small_plan(rounds=12, protection=protection, output=output)
    if protection is not None:
        plan["evaluation"] = {"every": 5, "bins": 64, "slices": {"bins": 2}}
    started.workspace = prepare(tmp_path, plan)
    aggregator = started.aggregator()
    sites = {name: started.collaborator(name) for name in NAMES}
    status, words = ended(aggregator)
    assert status == 0, words
    terminals = {name: ended(process) for name, process in sites.items()}
    assert {status for status, _ in terminals.values()} == {0}, terminals
    states_agree(started.workspace)
    result = json.loads(started.workspace.result.read_text())
    assert ("slices" in result) == (protection is not None)
    figures = {}
    for name in NAMES:
        (run,) = (tmp_path / "runs" / name).iterdir()
        for file in ("last.safetensors", "best.safetensors", "trained.safetensors"):
            layout, expected, said = load(tmp_path / "save" / file)
            own_layout, vector, own = load(run / "save" / file)
            assert own_layout.digest == layout.digest
            assert vector.tobytes() == expected.tobytes(), (name, file)
            # Not the threshold and the scaling alone: everything that the file says of the model.
            assert own == said
            assert SCALING_KEY in own
        found = json.loads((run / "result.json").read_text())
        assert {key for key in result if found.get(key, "absent") != result[key]} <= OF_THE_AGGREGATOR
        report = CliRunner().invoke(app, ["report", str(run / "result.json")])
        assert report.exit_code == 0, report.output
        assert "THE RUN" not in (run / "report.html").read_text()
        log = tmp_path / "logs" / f"{name}_own_figures.jsonl"
        assert log.stat().st_mode & 0o077 == 0
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert [line["round"] for line in lines if not line["returned"]] == [0, 5, 10, 12]
        # Whichever model is returned, the last line has both its figures.
        assert lines[-1]["model"] == result["model"]["digest"]
        assert lines[-1]["everybody"]["train"]["mean"] == result["train"]["mean"]
        assert {line["run_id"] for line in lines} == {run.name}
        # What all sites receive is what the result says; what is their own is not.
        assert lines[-1]["everybody"]["train"]["records"] == result["train"]["n"]
        figures[name] = lines[-1]["own"]["train"]
        for line in (line for line in lines if not line["returned"]):
            mean = line["own"]["train"]["mean"]
            told = f"round {line['round']}, train      here / everybody: records {figures[name]['records']:>7}"
            shown = [words for words in terminals[name][1].splitlines() if told in words]
            assert len(shown) == 1, terminals[name][1]
            assert f"mean loss {mean:7.4f} /" in shown[0]
    assert sum(own["records"] for own in figures.values()) == result["train"]["n"]
    assert len({own["mean"] for own in figures.values()}) == 3
