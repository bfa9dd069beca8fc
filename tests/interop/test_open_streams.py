"""What an open stream must not outlive, and whose words are taken: over real sockets with real certificates."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import IdentityError
from fedfair.identity.authority_store import load_authority, load_register, revoke
from fedfair.ids import SumNumber
from fedfair.news.repetition import MAX_REASONS
from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.wire.frames import Abstain, CollaboratorFrame, Refused, SumStart
from tests.interop.federation_kit import Federation, metrics, play
from tests.interop.test_streams import answered
from tests.plans import small_plan


def renew_list_without(workspace: Workspace, name: str) -> None:
    folder, now = workspace.folder / "cert", datetime.now(UTC)
    serials = {issued.serial for issued in load_register(folder) if issued.name == name}
    revoke(folder, load_authority(folder, now, None), frozenset(serials), now)


def test_a_site_that_is_revoked_while_its_stream_is_open_is_sent_away_before_the_next_sum(tmp_path: Path) -> None:
    protection = {"mode": "malicious", "most_records": 512}
    plan = small_plan(rounds=2, federation={"min_collaborators": 2}, protection=protection)
    workspace = prepare(tmp_path, plan)

    async def one_is_revoked(federation: Federation) -> None:
        honest = [asyncio.create_task(federation.take_part(name)) for name in ("clinic-a", "clinic-b")]
        async with federation.dial("clinic-c") as (link, hello):
            await link.send(hello)
            asked = await answered(link, SumStart)
            renew_list_without(workspace, "clinic-c")
            await link.send(Abstain(asked.sum_number, RefusalReason.PROTOCOL))
            refused = await answered(link, Refused)
        assert "CN=clinic-c,O=heart' was revoked on" in refused.reason
        assert not refused.try_again
        await asyncio.gather(*honest)

    assert play(workspace, one_is_revoked).state.value == "finished"
    assert {line["contributors"] for line in metrics(workspace)} == {2}


def test_a_site_whose_aggregator_is_revoked_while_the_stream_is_open_answers_no_further_sum(
    tmp_path: Path,
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2, federation={"min_collaborators": 2}))

    async def the_aggregator_is_revoked(federation: Federation) -> None:
        honest = [asyncio.create_task(federation.take_part(name)) for name in ("clinic-a", "clinic-b")]
        async with federation.dial("clinic-c") as (link, hello):
            await link.send(hello)
            asked = await answered(link, SumStart)
            renew_list_without(workspace, "aggregator")
            await link.send(Abstain(asked.sum_number, RefusalReason.PROTOCOL))
            for site in honest:
                with pytest.raises(IdentityError, match="'CN=aggregator,O=heart' was revoked on"):
                    await site
        os.kill(os.getpid(), signal.SIGTERM)

    assert play(workspace, the_aggregator_is_revoked).state.value == "stopped"


async def refusal(federation: Federation, name: str, *frames: CollaboratorFrame) -> str:
    async with federation.dial(name) as (link, _):
        for frame in frames:
            await link.send(frame)
        return (await answered(link, Refused)).reason


def test_words_that_decline_in_the_name_of_a_site_need_its_pinned_key(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1))
    words = Abstain(SumNumber(0), RefusalReason.PROTOCOL, leaving=True)

    async def declining(federation: Federation) -> None:
        async with federation.dial("clinic-a") as (_, hello):
            mine = replace(hello, approval=b"")
        # A certificate of the authority, which is all that a rogue authority can make, is not enough.
        assert "begins with Abstain, expected Hello" in await refusal(federation, "clinic-a", words)
        forged = replace(mine, certificate_binding=bytes(64))
        assert "has not bound" in await refusal(federation, "clinic-a", forged, words)
        assert "has not bound" in await refusal(federation, "clinic-b", mine, words)
        other = Abstain(SumNumber(7), RefusalReason.PROTOCOL)
        assert "expected the site's reason to refuse" in await refusal(federation, "clinic-a", mine, other)
        assert not any("refuses to take part" in note for note in federation.watching.notes)
        for reason in list(RefusalReason)[: MAX_REASONS + 4]:
            async with federation.dial("clinic-a") as (link, _):
                await link.send(mine)
                await link.send(replace(words, reason=reason))
                await link.finish()
                async for _ in link.frames():
                    pass
        await asyncio.gather(*(federation.take_part(name) for name in workspace.collaborators))

    assert play(workspace, declining).state.value == "finished"
    told = [
        json.loads(line) for line in (tmp_path / "logs" / "aggregator_departures.jsonl").read_text().splitlines()
    ]
    assert [entry["collaborator"] for entry in told] == ["clinic-a"] * MAX_REASONS
    assert [entry["reason"] for entry in told] == [reason.value for reason in RefusalReason][:MAX_REASONS]
