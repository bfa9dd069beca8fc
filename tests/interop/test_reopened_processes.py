"""An aggregator that is killed in the middle of a masked sum opens it again from what the sites still have.

With full batches nothing else helps: the update of a repeated round would be the one that was sent already.
"""

import json
import signal
from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from tests.fork_server import Process
from tests.interop.federation_kit import FIVE, metrics, model_files_agree, states_agree
from tests.interop.processes import Started, ended, until_line
from tests.plans import small_plan

pytestmark = pytest.mark.slow
MASKED = {"mode": "malicious", "most_records": 512, "clip": 4.0}
FULL: dict[str, object] = {"batch_size": "full", "learning_rate": 0.01}
DYING = str(Path(__file__).with_name("dying_aggregator.py"))
DYING_SITE = str(Path(__file__).with_name("dying_site.py"))
TOLERANCE = 1e-5
"""Between a masked run and its simulation: far above the rounding of 8 rounds, far below one missing update."""


def dying_aggregator(started: Started, step: str, place: str) -> Process:
    process = started.start(
        DYING, step, place, "start", "--listen", f"localhost:{started.port}", "--ready-file", "ready.json"
    )
    until_line(process, "listening on port")
    assert started.workspace is not None
    started.port = json.loads((started.workspace.folder / "ready.json").read_text())["port"]
    return process


def trained(started: Started) -> list[tuple[object, object]]:
    """Return the round and the contributors of every training sum."""
    assert started.workspace is not None
    lines = [line for line in metrics(started.workspace) if line["purpose"] == "training"]
    return [(line["round"], line["contributors"]) for line in lines]


@pytest.mark.parametrize("step", ["upload", "last-upload", "before-unmask_request", "unmask_shares"])
def test_a_sum_of_full_batches_is_opened_again_after_a_kill_at_any_step(
    tmp_path: Path, started: Started, step: str
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=8, protection=MASKED, **FULL))
    first = dying_aggregator(started, step, "training:4")
    sites = [started.collaborator(name) for name in FIVE[:3]]
    assert ended(first)[0] == -signal.SIGKILL
    second = started.aggregator()
    for process in (second, *sites):
        status, words = ended(process)
        assert status == 0, words
    assert trained(started) == [(number, 3) for number in range(1, 9)]
    assert (tmp_path / "logs" / "aggregator_refusals.jsonl").read_text() == ""
    model_files_agree(started.workspace, TOLERANCE)


@pytest.mark.parametrize("place", ["standardisation:0", "evaluation:0", "evaluation:5", "evaluation:8"])
def test_a_standardisation_and_an_evaluation_are_opened_again(
    tmp_path: Path, started: Started, place: str
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=8, protection=MASKED, **FULL))
    first = dying_aggregator(started, "unmask_shares", place)
    sites = [started.collaborator(name) for name in FIVE[:3]]
    assert ended(first)[0] == -signal.SIGKILL
    second = started.aggregator()
    for process in (second, *sites):
        status, words = ended(process)
        assert status == 0, words
    assert trained(started) == [(number, 3) for number in range(1, 9)]
    result = json.loads(started.workspace.result.read_text())
    assert (result["state"], result["left_out"]) == ("finished", [])
    model_files_agree(started.workspace, TOLERANCE)


@pytest.mark.parametrize(
    "step", ["before-survivors", "consistency_check", "before-unmask_request", "unmask_shares"]
)
def test_the_votes_for_the_survivors_of_a_killed_site_are_used_again(
    tmp_path: Path, started: Started, step: str
) -> None:
    """A site dies before it uploads, so the others vote; then the aggregator dies and is back."""
    federation = {"min_collaborators": 3, "reconnect_grace_seconds": 0}
    plan = small_plan(rounds=6, federation=federation, protection=MASKED, names=FIVE, **FULL)
    started.workspace = prepare(tmp_path, plan)
    first = dying_aggregator(started, step, "training:3")
    place = f"localhost:{started.port}"
    words = ("start", "-n", "clinic-a", "-c", "clinic-a.yaml", "-a", place)
    victim = started.start(DYING_SITE, "before-upload", "3", *words)
    others = [started.collaborator(name) for name in FIVE[1:]]
    assert ended(victim)[0] == -signal.SIGKILL
    assert ended(first)[0] == -signal.SIGKILL
    second = started.aggregator()
    for process in (second, *others):
        status, output = ended(process)
        assert status == 0, output
    assert trained(started)[:3] == [(1, 5), (2, 5), (3, 4)]
    assert [number for number, _ in trained(started)] == [1, 2, 3, 4, 5, 6]


def test_every_site_is_killed_in_the_answers_phase_and_the_sum_is_opened_from_the_logs(
    tmp_path: Path, started: Started
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=8, protection=MASKED, **FULL))
    first = dying_aggregator(started, "unmask_shares", "training:4")
    sites = [started.collaborator(name) for name in FIVE[:3]]
    assert ended(first)[0] == -signal.SIGKILL
    for site in sites:
        site.send_signal(signal.SIGKILL)
        ended(site)
    second = started.aggregator()
    back = [started.collaborator(name) for name in FIVE[:3]]
    for process in (second, *back):
        status, words = ended(process)
        assert status == 0, words
    assert trained(started) == [(number, 3) for number in range(1, 9)]
    model_files_agree(started.workspace, TOLERANCE)
    states_agree(started.workspace)


def test_a_run_of_full_batches_survives_five_kills_of_the_aggregator_at_any_instant(
    tmp_path: Path, started: Started
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=75, protection=MASKED, **FULL))
    sites = []
    for kill in range(5):
        aggregator = started.aggregator()
        sites = sites or [started.collaborator(name) for name in FIVE[:3]]
        until_line(aggregator, f"round {10 * (kill + 1)} of 75")
        aggregator.send_signal(signal.SIGKILL)
        ended(aggregator)
    last = started.aggregator()
    for process in (last, *sites):
        status, words = ended(process)
        assert status == 0, words
    assert [number for number, _ in trained(started)] == list(range(1, 76))
    model_files_agree(started.workspace, 10 * TOLERANCE)
    states_agree(started.workspace)
