"""What the lead reads in the terminal of a run of real processes in which nothing went wrong."""

import re
from pathlib import Path

import pytest

from fedfair.aggregation.masking_terms import guarantee
from fedfair.cli.loopback import prepare
from fedfair.plan.loading import load_plan
from tests.fork_server import ENVIRONMENT
from tests.interop.federation_kit import NAMES
from tests.interop.processes import Started, ended
from tests.plans import small_plan

FAULT = re.compile(
    r"passed over|lost|refus|error|fault|warn|broke|disconnect|dropped|abstain|damaged|fail|traceback|"
    r"away|withdr|leaves|late",
    re.IGNORECASE,
)


@pytest.mark.slow
def test_the_lead_of_a_perfect_masked_run_reads_no_line_that_sounds_like_a_fault(
    tmp_path: Path, started: Started
) -> None:
    protection = {"mode": "malicious", "most_records": 512}
    workspace = started.workspace = prepare(tmp_path, small_plan(rounds=10, protection=protection))
    # The aggregator is an interpreter of its own, no fork: nothing is said of how Python takes its modules apart.
    started.environment = {**ENVIRONMENT, "PYTHONNODEBUGRANGES": ""}
    aggregator = started.start("-m", "aggregator", "start", "--quiet")
    started.environment = ENVIRONMENT
    sites_started = [
        started.start("-m", "collaborator", "start", "-n", name, "-c", f"{name}.yaml", "--quiet") for name in NAMES
    ]
    (status, words), *sites = [ended(process) for process in (aggregator, *sites_started)]
    assert [status, *(each for each, _ in sites)] == [0, 0, 0, 0], words
    # What is promised says what would be refused, and is no news.
    promise = f"secure aggregation: {guarantee(load_plan(workspace.plan))}"
    notes = (tmp_path / "logs" / "aggregator_notes.log").read_text(encoding="utf-8").splitlines()
    terminal = words.splitlines()
    assert promise in terminal
    assert [line for line in (*notes, *terminal) if FAULT.search(line) and line != promise] == []
    told = "\n".join(notes)
    for name in NAMES:
        assert f"{name} connected" in told
    waiting = [line for line in notes if "Waiting for" in line]
    assert waiting
    # Nobody waits for ever, and each line says until when and what then.
    assert all(re.search(r"until [0-9: -]+ UTC, then (starting|ending)", line) for line in waiting)
    assert len(waiting) == len({line.split("Z ", 1)[1] for line in waiting})
    for number in (0, 5, 10):
        assert f"round {number} of 10: threshold" in told
