"""An aggregator that has one round computed in two runs, the second without the target, and subtracts.

It names runs as it likes. What sites remember of a round under the name of one run must not be forgotten under the
name of another: the same batches about the same model, for two sets of sites, are the target's own update.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from fedfair.aggregation.requests import SumRequest
from fedfair.cli.loopback import Workspace, prepare
from fedfair.ids import ParticipantId
from fedfair.rounds.cohort_selection import CohortSelection
from fedfair.run.training_run import TrainingRun
from tests.attacks.test_two_views_of_one_round import NAMES, TARGET, Spy, difference_error, lying_plan
from tests.interop.federation_kit import Federation, play


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def two_runs(workspace: Workspace, spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open round 1 for everybody; then, in another run and 1e-12 away from that model, without the target."""
    take, next_sum, lied = CohortSelection.take, TrainingRun.next_sum, set[int]()

    def leave_out(self: CohortSelection) -> tuple[ParticipantId, ...]:
        return tuple(who for who in take(self) if not spy.opened or who != TARGET)

    def another_model(self: TrainingRun) -> SumRequest | None:
        if spy.opened and id(self) not in lied:
            lied.add(id(self))
            self.model.vector[0] += 1e-12
        return next_sum(self)

    async def until_open(federation: Federation) -> None:
        wanted = len(spy.opened) + 1
        sites = [asyncio.create_task(federation.take_part(name)) for name in NAMES]
        await federation.watching.until(lambda: len(spy.opened) == wanted)
        federation.serving.cancel()
        for site in sites:
            site.cancel()
        await asyncio.gather(*sites, federation.serving, return_exceptions=True)

    with pytest.raises(asyncio.CancelledError):
        play(workspace, until_open)
    monkeypatch.setattr(CohortSelection, "take", leave_out)
    monkeypatch.setattr(TrainingRun, "next_sum", another_model)
    with pytest.raises(asyncio.CancelledError):
        play(workspace, until_open, fresh=True)


def test_one_round_in_two_runs_is_drawn_from_other_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = lying_plan(quorum=2, attempts=2, learning_rate=1e-5)
    task = plan["task"]
    assert isinstance(task, dict)
    workspace, spy = prepare(tmp_path, {**plan, "task": {**task, "standardize": "none"}}), Spy(monkeypatch)
    two_runs(workspace, spy, monkeypatch)
    error = difference_error(spy)
    # The others have 80 % of the records and batches of 16: what they added differs by far more than rounding.
    assert error > 0.1, f"the target's own update came out to a relative error of {error:.2g}"
