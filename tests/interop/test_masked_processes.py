"""Masked sums in the real processes: a collaborator is killed at every step, and the sum is over the survivors."""

import json
import signal
from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from tests.fork_server import Process
from tests.interop.federation_kit import FIVE, metrics, states_agree
from tests.interop.processes import Started, ended, until_line
from tests.plans import small_plan

pytestmark = pytest.mark.slow
MASKED = {"mode": "malicious", "most_records": 512}
DYING = str(Path(__file__).with_name("dying_site.py"))
FATAL_ROUND = 3


def dying(started: Started, name: str, step: str, number: int | str = FATAL_ROUND) -> Process:
    """Start a collaborator that dies at a step of a sum."""
    assert started.workspace is not None
    place = f"localhost:{started.port}"
    words = ["start", "-n", name, "-c", f"{name}.yaml", "-a", place]
    return started.start(DYING, step, str(number), *words)


def contributors(started: Started) -> dict[int, int]:
    """Return how many took part in the sum of each training round."""
    assert started.workspace is not None
    lines = [line for line in metrics(started.workspace) if line["purpose"] == "training"]
    assert len({line["round"] for line in lines}) == len(lines), "a round was summed twice"
    return {int(str(line["round"])): int(str(line["contributors"])) for line in lines}


@pytest.mark.parametrize(
    ("steps", "counted"),
    [
        (("before-upload",), 4),
        (("after-upload", "slow"), 5),
        (("before-answer",), 5),
        (("before-upload", "before-vote"), 4),
        (("before-upload", "before-upload"), 3),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_round_in_which_sites_are_killed_finishes_over_the_survivors(
    tmp_path: Path, started: Started, steps: tuple[str, ...], counted: int
) -> None:
    federation = {"min_collaborators": 3, "reconnect_grace_seconds": 0}
    plan = small_plan(rounds=6, federation=federation, protection=MASKED, names=FIVE)
    started.workspace = prepare(tmp_path, plan)
    aggregator = started.aggregator()
    victims = [dying(started, name, step) for name, step in zip(FIVE, steps, strict=False)]
    others = [started.collaborator(name) for name in FIVE[len(steps) :]]
    killed = sum(step != "slow" for step in steps)
    for process in (aggregator, *others):
        status, words = ended(process)
        assert status == 0, words
    assert [ended(process)[0] for process in victims].count(-signal.SIGKILL) == killed
    taken_part = contributors(started)
    assert taken_part == {
        round_: 5 if round_ < FATAL_ROUND else counted if round_ == FATAL_ROUND else 5 - killed
        for round_ in range(1, 7)
    }


def test_below_the_threshold_a_round_is_lost_in_words_and_the_returned_site_gets_new_keys(
    tmp_path: Path, started: Started
) -> None:
    protection = {**MASKED, "colluders": 1, "key_agreement": "x25519-mlkem768"}
    plan = small_plan(rounds=6, federation={"reconnect_grace_seconds": 0}, protection=protection)
    started.workspace = prepare(tmp_path, plan)
    aggregator = started.aggregator()
    victim = dying(started, "clinic-a", "before-upload")
    others = [started.collaborator(name) for name in FIVE[1:3]]
    lost = until_line(aggregator, "is lost")
    assert "training sum of round 3, attempt 1, is lost: 2 of 3 contributed, 3 are needed" in lost
    assert ended(victim)[0] == -signal.SIGKILL
    back = started.collaborator("clinic-a")
    for process in (aggregator, *others, back):
        status, words = ended(process)
        assert status == 0, words
    assert contributors(started) == dict.fromkeys(range(1, 7), 3)


@pytest.mark.parametrize("step", ["before-answer", "before-opened"])
def test_a_site_killed_after_its_upload_returns_to_the_round_with_the_bytes_of_its_log(
    tmp_path: Path, started: Started, step: str
) -> None:
    plan = small_plan(rounds=6, federation={"reconnect_grace_seconds": 600}, protection=MASKED)
    started.workspace = prepare(tmp_path, plan)
    aggregator = started.aggregator()
    victim = dying(started, "clinic-a", step)
    others = [started.collaborator(name) for name in FIVE[1:3]]
    assert ended(victim)[0] == -signal.SIGKILL
    log = next((tmp_path / "state").glob("clinic-a-*.secagg"))
    assert log.stat().st_mode & 0o777 == 0o600
    back = started.collaborator("clinic-a")
    for process in (aggregator, *others, back):
        status, words = ended(process)
        assert status == 0, words
    assert contributors(started) == dict.fromkeys(range(1, 7), 3)
    states_agree(started.workspace)


def test_an_evaluation_is_repeated_without_a_killed_site_or_left_out_and_training_goes_on(
    tmp_path: Path, started: Started
) -> None:
    federation = {"min_collaborators": 3, "reconnect_grace_seconds": 0, "round_deadline_seconds": 30}
    plan = small_plan(rounds=10, federation=federation, protection=MASKED, names=FIVE)
    started.workspace = prepare(tmp_path, plan)
    aggregator = started.aggregator()
    victims = [
        dying(started, "clinic-a", "before-answer", "evaluation:5"),
        dying(started, "clinic-b", "before-upload", "evaluation:10"),
    ]
    others = [started.collaborator(name) for name in FIVE[2:]]
    for process in (aggregator, *others):
        status, words = ended(process)
        assert status == 0, words
    assert [ended(process)[0] for process in victims] == [-signal.SIGKILL] * 2
    lines = [line for line in metrics(started.workspace) if line["purpose"] == "evaluation"]
    assert [(line["round"], line["contributors"]) for line in lines] == [(0, 5), (10, 3)]
    assert contributors(started) == {number: 5 if number <= 5 else 4 for number in range(1, 11)}
    result = json.loads(started.workspace.result.read_text())
    assert (result["state"], result["left_out"]) == ("finished", [5])


def test_an_aggregator_killed_in_the_middle_opens_a_new_session_and_finishes(
    tmp_path: Path, started: Started
) -> None:
    started.workspace = prepare(tmp_path, small_plan(rounds=90, learning_rate=0.01, protection=MASKED))
    aggregator = started.aggregator()
    sites = [started.collaborator(name) for name in FIVE[:3]]
    until_line(aggregator, "round 30 of 90")
    aggregator.send_signal(signal.SIGKILL)
    ended(aggregator)
    second = started.aggregator()
    for process in (second, *sites):
        status, words = ended(process)
        assert status == 0, words
    rounds = [line["round"] for line in metrics(started.workspace) if line["purpose"] == "training"]
    assert rounds == sorted(set(rounds))
    # The clip starts at 1 and follows the changes, which are small here; a restart does not begin it again.
    clips = [line["clip"] for line in metrics(started.workspace) if line["purpose"] == "training"]
    assert clips[0] == 1.0
    assert max(clips[1:]) < 1.0
    assert json.loads(started.workspace.result.read_text())["state"] == "finished"
    states_agree(started.workspace)


def test_a_saved_model_is_evaluated_by_processes_that_train_nothing(tmp_path: Path, started: Started) -> None:
    plan = small_plan(rounds=2, protection=MASKED) | {"evaluation": {"every": 5, "bins": 16, "method": "exact"}}
    started.workspace = prepare(tmp_path, plan)
    results = {}
    for command, result in (("start", "result.json"), ("evaluate", "evaluation/result.json")):
        watched = "--status", "localhost:0", "--track", f"jsonl:{tmp_path / command}.jsonl"
        aggregator = started.aggregator(*watched, command=command)
        sites = [started.collaborator(name) for name in started.workspace.collaborators]
        for process in (aggregator, *sites):
            code, output = ended(process)
            assert code == 0, output
        results[command] = json.loads((tmp_path / result).read_text())
    trained, judged = results["start"], results["evaluate"]
    for command in results:
        tracked = [json.loads(line) for line in (tmp_path / f"{command}.jsonl").read_text().splitlines()]
        events = [line["event"] for line in tracked]
        assert events[0] == "tracking_begun"
        assert "status_served" in events
        assert (events[-1], tracked[-1]["state"]) == ("tracking_ended", "finished")
    assert judged["evaluation"] == {"method": "exact", "given_up": None}
    assert judged["train"]["confusion"] == trained["train"]["confusion"]
    for size, risk in trained["train"]["by_group_size"].items():
        assert judged["train"]["by_group_size"][size]["at_least"] == risk["at_least"]
