"""What a site is told before a start reads anything: another process, and a state that is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from collaborator.commands import other_process
from collaborator.preflight import forgotten_runs
from collaborator.write_ahead import WriteAheadLog
from tests import plans
from tests.prediction.saved_runs import saved_run


def test_another_process_of_the_site_is_named_at_once_and_never_after_its_end(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert other_process(state, "clinic-a") == ""
    first = WriteAheadLog(state / "clinic-a-0123.secagg")
    assert "already runs as clinic-a and holds" in other_process(state, "clinic-a")
    assert other_process(state, "clinic-b") == ""
    first.close()
    assert other_process(state, "clinic-a") == ""


@pytest.mark.parametrize("removed", [True, False])
def test_a_state_that_was_removed_between_runs_is_told(tmp_path: Path, *, removed: bool) -> None:
    run = saved_run(tmp_path, plans.stated(task={"partition": {"scheme": "random"}}))
    save = tmp_path / "runs" / "clinic-a" / "one" / "save"
    save.mkdir(parents=True)
    (save / "last.safetensors").write_bytes(run.model.read_bytes())
    (tmp_path / "state").mkdir()
    if not removed:
        (tmp_path / "state" / "clinic-a-0123.run").write_bytes(b"")
    digest = run.outcome.origin.plan_digest
    runs = tmp_path / "runs" / "clinic-a"
    said = forgotten_runs(tmp_path / "state", "clinic-a-0123", runs, digest)
    assert ("knows nothing of 1 earlier runs of this plan" in said) is removed
    assert forgotten_runs(tmp_path / "state", "clinic-a-0123", runs, "sha256:" + "0" * 64) == ""
