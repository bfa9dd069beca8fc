"""Faults that an operator can mend: the aggregator ends in words, the sites wait, and the run resumes."""

import json
import resource
import shutil
import signal
from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from tests.fork_server import Process
from tests.interop.federation_kit import NAMES, metrics, model_files_agree
from tests.interop.processes import Started, ended, until_line
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512}
FULL_DISK_BYTES = 100_000
"""No file of the process may grow beyond this: its journal does after some tens of rounds."""


@pytest.mark.slow
def test_sites_wait_for_an_aggregator_whose_disk_was_full_and_finish_with_it(
    tmp_path: Path, started: Started
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=200, learning_rate=0.01))
    first = started.aggregator()
    resource.prlimit(first.pid, resource.RLIMIT_FSIZE, (FULL_DISK_BYTES, FULL_DISK_BYTES))
    sites = [started.collaborator(name) for name in NAMES]
    status, words = ended(first)
    assert status != 0
    assert "the aggregator cannot write its files" in words
    assert "make room on the disk" in words
    assert "Traceback" not in words
    second = started.aggregator()
    for process in (second, *sites):
        status, words = ended(process)
        assert status == 0, words
        assert "Traceback" not in words
    rounds = [line["round"] for line in metrics(started.workspace) if line["purpose"] == "training"]
    # The last rounds before the fault may be in the metrics and not in the journal; they are repeated.
    assert rounds[-1] == len(set(rounds)) == 200
    model_files_agree(started.workspace, 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("protection", [None, MASKED], ids=["plain", "masked"])
def test_an_old_copy_of_the_journal_kills_no_site_and_is_continued_at_the_operator_s_word(
    tmp_path: Path, started: Started, protection: dict[str, object] | None
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=100_000, protection=protection))
    first = started.aggregator()
    sites = [started.collaborator(name) for name in NAMES]
    until_line(first, "round 10 of")
    stop(first)
    shutil.copytree(tmp_path / "save", tmp_path / "backup")
    second = started.aggregator()
    until_line(second, "connected")
    for _ in range(3):
        until_line(second, "train: mean")
    second.send_signal(signal.SIGKILL)
    ended(second)
    shutil.rmtree(tmp_path / "save")
    shutil.copytree(tmp_path / "backup", tmp_path / "save")
    stopped = started.aggregator()
    status, words = ended(stopped)
    assert status != 0
    assert "an older copy of save/ was restored" in words
    assert "--after-restore continue" in words
    before = json.loads((tmp_path / "result.json").read_text())["rounds"]
    third = started.aggregator("--after-restore", "continue")
    until_line(third, "rounds are accepted")
    until_line(third, "train: mean")
    until_line(third, "train: mean")
    stop(third)
    assert json.loads((tmp_path / "result.json").read_text())["rounds"] > before
    for site in sites:
        assert site.poll() is None, "the site waits for the aggregator"
        stop(site)


def stop(process: Process) -> None:
    process.send_signal(signal.SIGTERM)
    _, words = ended(process)
    assert "Traceback" not in words
