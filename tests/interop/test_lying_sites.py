"""One lying site among honest ones, over real sockets: the run ends, the liar is sent away, nobody else is."""

import asyncio
import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from collaborator import masked_worker
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import ConnectionRefusedByPeerError
from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.client import Contributing
from fedfair.secagg.effects import Send, SiteEffect
from fedfair.secagg.history import SettledRows
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.participant import Participant
from fedfair.secagg.round_messages import UnmaskShares, Upload
from fedfair.secagg.session import SessionSite
from fedfair.secagg.setup_messages import KeyAdvertisement
from fedfair.secagg.shamir import Randomness
from fedfair.secagg.signing import sign
from fedfair.secagg.transcript import RoundSubject
from tests.interop.federation_kit import FIVE, Federation, metrics, play
from tests.plans import small_plan

LIAR = 1
EVERYBODY = range(1, 6)

Lie = Callable[[Send, SessionSite, bytes], Send]
"""From what an honest site sends, who it is and the proposal of its session to what the liar sends."""


def low_order_key(send: Send, site: SessionSite, proposal: bytes) -> Send:
    if kind_of(send.message) is not Kind.KEY_ADVERTISEMENT:
        return send
    advert = replace(KeyAdvertisement.decode(send.message), public_key=bytes(32))
    signature = sign(site.signing_key, "advert", *advert.signed_fields(proposal))
    return Send(replace(advert, signature=signature).encode())


def random_tags(send: Send, site: SessionSite, proposal: bytes) -> Send:
    del proposal
    if kind_of(send.message) is not Kind.UPLOAD:
        return send
    upload = Upload.decode(send.message)
    upload = replace(upload, tags=tuple((peer, secrets.token_bytes(16)) for peer, _ in upload.tags))
    signature = sign(site.signing_key, "upload", *upload.signed_fields())
    return Send(replace(upload, signature=signature).encode(), send.vector)


def sealed_garbage(send: Send, site: SessionSite, proposal: bytes, victims: Collection[int] = EVERYBODY) -> Send:
    del proposal
    if kind_of(send.message) is not Kind.UPLOAD:
        return send
    upload = Upload.decode(send.message)
    envelopes = tuple(
        (peer, secrets.token_bytes(len(box)) if peer in victims else box) for peer, box in upload.envelopes
    )
    upload = replace(upload, envelopes=envelopes)
    signature = sign(site.signing_key, "upload", *upload.signed_fields())
    return Send(replace(upload, signature=signature).encode(), send.vector)


def wrong_shares(send: Send, site: SessionSite, proposal: bytes) -> Send:
    del site, proposal
    if kind_of(send.message) is not Kind.UNMASK_SHARES:
        return send
    answer = UnmaskShares.decode(send.message)
    lied = tuple((member, shares[:31] + bytes([shares[31] ^ 1]) + shares[32:]) for member, shares in answer.shares)
    return Send(replace(answer, shares=lied).encode())


class LyingParticipant(Participant):
    """A site whose messages are altered before they are sent, but for the logs."""

    def __init__(
        self, site: SessionSite, randomness: Randomness, log: bytes, settled: SettledRows, lie: Lie
    ) -> None:
        super().__init__(site, randomness, log, settled)
        self._lie = lie
        self._proposal = b""

    def receive(
        self,
        raw: bytes,
        subject: RoundSubject,
        computed: bytes = b"",
        vector: bytes | bytearray | memoryview = b"",
    ) -> list[SiteEffect]:
        if kind_of(raw) is Kind.PROPOSAL:
            self._proposal = raw
        return self._lied(super().receive(raw, subject, computed, vector))

    def contribute(self, update: Update, draws: bytes) -> list[SiteEffect]:
        return self._lied(super().contribute(update, draws))

    def _lied(self, effects: list[SiteEffect]) -> list[SiteEffect]:
        return [self._lie(e, self._site, self._proposal) if isinstance(e, Send) else e for e in effects]


class TroublingParticipant(Participant):
    """In training it seals garbage for one site, and says that it cannot open what another one sealed."""

    victim = 5
    accused = 3
    _training = False

    def receive(
        self,
        raw: bytes,
        subject: RoundSubject,
        computed: bytes = b"",
        vector: bytes | bytearray | memoryview = b"",
    ) -> list[SiteEffect]:
        if kind_of(raw) is Kind.UNMASK_REQUEST and self._training:
            raise SecaggError(Check.ENVELOPE, "a lie", accused=self.accused)
        return super().receive(raw, subject, computed, vector)

    def contribute(self, update: Update, draws: bytes) -> list[SiteEffect]:
        self._training = isinstance(self._phase, Contributing) and self._phase.start.purpose == "training"
        effects = super().contribute(update, draws)
        victims = {self.victim} if self._training else set()
        return [sealed_garbage(e, self._site, b"", victims) if isinstance(e, Send) else e for e in effects]


def five(folder: Path) -> Workspace:
    protection = {"mode": "malicious", "most_records": 512, "clip": 1.0}
    plan = small_plan(rounds=2, federation={"min_collaborators": 3}, protection=protection, names=FIVE)
    # Nothing but training and the last evaluation: what a liar does to an evaluation has a test of its own.
    plan["task"] = {**plan["task"], "standardize": "none"}  # type: ignore[dict-item]
    return prepare(folder, plan)


def test_a_site_that_troubles_one_with_garbage_and_accuses_another_falsely_stops_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = five(tmp_path)

    def participant(site: SessionSite, randomness: Randomness, log: bytes, settled: SettledRows) -> Participant:
        return (TroublingParticipant if site.member == LIAR else Participant)(site, randomness, log, settled)

    monkeypatch.setattr(masked_worker, "Participant", participant)

    async def everybody(federation: Federation) -> None:
        await asyncio.gather(*(federation.take_part(name) for name in FIVE))
        assert not any("is disconnected" in note for note in federation.watching.notes)

    assert play(workspace, everybody).state.value == "finished"
    training = [line for line in metrics(workspace) if line["purpose"] == "training"]
    assert [line["contributors"] for line in training] == [5, 5]


@pytest.mark.parametrize("lie", [low_order_key, random_tags, sealed_garbage, wrong_shares])
def test_a_lying_site_is_sent_away_by_name_and_the_honest_ones_finish_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: Lie
) -> None:
    workspace = five(tmp_path)

    def participant(site: SessionSite, randomness: Randomness, log: bytes, settled: SettledRows) -> Participant:
        if site.member == LIAR:
            return LyingParticipant(site, randomness, log, settled, lie)
        return Participant(site, randomness, log, settled)

    monkeypatch.setattr(masked_worker, "Participant", participant)

    async def everybody(federation: Federation) -> None:
        liar, *honest = (asyncio.create_task(federation.take_part(name)) for name in FIVE)
        with pytest.raises(ConnectionRefusedByPeerError, match="clinic-a"):
            await liar
        await asyncio.gather(*honest)
        told = [note for note in federation.watching.notes if "is disconnected" in note]
        assert [note.split(" ", 1)[0] for note in told] == ["clinic-a"]

    assert play(workspace, everybody).state.value == "finished"
    training = [line for line in metrics(workspace) if line["purpose"] == "training"]
    assert [line["contributors"] for line in training][-1] == 4
