"""Real processes that log in JSON and are tracked: nothing but what their results and notes hold."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from tests.interop.federation_kit import NAMES
from tests.interop.processes import Started, ended
from tests.plans import small_plan

pytestmark = pytest.mark.slow

JSON_LOG = ("--log-format", "json")


def objects(text: str) -> list[dict[str, object]]:
    """Return every line as an object; a line that is none fails."""
    return [json.loads(line) for line in text.splitlines()]


def numbers(value: object) -> Iterator[float]:
    """Yield every number of a JSON value."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield float(value)
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from numbers(inner)


def test_a_tracked_run_logs_json_and_tracks_nothing_but_its_result_and_notes(
    tmp_path: Path, started: Started
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=10))
    away = "mlflow:http://localhost:9"
    aggregator = started.aggregator(*JSON_LOG, "--track", "jsonl:run.jsonl", "--track", away)
    sites = [started.collaborator(name, *JSON_LOG, "--track", f"jsonl:{name}.jsonl") for name in NAMES]
    ends = [ended(process) for process in (aggregator, *sites)]
    assert [status for status, _ in ends] == [0, 0, 0, 0], ends

    told = [objects(words) for _, words in ends]
    assert {line["run_id"] for line in told[0]} == {told[0][0]["run_id"]}
    assert told[0][-1]["event"] == "run_ended"
    assert "round_evaluated" in {line["event"] for line in told[0]}
    for lines in told[1:]:
        assert lines[-1]["run_id"] == told[0][0]["run_id"]
        assert {"run_joined", "own_records_evaluated", "run_ended"} <= {line["event"] for line in lines}

    # The server was away: one note says so, and nothing else happened.
    notes = (tmp_path / "logs" / "aggregator_notes.log").read_text()
    assert notes.count("--track mlflow:http://localhost:9 fails") == 1

    result = json.loads((tmp_path / "result.json").read_text())
    held = set(numbers(result))
    tracked = objects((tmp_path / "run.jsonl").read_text())
    figures = [line for line in tracked if line["event"] == "figures"]
    assert [line["round"] for line in figures] == [moment["round"] for moment in result["history"]]
    assert {number for line in tracked for number in numbers(line.get("figures", {}))} <= held
    said = [str(line["message"]) for line in tracked if "level" in line]
    assert said
    assert all(words in notes for words in said)
    for name in NAMES:
        notes = (tmp_path / "logs" / f"{name}_notes.log").read_text()
        own = objects((tmp_path / f"{name}.jsonl").read_text())
        assert all(
            line in notes for words in own if "level" in words for line in str(words["message"]).splitlines()
        )
        assert any("own/train/mean" in dict(line.get("figures", {})) for line in own)  # type: ignore[call-overload]


def test_a_refused_start_is_one_json_line(tmp_path: Path, started: Started) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=2))
    ran = started.command("aggregator", "start", "--plan", "nowhere.yaml", *JSON_LOG)
    (line,) = objects(ran.stdout)
    assert (ran.returncode, line["event"], line["status"]) == (2, "command_failed", 2)
