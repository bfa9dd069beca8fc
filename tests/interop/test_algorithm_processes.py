"""Local BPF in the real processes: a killed collaborator continues with the threshold that the run counts."""

import signal
from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from tests.interop.federation_kit import FIVE, states_agree
from tests.interop.processes import Started, ended
from tests.interop.test_algorithm_streams import ALGORITHMS, assert_threshold_is_mean_of_own
from tests.interop.test_masked_processes import MASKED, dying
from tests.plans import small_plan

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("step", ["variate-kept", "after-upload", "before-opened"])
def test_a_site_that_is_killed_and_returns_keeps_the_threshold_that_the_run_counts(
    tmp_path: Path, started: Started, step: str
) -> None:
    federation = {"min_collaborators": 5, "reconnect_grace_seconds": 600}
    plan = small_plan(rounds=8, federation=federation, protection=MASKED, names=FIVE, **ALGORITHMS["localbpf"])
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
    assert assert_threshold_is_mean_of_own(started.workspace, "clinic-b") == (8,) * 5
