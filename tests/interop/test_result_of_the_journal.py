"""The result of a run is that of its journal: no log is read for it, so it may lack any of them."""

import json
from pathlib import Path

from aggregator.outcome import Ending, EndState, write_result
from fedfair.cli.loopback import Workspace, prepare
from fedfair.rounds.exit_reasons import ExitReason
from tests.interop.federation_kit import Federation, play, prepared
from tests.plans import small_plan


def told(workspace: Workspace) -> dict[str, object]:
    """Return the result without what every start says anew: its seconds, and how it ended."""
    result = json.loads(workspace.result.read_text())
    del result["outcome"]
    assert result["timing"].pop("seconds") > 0
    assert result["timing"].pop("rounds_per_second") > 0
    return dict(result)


def test_a_result_is_the_same_when_it_is_written_again_without_any_log(tmp_path: Path) -> None:
    protection = {"mode": "malicious", "most_records": 512}
    workspace = prepare(tmp_path, small_plan(rounds=4, protection=protection))
    assert play(workspace, Federation.everybody).state.value == "finished"
    first = told(workspace)
    lines = [json.loads(line) for line in workspace.metrics.read_text().splitlines()]
    training = [line for line in lines if line["purpose"] == "training"]
    # The metrics and the journal tell of the very same sums.
    assert first["traffic"]["bytes_up"] == sum(line["bytes_in"] for line in lines)
    assert first["traffic"]["bytes_down"] == sum(line["bytes_out"] for line in lines)
    assert len(training) == 4
    for log in workspace.metrics.parent.iterdir():
        log.unlink()
    run = prepared(workspace)
    try:
        write_result(run, Ending(EndState.FINISHED, ExitReason.FINISHED, "as before"))
    finally:
        run.records.close()
    assert told(workspace) == first
