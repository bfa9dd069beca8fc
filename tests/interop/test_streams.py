"""Whole federations over real sockets in one process, with honest and hostile collaborators."""

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import yaml

from collaborator.link import Link
from collaborator.preparation import make_ready
from fedfair.cli.loopback import prepare
from fedfair.errors import ConnectionRefusedByPeerError
from fedfair.ids import SumNumber
from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.wire.chunking import upload_frames
from fedfair.wire.frames import (
    Abstain,
    Accepted,
    AggregatorFrame,
    Chunk,
    CollaboratorFrame,
    Hello,
    Refused,
    SecaggMessage,
    SumStart,
    UploadStart,
)
from fedfair.wire.limits import PROTOCOL_VERSION
from tests.interop.federation_kit import Federation, metrics, model_files_agree, play
from tests.plans import small_plan
from tests.site_reading import read_site

Wanted = TypeVar("Wanted", bound=AggregatorFrame)


NEEDED = 8 * (1 + 3 * 30)
"""Bytes of the first sum, standardisation: its records, and count, sum and sum of squares of 30 columns."""


def test_three_collaborators_give_the_model_of_the_simulation(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=4))

    async def everybody(federation: Federation) -> None:
        endings = await asyncio.gather(*(federation.take_part(name) for name in workspace.collaborators))
        assert [ending.rounds for ending in endings] == [4, 4, 4]

    ending = play(workspace, everybody)
    assert ending.state.value == "finished"
    # The sums are the same numbers added in another order: 3 addends in float64, over a few rounds.
    deployed, simulated = model_files_agree(workspace, 1e-9)
    # What a simulation computes from the shapes of the sums is what a deployment counts, to the byte.
    assert isinstance(simulated["traffic"], dict)
    assert deployed["traffic"] == {**simulated["traffic"], "basis": "measured"}
    lines = metrics(workspace)
    assert [line["purpose"] for line in lines[:3]] == ["standardisation", "evaluation", "training"]
    assert {line["contributors"] for line in lines} == {3}
    assert (tmp_path / "save" / "init.safetensors").exists()
    assert (tmp_path / "save" / "best.safetensors").exists()


def test_a_collaborator_that_leaves_in_the_middle_and_returns_changes_nothing(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=5))

    async def one_returns(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in ("clinic-a", "clinic-b")]
        leaving = asyncio.create_task(federation.take_part("clinic-c"))
        await federation.watching.until_round(2)
        leaving.cancel()
        await federation.watching.until_said("clinic-c disconnected")
        await asyncio.gather(*others, federation.take_part("clinic-c"))

    play(workspace, one_returns)
    model_files_agree(workspace, 1e-9)


def test_an_upload_that_broke_off_is_asked_for_again_under_the_same_number(tmp_path: Path) -> None:
    # With a quorum below all, the real clinic-c may join a run whose standardisation another process answered.
    workspace = prepare(tmp_path, small_plan(rounds=2, federation={"min_collaborators": 2}))

    async def breaks_off(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in ("clinic-a", "clinic-b")]
        async with federation.dial("clinic-c") as (link, hello):
            await link.send(hello)
            first = await answered(link, SumStart)
            await link.send(UploadStart(first.sum_number, NEEDED, bytes(32)))
        async with federation.dial("clinic-c") as (link, hello):
            await link.send(hello)
            assert await answered(link, SumStart) == first
            for frame in upload_frames(first.sum_number, bytes(NEEDED)):
                await link.send(frame)
            assert await answered(link, Accepted) == Accepted(first.sum_number)
        await asyncio.gather(*others, federation.take_part("clinic-c"))

    assert play(workspace, breaks_off).state.value == "finished"
    assert metrics(workspace)[0]["contributors"] == 3


def test_a_late_joiner_takes_part_from_the_next_sum_on(tmp_path: Path) -> None:
    plan = small_plan(rounds=4, federation={"min_collaborators": 2})
    workspace = prepare(tmp_path, plan)

    async def third_comes_late(federation: Federation) -> None:
        late = federation.ready("clinic-c")
        assert late.site.participant == "clinic-c"
        held = federation.held(2, "clinic-c")
        first = [asyncio.create_task(federation.take_part(name, around=held)) for name in ("clinic-a", "clinic-b")]
        await federation.begin_with("clinic-a", "clinic-b")
        await federation.watching.until_round(2)
        await asyncio.gather(*first, federation.take_part("clinic-c"))

    play(workspace, third_comes_late)
    contributors = [line["contributors"] for line in metrics(workspace)]
    assert contributors[0] == 2
    assert contributors[-1] == 3


def test_a_second_process_with_the_same_name_replaces_the_first_which_is_told_so(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=3))

    async def twice(federation: Federation) -> None:
        first = asyncio.create_task(federation.take_part("clinic-a"))
        await federation.watching.until_said("clinic-a connected")
        second = asyncio.create_task(federation.take_part("clinic-a", tmp_path / "another-machine.jsonl"))
        with pytest.raises(ConnectionRefusedByPeerError, match="another process connected as clinic-a"):
            await first
        await asyncio.gather(second, federation.take_part("clinic-b"), federation.take_part("clinic-c"))

    assert play(workspace, twice).state.value == "finished"


# ------------------------------------------------------------------ hostile members


async def answered(link: Link, kind: type[Wanted]) -> Wanted:
    """Read until a frame of this kind arrives."""
    async for frame in link.frames():
        if isinstance(frame, kind):
            return frame
    raise AssertionError(f"the stream ended without {kind.__name__}")


async def junk(link: Link, asked: SumStart, hello: Hello) -> None:
    del asked, hello
    await link._call.write(b"\xff" * 1000)


def sending(*frames: CollaboratorFrame) -> Callable[[Link, SumStart, Hello], Awaitable[None]]:
    async def attack(link: Link, asked: SumStart, hello: Hello) -> None:
        del hello
        for frame in frames:
            about_now = isinstance(frame, UploadStart) and frame.sum_number == 1
            await link.send(replace(frame, sum_number=asked.sum_number) if about_now else frame)

    return attack


async def second_hello(link: Link, asked: SumStart, hello: Hello) -> None:
    del asked
    await link.send(hello)


async def not_a_number(link: Link, asked: SumStart, hello: Hello) -> None:
    del hello
    for frame in upload_frames(asked.sum_number, np.full(NEEDED // 8, np.nan).tobytes()):
        await link.send(frame)


async def other_digest(link: Link, asked: SumStart, hello: Hello) -> None:
    del hello
    payload = bytes(NEEDED)
    await link.send(UploadStart(asked.sum_number, len(payload), bytes(32)))
    await link.send(Chunk(payload))


ONE = SumNumber(1)
LABELLED = {
    "data": "breast-cancer",
    "partition": {"scheme": "label"},
    "model": {"name": "linear", "init": "zeros"},
}
FAR = SumNumber(10**12)
ATTACKS = {
    "a-short-upload": (
        sending(UploadStart(ONE, 480, bytes(32))),
        f"announced with 480 bytes, the plan makes it {NEEDED}",
    ),
    "a-giant-length": (sending(UploadStart(ONE, 1 << 36, bytes(32))), f"the plan makes it {NEEDED}"),
    "more-than-announced": (
        sending(UploadStart(ONE, NEEDED, bytes(32)), Chunk(bytes(NEEDED + 1))),
        f"{NEEDED + 1} bytes arrived",
    ),
    "another-digest": (other_digest, "has SHA-256"),
    "a-nan": (not_a_number, "NaN"),
    "an-upload-before-its-sum": (sending(UploadStart(FAR, NEEDED, bytes(32))), "this stream was asked for sum"),
    "an-abstention-from-nothing": (sending(Abstain(FAR, RefusalReason.POLICY)), "this stream was asked for sum"),
    "a-stray-chunk": (sending(Chunk(b"x")), "Chunk is out of place"),
    "an-interrupted-upload": (
        sending(UploadStart(ONE, NEEDED, bytes(32)), Abstain(ONE, RefusalReason.POLICY)),
        "interrupts",
    ),
    "a-second-hello": (second_hello, "Hello is out of place"),
    "junk": (junk, "not protobuf"),
    "a-masked-message": (sending(SecaggMessage(b"\x02\x02")), "which is plain"),
}


def test_a_member_that_breaks_the_protocol_is_refused_in_words_and_the_others_finish(tmp_path: Path) -> None:
    attackers = {f"clinic-{number}": name for number, name in enumerate(ATTACKS)}
    plan = small_plan(rounds=1, federation={"min_collaborators": 2}, names=("clinic-a", "clinic-b", *attackers))
    workspace = prepare(tmp_path, plan)

    async def attacking(federation: Federation, name: str) -> None:
        attack, words = ATTACKS[attackers[name]]
        async with federation.dial(name) as (link, hello):
            await link.send(hello)
            asked = await answered(link, SumStart)
            await attack(link, asked, hello)
            refused = await answered(link, Refused)
        assert words in refused.reason, attackers[name]
        assert not refused.try_again

    async def with_attackers(federation: Federation) -> None:
        honest = [asyncio.create_task(federation.take_part(site)) for site in ("clinic-a", "clinic-b")]
        await asyncio.gather(*(attacking(federation, name) for name in attackers))
        await asyncio.gather(*honest)

    assert play(workspace, with_attackers).state.value == "finished"
    assert {line["contributors"] for line in metrics(workspace)} == {2}


# ------------------------------------------------------------------ who is not let in


async def refusal(federation: Federation, name: str, frame: CollaboratorFrame | None, raw: bytes = b"") -> Refused:
    async with federation.dial(name) as (link, _):
        if frame is None:
            await link._call.write(raw)
        else:
            await link.send(frame)
        refused = await answered(link, Refused)
    assert not refused.try_again
    return refused


def test_whoever_introduces_itself_wrongly_is_refused_before_the_rules_hear_of_it(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=1))

    async def doors(federation: Federation) -> None:
        async with federation.dial("clinic-a") as (_, hello):
            good = hello
        other = hashlib.sha256(b"another plan").digest()
        digests = (await refusal(federation, "clinic-a", replace(good, plan_digest=other))).reason
        assert other.hex() in digests
        assert good.plan_digest.hex() in digests
        version = await refusal(federation, "clinic-a", replace(good, protocol_version=PROTOCOL_VERSION + 1))
        assert f"protocol {PROTOCOL_VERSION + 1}" in version.reason
        approval = await refusal(federation, "clinic-a", replace(good, approval=b"{}"))
        assert "approval" in approval.reason
        binding = await refusal(federation, "clinic-a", replace(good, certificate_binding=bytes(64)))
        assert "clinic-a shows a certificate" in binding.reason
        # The certificate says clinic-b, whatever the introduction borrowed from clinic-a says.
        borrowed = await refusal(federation, "clinic-b", good)
        assert "clinic-b shows a certificate" in borrowed.reason
        early = await refusal(federation, "clinic-a", UploadStart(ONE, NEEDED, bytes(32)))
        assert "expected Hello" in early.reason
        assert "not protobuf" in (await refusal(federation, "clinic-a", None, b"\xff" * 9)).reason
        assert not any(note.endswith(" connected") for note in federation.watching.notes)
        # The operator of the aggregator reads the same words, the two digests included.
        told = [note for note in federation.watching.notes if " was refused: " in note]
        assert f"clinic-a was refused: {digests}" in told
        assert f"clinic-b was refused: {borrowed.reason}" in told
        again = (await refusal(federation, "clinic-b", good)).reason
        assert [note for note in federation.watching.notes if again in note] == [f"clinic-b was refused: {again}"]
        await asyncio.gather(*(federation.take_part(name) for name in workspace.collaborators))

    assert play(workspace, doors).state.value == "finished"


def test_a_certificate_of_the_right_authority_is_not_enough_without_a_place_in_the_roster(tmp_path: Path) -> None:
    plan = small_plan(federation={"collaborators": ["clinic-a", "clinic-x"]}, rounds=1)
    workspace = prepare(tmp_path, {**plan, "task": LABELLED})
    site = read_site("clinic-x", tmp_path / "clinic-x.yaml", workspace.plan, None)
    outsider = make_ready(site)
    document = yaml.safe_load(workspace.plan.read_text())
    document["federation"]["collaborators"].remove("clinic-x")
    del document["federation"]["roster"]["clinic-x"]
    workspace.plan.write_text(yaml.safe_dump(document))

    async def outside(federation: Federation) -> None:
        federation.sites["clinic-x"] = outsider
        with pytest.raises(ConnectionRefusedByPeerError) as refused:
            await federation.take_part("clinic-x")
        assert "clinic-x" in refused.value.message
        assert "not in the roster" in refused.value.message
        assert any("a stranger was refused: " in note for note in federation.watching.notes)
        os.kill(os.getpid(), signal.SIGTERM)

    ending = play(workspace, outside)
    assert ending.state.value == "stopped"
    assert "SIGTERM" in ending.words


def test_stopping_the_aggregator_notifies_every_site_and_the_next_start_continues(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=7))
    told = []

    async def stopped(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in ("clinic-a", "clinic-b")]
        async with federation.dial("clinic-c") as (link, hello):
            # Never answers, so that the run stands still in its first sum.
            await link.send(hello)
            await answered(link, SumStart)
            os.kill(os.getpid(), signal.SIGTERM)
            told.append(await answered(link, Refused))
        for other in others:
            other.cancel()

    assert play(workspace, stopped).state.value == "stopped"
    assert told[0].try_again
    assert json.loads(workspace.result.read_text())["state"] == "stopped"

    async def stopped_later(federation: Federation) -> None:
        everybody = [asyncio.create_task(federation.take_part(name)) for name in workspace.collaborators]
        await federation.watching.until_round(3)
        os.kill(os.getpid(), signal.SIGTERM)
        await federation.serving
        for one in everybody:
            one.cancel()

    assert play(workspace, stopped_later).state.value == "stopped"
    assert json.loads(workspace.result.read_text())["rounds"] >= 3

    async def continued(federation: Federation) -> None:
        await asyncio.gather(*(federation.take_part(name) for name in workspace.collaborators))
        assert federation.watching.progress[0].round >= 3

    assert play(workspace, continued).state.value == "finished"
    model_files_agree(workspace, 1e-9)
