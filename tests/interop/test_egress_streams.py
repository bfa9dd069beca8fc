"""The record of what left and its mirror, in a federation in which disks fail and processes come back."""

import asyncio
import json
import os
from contextlib import closing
from pathlib import Path

import pytest

from collaborator.egress import EgressRecord
from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import AT_CONNECTION
from fedfair.audit.reader import MessageTally
from fedfair.audit.summary import RecordComparison, compare
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import AuditError, FedfairError
from fedfair.wire.frames import Refused
from tests.interop.federation_kit import NAMES, Federation, play, read_record
from tests.interop.test_streams import answered
from tests.plans import small_plan

MASKED = {"mode": "malicious", "most_records": 512}
NOTHING = MessageTally(0, 0)


def compared(workspace: Workspace, name: str) -> RecordComparison:
    folder = workspace.folder
    return compare(
        read_record(folder / "egress" / f"{name}.jsonl"), [read_record(folder / "received" / f"{name}.jsonl")]
    )


def test_plain_sums_are_called_plain_on_both_sides_and_every_message_is_accounted_for(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2))
    assert play(workspace, Federation.everybody).state.value == "finished"
    for name in NAMES:
        found = compared(workspace, name)
        site, mirror = (read_record(tmp_path / side / f"{name}.jsonl") for side in ("egress", "received"))
        assert (found.agreed, found.lost, found.foreign) == (site.total, NOTHING, NOTHING)
        # Both sides call every message the same, and put it into the same sum.
        assert site.groups == mirror.groups
        kinds = {"introduction", "announcement", "plain contribution", "checkpoint", "end"}
        assert {group.what for group in site.groups} == kinds
        assert site.closed
        assert mirror.closed
        assert mirror.names == ("heart", name, "aggregator")


def test_a_record_goes_on_over_two_runs_and_their_mirror(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1, protection=MASKED))
    for _ in range(2):
        play(workspace, Federation.everybody, fresh=True)
    found = compared(workspace, "clinic-a")
    assert (found.lost, found.foreign) == (NOTHING, NOTHING)
    lines = (tmp_path / "egress" / "clinic-a.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines].count("opened") == 2


def test_a_site_whose_record_is_taken_away_sends_nothing_more(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=100_000, protection=MASKED))
    record = tmp_path / "egress" / "clinic-a.jsonl"

    async def robbed(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in NAMES[1:]]
        victim = asyncio.create_task(federation.take_part(NAMES[0]))
        await federation.watching.until_round(2)
        record.rename(tmp_path / "taken.jsonl")
        (tmp_path / "taken.jsonl").unlink()
        with pytest.raises(AuditError, match="another program removed it"):
            await victim
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        federation.serving.cancel()

    with pytest.raises(asyncio.CancelledError):
        play(workspace, robbed)


def test_an_aggregator_whose_mirror_is_taken_away_stops_the_run_and_says_so(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=100_000, protection=MASKED))

    async def robbed(federation: Federation) -> None:
        sites = [asyncio.create_task(federation.take_part(name)) for name in NAMES]
        await federation.watching.until_round(2)
        (tmp_path / "received" / "clinic-b.jsonl").unlink()
        await asyncio.wait({federation.serving})
        for site in sites:
            site.cancel()
        ended = await asyncio.gather(*sites, return_exceptions=True)
        assert all(isinstance(one, FedfairError | asyncio.CancelledError) for one in ended)

    ending = play(workspace, robbed)
    assert ending.state.value == "stopped"
    assert "received/clinic-b.jsonl cannot be written: another program removed it" in ending.words


def test_what_a_stranger_to_the_protocol_says_is_in_the_mirror_and_called_out_of_place(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1))

    async def rude(federation: Federation) -> None:
        async with federation.dial("clinic-a") as (link, _):
            await link._call.write(b"\xff" * 100)
            await answered(link, Refused)
        federation.serving.cancel()

    with pytest.raises(asyncio.CancelledError):
        play(workspace, rude)
    mirror = read_record(tmp_path / "received" / "clinic-a.jsonl")
    assert [(group.what, tally) for group, tally in mirror.groups.items()] == [
        ("out of place", MessageTally(1, 100))
    ]


def test_a_second_process_of_a_site_is_refused_before_it_says_anything(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1))

    async def saying(federation: Federation) -> None:
        ready = federation.ready("clinic-a")
        with closing(EgressRecord(ready.site, ready.binding.digest)) as record:
            with pytest.raises(AuditError, match=f"in use by process {os.getpid()}: this site already runs"):
                EgressRecord(ready.site, ready.binding.digest)
            record.sending(b"one", MessageKind.VOTE, AT_CONNECTION)
        federation.serving.cancel()

    with pytest.raises(asyncio.CancelledError):
        play(workspace, saying)
    site = read_record(tmp_path / "egress" / "clinic-a.jsonl")
    assert (site.total.messages, site.closed) == (1, True)
