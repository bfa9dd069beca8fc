"""A site that was away at the end of the run learns that it is over, or gives up in words."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from collaborator.commands import GIVE_UP_SECONDS
from fedfair.cli.loopback import Workspace, prepare
from fedfair.wire.receiving import ForWorker, ReceivedSum, ReceivedTotals
from tests.interop.federation_kit import NAMES, Federation, WatchedWorker, play, states_agree
from tests.interop.test_following_sites import Killed, killed_by, models_agree
from tests.plans import small_plan

TWO_OF_THREE = {"min_collaborators": 2, "reconnect_grace_seconds": 15}


def told(workspace: Workspace) -> list[str]:
    lines = (workspace.folder / "logs" / "aggregator_told.jsonl").read_text().splitlines()
    return sorted(json.loads(line)["collaborator"] for line in lines)


def test_a_site_that_was_away_at_the_end_is_told_when_it_returns_in_time(tmp_path: Path) -> None:
    sections = {**TWO_OF_THREE, "reconnect_grace_seconds": 600}
    workspace = prepare(tmp_path, small_plan(rounds=1, federation=sections))

    async def away(federation: Federation) -> None:
        async with federation.dial("clinic-c") as (link, hello):
            await link.send(hello)
            await federation.watching.until_said("clinic-c connected")
        await federation.watching.until_said("clinic-c disconnected")
        others = [asyncio.create_task(federation.take_part(name)) for name in ("clinic-a", "clinic-b")]
        await federation.begin_with("clinic-a", "clinic-b")
        await federation.watching.until_said("the run is over; listening 600 s longer to tell clinic-c")
        assert (await federation.take_part("clinic-c")).rounds == 1
        await asyncio.gather(*others)

    assert play(workspace, away).state.value == "finished"
    assert told(workspace) == ["clinic-a", "clinic-b", "clinic-c"]


def test_a_site_that_missed_the_end_is_told_by_the_next_start_which_repeats_nothing(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1, federation=TWO_OF_THREE))

    async def two(federation: Federation) -> None:
        sites = [federation.take_part(name) for name in ("clinic-a", "clinic-b")]
        await asyncio.gather(*sites, federation.begin_with("clinic-a", "clinic-b"))

    async def third(federation: Federation) -> None:
        assert (await federation.take_part("clinic-c")).rounds == 1
        assert not federation.watching.progress

    assert play(workspace, two).state.value == "finished"
    assert told(workspace) == ["clinic-a", "clinic-b"]
    model = (workspace.folder / "save" / "last.safetensors").read_bytes()
    assert play(workspace, third).state.value == "finished"
    assert told(workspace) == ["clinic-a", "clinic-b", "clinic-c"]
    assert (workspace.folder / "save" / "last.safetensors").read_bytes() == model


def test_nobody_waits_at_the_end_for_a_site_that_was_sent_away_for_good(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1, federation=TWO_OF_THREE))
    notes: list[str] = []

    async def misbehaves(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in ("clinic-a", "clinic-b")]
        async with federation.dial("clinic-c") as (link, hello):
            await link.send(hello)
            await federation.watching.until_said("clinic-c connected")
            await link.send(hello)
            await federation.watching.until_said("clinic-c is disconnected")
        await asyncio.gather(*others, federation.begin_with("clinic-a", "clinic-b"))
        notes.extend(federation.watching.notes)

    assert play(workspace, misbehaves).state.value == "finished"
    assert not [note for note in notes if "the run is over; listening" in note]


def test_a_site_without_its_aggregator_stops_by_default_after_the_time_that_the_page_states() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explain" / "rounds.md").read_text(encoding="utf-8")
    assert GIVE_UP_SECONDS == 3 * 24 * 3600
    assert "for three days" in page


MASKED = {"mode": "malicious", "most_records": 512, "colluders": 0}


class DiesAtTheEnd:
    """Says whether what a site hears is the last opened sum of a run, at which its process is killed."""

    def __init__(self, sums: int) -> None:
        self._left = sums

    def __call__(self, said: ForWorker) -> bool:
        self._left -= isinstance(said, ReceivedSum | ReceivedTotals)
        return self._left == 0


@pytest.mark.parametrize(
    ("protection", "returns"), [(None, "while the aggregator stays"), (MASKED, "to the next start")]
)
def test_a_site_that_dies_while_it_takes_the_last_opened_sum_gets_it_from_the_finished_run(
    tmp_path: Path, protection: dict[str, object] | None, returns: str
) -> None:
    stays = returns == "while the aggregator stays"
    sections = {**TWO_OF_THREE, "min_collaborators": 3, "reconnect_grace_seconds": 60 if stays else 0}
    plan = small_plan(rounds=2, federation=sections, protection=protection)
    workspace = prepare(tmp_path, plan)
    sums: list[int] = []

    async def dies(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in NAMES[:2]]
        # A standardisation, an evaluation, two rounds, an evaluation.
        mortal = partial(WatchedWorker, before=killed_by(DiesAtTheEnd(5)))
        with pytest.raises(Killed):
            await federation.take_part("clinic-c", around=mortal)
        await asyncio.gather(*others)
        sums.append(len(federation.watching.progress))
        if stays:
            await federation.watching.until_said("longer to tell clinic-c")
            await federation.take_part("clinic-c")

    async def comes_back(federation: Federation) -> None:
        await federation.take_part("clinic-c")
        assert not federation.watching.progress

    assert play(workspace, dies).state.value == "finished"
    assert sums == [5]
    if not stays:
        assert told(workspace) == list(NAMES[:2]), "what was only written to a site was taken for its word"
        assert play(workspace, comes_back).state.value == "finished"
    assert told(workspace) == list(NAMES)
    states_agree(workspace)
    models_agree(workspace)
