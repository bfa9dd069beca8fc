"""Control variates in the real processes: a collaborator is killed at every step, and V stays what sites keep."""

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from tests.fork_server import Process
from tests.interop.counted_variates import assert_sites_add_up
from tests.interop.federation_kit import FIVE, metrics, states_agree
from tests.interop.processes import Started, ended, until_line
from tests.interop.test_masked_processes import MASKED, dying
from tests.plans import small_plan

pytestmark = pytest.mark.slow
CORRECTED: dict[str, object] = {"control_variates": True, "local_steps": 4, "precision": "fp64"}
GONE_ON = 5
"""The round after which it may come back; it is killed in the third."""


@pytest.mark.parametrize(
    ("step", "needed"),
    [
        ("before-upload", 5),
        ("variate-kept", 5),
        ("after-upload", 5),
        ("before-answer", 5),
        ("before-opened", 5),
        # The others open the sum of round 3, in which it is, and continue without it.
        ("after-upload", 3),
        ("before-answer", 3),
    ],
)
def test_a_site_that_is_killed_at_any_step_and_returns_keeps_what_the_run_counts(
    tmp_path: Path, started: Started, step: str, needed: int
) -> None:
    federation = {
        "min_collaborators": needed,
        "reconnect_grace_seconds": 0 if needed == 3 else 5,
        "round_deadline_seconds": 60,
    }
    rounds = 8 if needed == 5 else 60
    plan = small_plan(
        rounds=rounds, federation=federation, protection=MASKED, names=FIVE, learning_rate=0.02, **CORRECTED
    )
    started.workspace = prepare(tmp_path, plan)
    aggregator = started.aggregator()
    victim = dying(started, "clinic-a", step)
    others = [started.collaborator(name) for name in FIVE[1:]]
    assert ended(victim)[0] == -signal.SIGKILL
    back = started.collaborator("clinic-a") if needed == 5 else returned_before_the_end(started, others)
    for process in (aggregator, *others, back):
        status, words = ended(process)
        assert status == 0, words
    states_agree(started.workspace)
    assert assert_sites_add_up(started.workspace, "clinic-b", 1e-11) == (rounds,) * 5


def returned_before_the_end(started: Started, others: Sequence[Process]) -> Process:
    """Start clinic-a again once the others have gone on without it, and hold them until it is connected."""
    assert started.workspace is not None
    while max((int(str(line["round"])) for line in metrics(started.workspace)), default=0) < GONE_ON:
        time.sleep(0.05)
    # Two are too few for a sum, so the run cannot end before, however long the start of a process takes.
    held = others[: len(FIVE) - 2]
    for process in held:
        process.send_signal(signal.SIGSTOP)
    try:
        back = started.collaborator("clinic-a")
        until_line(back, "connected; run")
    finally:
        for process in held:
            process.send_signal(signal.SIGCONT)
    return back
