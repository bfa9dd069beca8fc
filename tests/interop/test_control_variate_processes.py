"""Control variates in the real processes: a collaborator is killed at every step, and V stays what sites keep."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from tests.interop.counted_variates import assert_sites_add_up
from tests.interop.federation_kit import FIVE, states_agree
from tests.interop.processes import Started, ended
from tests.interop.test_masked_processes import MASKED, dying
from tests.plans import small_plan

pytestmark = pytest.mark.slow
CORRECTED: dict[str, object] = {"control_variates": True, "local_steps": 4, "precision": "fp64"}


@pytest.mark.parametrize(
    ("step", "needed"),
    [
        ("before-upload", 5),
        ("variate-kept", 5),
        ("after-upload", 5),
        ("before-answer", 5),
        ("before-opened", 5),
        # The others open the sum of round 3, in which it is, and go on without it.
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
    rounds = 8 if needed == 5 else 150
    plan = small_plan(
        rounds=rounds, federation=federation, protection=MASKED, names=FIVE, learning_rate=0.02, **CORRECTED
    )
    started.workspace = prepare(tmp_path, plan)
    aggregator = started.aggregator()
    victim = dying(started, "clinic-a", step)
    others = [started.collaborator(name) for name in FIVE[1:]]
    assert ended(victim)[0] == -signal.SIGKILL
    back = started.collaborator("clinic-a")
    for process in (aggregator, *others, back):
        status, words = ended(process)
        assert status == 0, words
    states_agree(started.workspace)
    assert assert_sites_add_up(started.workspace, "clinic-b", 1e-11) == (rounds,) * 5
