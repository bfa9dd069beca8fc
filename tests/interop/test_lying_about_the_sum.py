"""A whole federation over sockets whose aggregator claims a sum that is wrong by one unit in one coordinate."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedfair.cli.loopback import prepare
from fedfair.ids import ParticipantId
from fedfair.rounds.events import DeadlineKind
from fedfair.rounds.secagg_session import SecaggSession
from fedfair.rounds.sum_round import OutgoingMessage
from fedfair.secagg.checks import Check, SecaggError
from tests.interop.federation_kit import Federation, play
from tests.plans import small_plan


def test_every_site_refuses_a_sum_that_is_wrong_by_one_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    workspace = prepare(tmp_path, small_plan(rounds=3, protection={"mode": "malicious"}))
    honest, faults, notes = SecaggSession.announcement_for, [], []

    def wrong(self: SecaggSession, participant: ParticipantId) -> OutgoingMessage | None:
        told = honest(self, participant)
        if told is None or not told.vector:
            return told
        return replace(told, vector=bytes([told.vector[0] ^ 1]) + told.vector[1:])

    monkeypatch.setattr(SecaggSession, "announcement_for", wrong)

    async def everybody(federation: Federation) -> None:
        parts = (federation.take_part(name) for name in workspace.collaborators)
        faults.extend(await asyncio.gather(*parts, return_exceptions=True))
        # Nobody is left who could come back.
        federation.deadlines.pass_running(DeadlineKind.JOIN)
        notes.extend(federation.watching.notes)

    assert play(workspace, everybody).state.value == "aborted"
    assert [fault.check for fault in faults if isinstance(fault, SecaggError)] == [Check.SUM] * 3
    assert sum("its secure aggregation refuses the request: sum" in note for note in notes) == 3
