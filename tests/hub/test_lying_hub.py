"""A hub that lies about the record is found by each member that follows it, by a named check."""

import shutil
from pathlib import Path

import pytest

from aggregator.hub.act_log import ActLog
from fedfair.consortium.acts import Act, ActKind, sign_act
from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.consortium.record import sign_entry
from fedfair.consortium.studies import StudyPhase
from fedfair.identity.store import load_signing_key
from fedfair.wire.hub_client import HubRefusalError
from tests.hub.hub_kit import HEART, Consortium, PlayedHub, play
from tests.plans import small_plan


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    made = Consortium(tmp_path).made()
    for seed, study in enumerate(("stroke", "other")):
        made.workspace(study, small_plan(rounds=1, seed=seed))
    return made


async def refused(consortium: Consortium, name: str) -> RecordCheck:
    with pytest.raises(ConsortiumError) as caught:
        async with consortium.line(name) as line:
            await line.follow()
    return caught.value.check


def test_a_hub_with_another_past_or_an_older_one_is_found(consortium: Consortium, tmp_path: Path) -> None:
    shutil.copytree(consortium.hub.path / "record", tmp_path / "older")

    async def first(hub: PlayedHub) -> None:
        await hub.submit("stroke")
        for name in ("anna", "clinic-a"):
            await hub.until("stroke", StudyPhase.PROPOSED, who=name)

    async def older(_: PlayedHub) -> None:
        async with consortium.line("anna") as line:
            with pytest.raises(HubRefusalError) as caught:
                await line.follow()
            assert caught.value.check == "past"

    async def another(hub: PlayedHub) -> None:
        # Who knows nothing of the first past submits and approves in the second one.
        (consortium.folder / "bert" / "record.jsonl").unlink()
        await hub.submit("other")
        await hub.act("clinic-b", ActKind.APPROVED, "other")
        assert await refused(consortium, "anna") is RecordCheck.CHAIN

    play(consortium, first)
    shutil.rmtree(consortium.hub.path / "record")
    shutil.copytree(tmp_path / "older", consortium.hub.path / "record")
    play(consortium, older)
    play(consortium, another)


def test_a_hub_that_forges_an_act_or_leaves_one_out_is_found(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ActLog.after
    key = load_signing_key(consortium.certificates, "aggregator")

    def forging(log: ActLog, number: int) -> tuple[bytes, ...]:
        told = honest(log, number)
        if told or number != log.record.number or number < 2:
            return told
        study = log.record.studies["stroke"].submitted
        act = Act(ActKind.REFUSED, HEART, "clinic-a", "2026-01-01", study="stroke", plan_digest=study.plan_digest)
        return (sign_entry(number + 1, log.record.head[1], sign_act(act, key), HEART, key),)

    def leaving_out(log: ActLog, number: int) -> tuple[bytes, ...]:
        told = honest(log, number)
        return told[:1] + told[2:] if not number else told

    def silent(log: ActLog, number: int) -> tuple[bytes, ...]:
        return honest(log, number)[: max(0, 1 - number)]

    async def scenario(hub: PlayedHub) -> None:
        await hub.submit("stroke")
        monkeypatch.setattr(ActLog, "after", forging)
        assert await refused(consortium, "clinic-b") is RecordCheck.SIGNATURE
        monkeypatch.setattr(ActLog, "after", honest)
        await hub.act("clinic-a", ActKind.APPROVED, "stroke")
        monkeypatch.setattr(ActLog, "after", leaving_out)
        assert await refused(consortium, "clinic-c") is RecordCheck.NUMBER
        # An act that the hub acknowledges has to be shown to its author.
        monkeypatch.setattr(ActLog, "after", silent)
        with pytest.raises(ConsortiumError) as caught:
            await hub.submit("other", by="carl")
        assert caught.value.check is RecordCheck.LEFT_OUT

    play(consortium, scenario)
