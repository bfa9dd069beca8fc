"""An aggregator that has one round computed in two runs, the second without the target, and subtracts.

It names runs as it likes. What sites remember of a round under the name of one run must not be forgotten under the
name of another: the same batches about the same model, for two sets of sites, are the target's own update. Every
run begins in the same state, which the plan gives, so the second sum is about a state that was summed before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
import torch
import yaml

from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.running_sum import RunningSum
from fedfair.aggregation.spec import SumSpec
from fedfair.cli.loopback import Workspace, prepare
from fedfair.ids import ParticipantId
from fedfair.rounds import summing
from fedfair.rounds.cohort_selection import CohortSelection
from fedfair.rounds.run_under_way import RunUnderWay
from fedfair.rounds.sum_round import SumRound
from fedfair.statistics.table import Purpose
from tests.attacks.test_two_views_of_one_round import NAMES, TARGET, Spy, difference_error, lying_plan
from tests.interop.federation_kit import Federation, play


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def two_runs(
    workspace: Workspace, spy: Spy, monkeypatch: pytest.MonkeyPatch, *, evaluated: bool = True
) -> list[str]:
    """Open round 1 for everybody; then, in another run, without the target. Return who refused the second.

    Args:
        workspace: of the federation.
        spy: what is opened.
        monkeypatch: for the lies.
        evaluated: whether the model before round 1 is evaluated for everybody in the second run too; otherwise
            nobody evaluates it, and the state before round 1 has another digest than in the first run.
    """
    take, sum_round, refusals, asked = CohortSelection.take, summing._begun, list[str](), list[Purpose]()

    def noted(
        run: RunUnderWay, quorum: int, make_sum: Callable[[SumSpec], RunningSum], request: SumRequest
    ) -> SumRound:
        asked.append(request.purpose)
        return sum_round(run, quorum, make_sum, request)

    def leave_out(self: CohortSelection, resting: Collection[ParticipantId] = ()) -> tuple[ParticipantId, ...]:
        if not spy.opened or (evaluated and asked[-1] is not Purpose.TRAINING):
            return take(self, resting)
        return tuple(who for who in take(self, resting) if who != TARGET)

    def is_refused(note: str) -> bool:
        return "training sum" in note and "request: cohort" in note

    async def until_open(federation: Federation) -> None:
        wanted, watching = len(spy.opened) + 1, federation.watching
        sites = [asyncio.create_task(federation.take_part(name)) for name in NAMES]
        await watching.until(lambda: len(spy.opened) == wanted or any(map(is_refused, watching.notes)))
        refusals.extend(filter(is_refused, watching.notes))
        federation.serving.cancel()
        for site in sites:
            site.cancel()
        await asyncio.gather(*sites, federation.serving, return_exceptions=True)

    monkeypatch.setattr(summing, "_begun", noted)
    monkeypatch.setattr(CohortSelection, "take", leave_out)
    for fresh in (False, True):
        assert refusals == []
        with pytest.raises(asyncio.CancelledError):
            play(workspace, until_open, fresh=fresh)
    return refusals


def prepared(folder: Path) -> Workspace:
    plan = lying_plan(quorum=2, attempts=2, learning_rate=1e-5)
    task = plan["task"]
    assert isinstance(task, dict)
    return prepare(folder, {**plan, "task": {**task, "standardize": "none"}})


def test_one_round_in_two_runs_is_not_summed_for_other_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, spy = prepared(tmp_path), Spy(monkeypatch)
    refusals = two_runs(workspace, spy, monkeypatch)
    assert len(spy.opened) == 1, (
        f"the target's own update came out to a relative error of {difference_error(spy):.2g}"
    )
    assert refusals


def test_one_round_in_two_runs_is_drawn_from_other_batches_where_sites_allow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, spy = prepared(tmp_path), Spy(monkeypatch)
    for name in NAMES:
        file = workspace.folder / f"{name}.yaml"
        stated = yaml.safe_load(file.read_text())
        stated["policy"] |= {"training_cohort": "any"}
        file.write_text(yaml.safe_dump(stated))
    assert two_runs(workspace, spy, monkeypatch) == []
    assert_other_batches(spy)


def test_one_round_about_one_model_in_two_states_is_not_summed_for_other_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, spy = prepared(tmp_path), Spy(monkeypatch)
    assert two_runs(workspace, spy, monkeypatch, evaluated=False)
    assert len(spy.opened) == 1


def assert_other_batches(spy: Spy) -> None:
    error = difference_error(spy)
    # The others have 80 % of the records and batches of 16: what they added differs by far more than rounding.
    assert error > 0.1, f"the target's own update came out to a relative error of {error:.2g}"
