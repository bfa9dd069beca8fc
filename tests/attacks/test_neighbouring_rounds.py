"""An honest-looking aggregator that leaves one site out of the second of two rounds, and subtracts.

Where batches are full and the rate is small, what everybody else adds hardly changes from one round to the next.
No lie is needed: the plan lets a sum go on without a site. So the sites have to agree to that, each for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
import torch
import yaml

from aggregator.outcome import Ending
from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.running_sum import RunningSum
from fedfair.aggregation.spec import SumSpec
from fedfair.cli.loopback import Workspace, prepare
from fedfair.ids import ParticipantId
from fedfair.policy.plan_check import PolicyError
from fedfair.rounds import summing
from fedfair.rounds.cohort_selection import CohortSelection
from fedfair.rounds.run_under_way import RunUnderWay
from fedfair.rounds.sum_round import SumRound
from fedfair.statistics.table import Purpose
from tests.attacks.test_two_views_of_one_round import NAMES, TARGET, Spy, difference_error, lying_plan
from tests.interop.federation_kit import Federation, play
from tests.site_reading import read_site


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def prepared(folder: Path) -> Workspace:
    slow = {"name": "sgd", "learning_rate": 1e-9}
    plan = lying_plan(quorum=len(NAMES) - 1, batch_size="full", rounds=2, server_optimizer=slow)
    return prepare(folder, plan)


def leave_out_in_round_two(monkeypatch: pytest.MonkeyPatch) -> None:
    take, sum_round, asked = CohortSelection.take, summing._begun, list[SumRequest]()

    def noted(
        run: RunUnderWay, quorum: int, make_sum: Callable[[SumSpec], RunningSum], request: SumRequest
    ) -> SumRound:
        asked.append(request)
        return sum_round(run, quorum, make_sum, request)

    def chosen(self: CohortSelection, resting: Collection[ParticipantId] = ()) -> tuple[ParticipantId, ...]:
        everybody = take(self, resting)
        last = asked[-1]
        leaves = last.purpose is Purpose.TRAINING and last.round == 2
        return tuple(who for who in everybody if who != TARGET) if leaves else everybody

    monkeypatch.setattr(summing, "_begun", noted)
    monkeypatch.setattr(CohortSelection, "take", chosen)


def run_through(workspace: Workspace) -> Ending:
    async def everybody(federation: Federation) -> None:
        await asyncio.gather(*(federation.take_part(name) for name in NAMES), return_exceptions=True)

    return play(workspace, everybody)


def test_two_neighbouring_rounds_give_the_update_of_the_site_that_one_leaves_out_where_all_agree_to_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is what `policy.min_collaborators` below all allows; masks cannot prevent it."""
    workspace, spy = prepared(tmp_path), Spy(monkeypatch)
    leave_out_in_round_two(monkeypatch)
    run_through(workspace)
    assert len(spy.opened) == 2
    assert difference_error(spy) < 1e-5


def test_a_site_that_says_nothing_takes_part_in_no_plan_that_can_leave_a_site_out(tmp_path: Path) -> None:
    workspace = prepared(tmp_path)
    file = workspace.folder / f"{TARGET}.yaml"
    stated = yaml.safe_load(file.read_text())
    assert stated["policy"].pop("min_collaborators") == 2
    file.write_text(yaml.safe_dump(stated))
    with pytest.raises(
        PolicyError, match="two neighbouring sums that differ by one site show its update"
    ) as refused:
        read_site(TARGET, file, workspace.plan, None)
    assert [term.key for term in refused.value.broken] == ["min_collaborators"]
