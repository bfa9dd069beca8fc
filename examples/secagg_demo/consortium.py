"""Clinics and an aggregator in one process: real `Participant`s, a real `Server`, messages passed by hand.

Plays what sockets and files do in a deployed run, and keeps a copy of everything that would have gone over the
wire. A member that is unreachable for a message is one that vanished before it. Decides nothing.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.errors import AbortedError, LocalProtocolError
from fedfair.secagg.effects import (
    Contribute,
    RoundAborted,
    Send,
    SendTo,
    ServerEffect,
    SessionFailed,
    SessionReady,
    SumOpened,
)
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.params import Mode, SecaggPolicy, SessionPlan, SessionTerms, Suite, threshold
from fedfair.secagg.participant import Participant
from fedfair.secagg.server import Server
from fedfair.secagg.session import SessionSite
from fedfair.secagg.shape import SumShape
from fedfair.secagg.signing import Member, Roster
from fedfair.secagg.transcript import RoundSubject, digest, u32

PURPOSE = "training"
RING_BITS = 32
AGGREGATOR = "aggregator"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message as it would have gone over the wire; `vector` is empty but with an upload."""

    sender: str
    receiver: str
    kind: Kind
    message: bytes
    vector: bytes = b""

    @property
    def size(self) -> int:
        """Return how many bytes travelled."""
        return len(self.message) + len(self.vector)


class Consortium:
    """Clinics 1 to n with keys of their own, and an aggregator.

    Args:
        names: how the clinics are called.
        colluders: how many of them may side with the aggregator.
        shape: what is summed.
        greatest_weight: the largest weight of one clinic.
    """

    def __init__(self, names: Sequence[str], colluders: int, shape: SumShape, greatest_weight: int) -> None:
        self.signing_keys = {index: Ed25519PrivateKey.generate() for index in range(1, len(names) + 1)}
        public = (key.public_key().public_bytes_raw() for key in self.signing_keys.values())
        self.roster = Roster(map(Member, self.signing_keys, names, public))
        needed = threshold(Mode.MALICIOUS, len(names), colluders)
        self.terms = SessionTerms(Mode.MALICIOUS, Suite.X25519, colluders, needed, RING_BITS, greatest_weight)
        self.shape = shape
        plan = SessionPlan(bytes(32), self.terms)
        self.sites = {
            index: Participant(
                SessionSite(index, self.roster, key, plan, SecaggPolicy(), {PURPOSE: shape}), secrets.token_bytes
            )
            for index, key in self.signing_keys.items()
        }
        self.server = Server(self.roster, plan, {PURPOSE: shape}, secrets.token_bytes, np.dtype(np.float64))
        self.session_id = b""
        self.deliveries: list[Delivery] = []
        self._models: Mapping[int, bytes] = dict.fromkeys(self.sites, bytes(32))
        self._updates: Mapping[int, Update] = {}
        self._sums = 0

    @property
    def members(self) -> tuple[int, ...]:
        """Return the roster index of every clinic."""
        return self.roster.indices

    def set_up(self) -> None:
        """Let all clinics agree on keys."""
        self._carry(self.server.open_session(self.members), ())

    def play_round(
        self,
        model_digest: bytes,
        updates: Mapping[int, Update],
        clip: float,
        unreachable: Collection[tuple[int, Kind]] = (),
    ) -> OpenedSum:
        """Play one honest round and return its sum.

        Args:
            model_digest: SHA-256 of the model that every clinic holds.
            updates: what each clinic contributes.
            clip: C.
            unreachable: (member, kind): the member vanishes for the rest of the round before this message.

        Raises:
            AbortedError: too few clinics are left.
        """
        self.expect(dict.fromkeys(self.members, model_digest), updates)
        subject = self.subject(model_digest)
        opened = self._carry(self.server.start_round(PURPOSE, subject, (clip,), self.members), unreachable)
        if opened is None:
            raise LocalProtocolError(f"the round stopped while waiting for {self.server.state.value}")
        return opened

    def expect(self, models: Mapping[int, bytes], updates: Mapping[int, Update]) -> None:
        """Say which model each clinic holds and what it contributes when it is asked next."""
        self._models, self._updates = models, updates
        self._sums += 1

    def subject(self, model_digest: bytes) -> RoundSubject:
        """Return what the next sum is about where a clinic holds this model."""
        return RoundSubject(model_digest, digest("sum", u32(self._sums)))

    def hand_over(self, member: int, message: bytes, vector: bytes = b"") -> list[Send]:
        """Hand one message to a clinic and return what it sends; `vector` travels beside an opened sum.

        Raises:
            SecaggError: the clinic refused the message.
        """
        name = self.roster.name(member)
        self.deliveries.append(Delivery(AGGREGATOR, name, kind_of(message), message, vector))
        subject = self.subject(self._models[member])
        pending, sends = deque(self.sites[member].receive(message, subject, vector=vector)), []
        while pending:
            effect = pending.popleft()
            # What is logged would reach the disk here, before anything is sent; nobody restarts in this play.
            if isinstance(effect, Contribute):
                draws = digest("draws", u32(self._sums))
                pending.extend(self.sites[member].contribute(self._updates[member], draws))
            elif isinstance(effect, Send):
                sends.append(effect)
        for send in sends:
            vector = bytes(send.vector)
            self.deliveries.append(Delivery(name, AGGREGATOR, kind_of(send.message), send.message, vector))
        return sends

    def announced(self) -> tuple[bytes, bytes]:
        """Return the message and the vector that tell every clinic the sum that was just opened."""
        told = self.server.announcement
        if told is None:
            raise LocalProtocolError("no sum was opened")
        return told.message, bytes(told.vector)

    def _carry(
        self, effects: Iterable[ServerEffect], unreachable: Collection[tuple[int, Kind]]
    ) -> OpenedSum | None:
        pending, opened = deque(effects), None
        while pending:
            match pending.popleft():
                case SendTo(member, message) if (member, kind_of(message)) in unreachable:
                    pending.extend(self.server.gone(member))
                case SendTo(member, message):
                    for send in self.hand_over(member, message):
                        pending.extend(self.server.receive(member, send.message, send.vector))
                case SessionReady(session_id, _):
                    self.session_id = session_id
                case SumOpened():
                    opened = self.server.take_sum()
                case SessionFailed(reason) | RoundAborted(_, reason, _):
                    raise AbortedError(reason)
        return opened
