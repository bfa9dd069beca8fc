"""The fault of one study is its own: the one beside it ends as if it were alone, and what is broken is said."""

import asyncio
from pathlib import Path

import pytest

from aggregator.address import Listen
from aggregator.hub import runs
from aggregator.hub.server import serve_hub
from aggregator.token_bucket import PeerLimits
from fedfair.consortium.acts import ActKind
from fedfair.consortium.studies import StudyPhase
from fedfair.errors import FedfairError, UnreachableError
from tests.hub.hub_kit import Consortium, PlayedHub, play
from tests.interop.federation_kit import WatchedWorker
from tests.plans import small_plan


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    made = Consortium(tmp_path).made()
    for seed, study in enumerate(("broken", "sound")):
        made.workspace(study, small_plan(rounds=2, seed=seed))
    return made


async def approved(hub: PlayedHub, *studies: str) -> None:
    for study in studies:
        await hub.submit(study)
        await hub.approve(study)
        await hub.until(study, StudyPhase.RUNNING)


def test_a_study_whose_folder_cannot_be_written_waits_for_room_beside_one_that_finishes(
    consortium: Consortium,
) -> None:
    folder = consortium.hub.study("broken")
    folder.mkdir(parents=True)
    # A file where the folder of its models has to be: nothing of it can be written.
    (folder / "save").write_bytes(b"")

    async def scenario(hub: PlayedHub) -> None:
        await approved(hub, "broken", "sound")
        await hub.federation("sound").everybody()
        await hub.until("sound", StudyPhase.FINISHED)
        assert any(line.startswith("broken: ") and "tried again" in line for line in hub.said)
        (folder / "save").unlink()
        await hub.federation("broken").everybody()
        await hub.until("broken", StudyPhase.FINISHED)

    play(consortium, scenario)


def test_a_study_that_always_fails_ends_in_words_beside_one_that_finishes(consortium: Consortium) -> None:
    async def scenario(hub: PlayedHub) -> None:
        await hub.submit("broken")
        digest = (await hub.until("broken", StudyPhase.PROPOSED)).submitted.archive_digest
        consortium.hub.archive(digest).write_bytes(b"damaged")
        await hub.approve("broken")
        found = await hub.until("broken", StudyPhase.ABORTED)
        assert "not a sound archive" in found.words
        await hub.carried_out("sound")

    play(consortium, scenario)


def test_a_fault_that_nobody_foresaw_ends_its_study_alone(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembled = runs.assembled

    def faulty(run: object, *others: object) -> object:
        if run.plan.training.seed == 0:  # type: ignore[attr-defined]
            raise ZeroDivisionError("in one study")
        return assembled(run, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "assembled", faulty)

    async def scenario(hub: PlayedHub) -> None:
        await hub.submit("broken")
        await hub.approve("broken")
        found = await hub.until("broken", StudyPhase.ABORTED)
        assert found.words == "ZeroDivisionError: in one study"
        await hub.carried_out("sound")

    play(consortium, scenario)


def test_a_site_withdraws_in_the_middle_and_the_others_go_on(
    consortium: Consortium,
) -> None:
    consortium.workspace("open", small_plan(rounds=6, seed=3, federation={"min_collaborators": 2}))

    async def scenario(hub: PlayedHub) -> None:
        await approved(hub, "open")
        federation = hub.federation("open")
        counted = 0

        async def before(_: object) -> None:
            nonlocal counted
            counted += 1
            if counted == 8:
                await hub.act("clinic-c", ActKind.WITHDRAWN, "open", "a patient asked")

        leaving = asyncio.create_task(
            federation.take_part("clinic-c", around=lambda worker: WatchedWorker(worker, before))
        )
        others = asyncio.gather(federation.take_part("clinic-a"), federation.take_part("clinic-b"))
        with pytest.raises(FedfairError, match="takes no part in the study"):
            await leaving
        assert [each.rounds for each in await others] == [6, 6]
        found = await hub.until("open", StudyPhase.FINISHED)
        assert found.taking_part == ("clinic-a", "clinic-b")
        with pytest.raises(FedfairError, match="has withdrawn"):
            await federation.take_part("clinic-c")

    play(consortium, scenario)


def test_a_study_begins_without_who_refused_and_ends_with_too_few(
    consortium: Consortium,
) -> None:
    consortium.workspace("open", small_plan(rounds=2, seed=3, federation={"min_collaborators": 2}))

    async def scenario(hub: PlayedHub) -> None:
        await hub.submit("open")
        await hub.act("clinic-c", ActKind.REFUSED, "open", "not our question")
        await hub.approve("open", "clinic-a", "clinic-b")
        await hub.until("open", StudyPhase.RUNNING)
        federation = hub.federation("open")
        # Nobody waits for a deadline here: the two are all who take part.
        await asyncio.gather(federation.take_part("clinic-a"), federation.take_part("clinic-b"))
        await hub.until("open", StudyPhase.FINISHED)
        await approved(hub, "sound")
        await hub.act("clinic-c", ActKind.WITHDRAWN, "sound", "here too")
        found = await hub.until("sound", StudyPhase.WITHDRAWN)
        assert "here too" in found.words
        with pytest.raises(FedfairError, match="is withdrawn"):
            await hub.federation("sound").take_part("clinic-a")

    play(consortium, scenario)


def test_a_flood_of_calls_about_one_study_slows_that_study_alone(consortium: Consortium) -> None:
    async def scenario(hub: PlayedHub) -> None:
        await approved(hub, "broken", "sound")
        flooding = hub.federation("broken")

        async def one() -> str:
            try:
                async with flooding.dial("clinic-a") as (link, _):
                    await link.finish()
                    async for _ in link.frames():
                        pass
            except UnreachableError as fault:
                return fault.message
            return ""

        told = await asyncio.gather(*(one() for _ in range(40)))
        assert sum("too many sessions from clinic-a" in each for each in told) >= 20
        # The same site, with the same certificate, about the study beside it.
        await hub.federation("sound").everybody()
        await hub.until("sound", StudyPhase.FINISHED)

    play(consortium, scenario, limits=PeerLimits(burst=10, seconds_per_token=3600.0, refusal_seconds=0.0))


def test_a_site_that_was_away_at_the_end_is_told_later_and_once(consortium: Consortium) -> None:
    federation = {"min_collaborators": 2, "reconnect_grace_seconds": 0}
    consortium.workspace("late", small_plan(rounds=2, seed=3, federation=federation))

    async def ended(hub: PlayedHub) -> None:
        await approved(hub, "late")
        await hub.begun_with("late", "clinic-a", "clinic-b")
        await hub.until("late", StudyPhase.FINISHED)

    async def told(hub: PlayedHub) -> None:
        assert (await hub.federation("late").take_part("clinic-c")).rounds == 2
        with pytest.raises(FedfairError, match="is finished, and nobody is served now"):
            await hub.federation("late").take_part("clinic-a")

    play(consortium, ended)
    play(consortium, told)


def test_a_call_for_a_study_that_has_not_begun_says_so(consortium: Consortium) -> None:
    async def scenario(hub: PlayedHub) -> None:
        taking_part = asyncio.create_task(hub.federation("sound").take_part("clinic-a"))
        with pytest.raises(FedfairError, match="no study with this plan"):
            await taking_part

    play(consortium, scenario)


def test_a_hub_that_is_stopped_resumes_its_running_studies(consortium: Consortium) -> None:
    async def begun(hub: PlayedHub) -> None:
        await approved(hub, "sound", "broken")

    async def ended(hub: PlayedHub) -> None:
        await asyncio.gather(*(hub.federation(study).everybody() for study in ("sound", "broken")))
        for study in ("sound", "broken"):
            await hub.until(study, StudyPhase.FINISHED)

    play(consortium, begun)
    play(consortium, ended)


def test_one_folder_has_one_hub(consortium: Consortium) -> None:
    async def scenario(hub: PlayedHub) -> None:
        with pytest.raises(FedfairError, match="already runs here"):
            await serve_hub(consortium.hub, Listen("localhost", 0), lambda _: None, hub.said.append)

    play(consortium, scenario)
