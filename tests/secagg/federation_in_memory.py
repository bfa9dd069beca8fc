"""A whole federation in one process: real participants, a real server, messages passed by hand.

`deliver` carries every message until nothing is left to carry; what is in `silent` is swallowed, which is how a
drop-out looks to whoever waits, and after what is in `leaving` the aggregator learns that a member is gone.
"""

import hashlib
import itertools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import (
    Contribute,
    Log,
    Remember,
    ReplaceLog,
    RoundAborted,
    Send,
    SendTo,
    ServerEffect,
    SessionReady,
    SiteEffect,
    SumAccepted,
    SumOpened,
)
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.params import Mode, SecaggPolicy, SessionPlan, SessionTerms, Suite, threshold
from fedfair.secagg.participant import Participant
from fedfair.secagg.recovery import RoundState
from fedfair.secagg.server import Server
from fedfair.secagg.session import SessionSite
from fedfair.secagg.shape import HeaderRun, SumShape
from fedfair.secagg.signing import Member, Roster
from fedfair.secagg.transcript import RoundSubject

_fresh = (count % 100_000 for count in itertools.count())  # no two updates are the same update
PLAN = hashlib.sha256(b"plan").digest()
MODEL = RoundSubject(hashlib.sha256(b"model").digest(), hashlib.sha256(b"sum").digest())
ANY_COHORT = frozenset({"training", "evaluation"})
"""Most plays repeat a round with others; the rule that forbids it for one sum has tests of its own."""


def signing_key(index: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"site %d" % index).digest())


def roster_of(members: int) -> Roster:
    return Roster(
        Member(index, f"clinic-{index}", signing_key(index).public_key().public_bytes_raw())
        for index in range(1, members + 1)
    )


def terms_of(
    members: int,
    colluders: int = 0,
    *,
    mode: Mode = Mode.MALICIOUS,
    suite: Suite = Suite.X25519,
    ring_bits: int = 32,
    greatest_weight: int = 1000,
    check_sums: bool = True,
) -> SessionTerms:
    needed = threshold(mode, members, colluders)
    return SessionTerms(mode, suite, colluders, needed, ring_bits, greatest_weight, check_sums)


def shape_of(body: int, header: int = 1, *, checked: bool = True) -> SumShape:
    return SumShape((HeaderRun(header, 100.0, whole=False),), (body,) if body else (), checked=checked)


def unit_update(index: int, members: int, weight: int = 1) -> Update:
    """Member i contributes the i-th unit vector, so the sum tells who was lost or counted twice.

    Its one header value lies in [0, 10), however many updates there were before it.
    """
    body = np.zeros(members, np.float32)
    body[index - 1] = 1.0
    return Update(np.array([next(_fresh) / 10_000]), body, weight)


def draws_of(update: Update) -> bytes:
    """Return draws for a made-up update: other ones for other values, as if each came from batches of its own."""
    values = update.header.tobytes() + np.ascontiguousarray(update.body).tobytes()
    return hashlib.sha256(b"%d" % update.weight + values).digest()


def arrived_of(server: Server) -> RoundState:
    """Return what has arrived in the round under way."""
    summing = server._summing
    assert summing is not None, "no round is under way"
    return summing.arrived


@dataclass
class Wire:
    """Sites, a server, and everything that went over the wire between them."""

    members: int
    terms: SessionTerms
    shapes: Mapping[str, SumShape]
    policy: SecaggPolicy = field(
        default_factory=lambda: SecaggPolicy(greatest_attempts=1_000_000, any_cohort=ANY_COHORT)
    )
    randomness: Callable[[int], bytes] = secrets.token_bytes
    model: RoundSubject = MODEL
    threads: int = 1
    dtype: type[np.floating] = np.float64

    def __post_init__(self) -> None:
        self.roster = roster_of(self.members)
        self.plan = SessionPlan(PLAN, self.terms)
        self.logs: dict[int, bytes] = dict.fromkeys(self.roster.indices, b"")
        self.remembered: dict[int, dict[bytes, bytes]] = {index: {} for index in self.roster.indices}
        self.sites = {index: self.site(index) for index in self.roster.indices}
        self.server = Server(
            self.roster, self.plan, self.shapes, self.randomness, np.dtype(self.dtype), self.threads
        )
        self.updates: dict[int, Update] = {}
        self.trace: list[tuple[int, Kind]] = []
        self.uploads: dict[int, Send] = {}
        self.silent: set[tuple[int, Kind]] = set()
        self.leaving: set[tuple[int, Kind]] = set()
        self.opened: OpenedSum | None = None
        self.accepted: dict[int, OpenedSum] = {}
        self.aborted: RoundAborted | None = None

    def site(self, index: int) -> Participant:
        mine = SessionSite(
            index,
            self.roster,
            signing_key(index),
            self.plan,
            self.policy,
            self.shapes,
            self.threads,
            np.dtype(self.dtype),
        )
        return Participant(mine, self.randomness, self.logs[index], self.remembered[index])

    def restart(self, index: int) -> None:
        """Kill a site and start it again from its log."""
        self.sites[index] = self.site(index)

    def set_up(self) -> None:
        self.deliver(self.server.open_session(self.roster.indices))
        assert self.server.members == self.roster.indices

    def round(
        self, updates: Mapping[int, Update], *, purpose: str = "training", clip: float = 1.0
    ) -> OpenedSum | None:
        """Run one round over the cohort of `updates`; None where it was aborted."""
        self.updates, self.opened, self.aborted = dict(updates), None, None
        self.accepted = {}
        clips = (clip,) * len(self.shapes[purpose].groups)
        self.deliver(self.server.start_round(purpose, self.model, clips, updates))
        while not self._is_over():
            self.deliver(self.server.deadline())
        return self.opened

    def _is_over(self) -> bool:
        return self.opened is not None or self.aborted is not None

    def deliver(self, effects: list[ServerEffect]) -> None:
        """Carry out the server's effects, the sites' effects that follow, and so on."""
        pending = list(effects)
        while pending:
            match pending.pop(0):
                case SendTo(member, message):
                    for send in self.carry_out(member, self.hand_over(member, message)):
                        pending += self.to_server(member, send)
                case SumOpened():
                    self.opened = self.server.take_sum()
                    self.tell()
                case RoundAborted() as aborted:
                    self.aborted = aborted
                case SessionReady():
                    pass

    def tell(self) -> None:
        """Tell every site of the opened sum; who has not entered the round refuses to hear of it."""
        announcement = self.server.announcement
        assert announcement is not None
        for member, site in self.sites.items():
            try:
                self.carry_out(member, site.receive(announcement.message, MODEL, vector=announcement.vector))
            except SecaggError as fault:
                if fault.check not in {Check.OUT_OF_ORDER, Check.TRANSCRIPT}:
                    raise

    def hand_over(self, member: int, message: bytes) -> list[SiteEffect]:
        return self.sites[member].receive(message, self.model)

    def to_server(self, member: int, send: Send) -> list[ServerEffect]:
        kind = kind_of(send.message)
        if (member, kind) in self.silent:
            return []
        self.trace.append((member, kind))
        if kind is Kind.UPLOAD:
            self.uploads[member] = send
        effects = self.server.receive(member, send.message, send.vector)
        return effects + (self.server.gone(member) if (member, kind) in self.leaving else [])

    def _contribute(self, member: int) -> list[SiteEffect]:
        update = self.updates[member]
        return self.sites[member].contribute(update, draws_of(update))

    def carry_out(self, member: int, effects: list[SiteEffect]) -> list[Send]:
        """Write logs, make updates, and return what is to be sent."""
        sends = []
        for effect in effects:
            match effect:
                case Log(parts):
                    self.logs[member] += b"".join(parts)
                case ReplaceLog(parts):
                    self.logs[member] = b"".join(parts)
                case Remember(rows):
                    self.remembered[member].update(rows)
                case Contribute():
                    if member in self.updates:
                        sends += self.carry_out(member, self._contribute(member))
                case SumAccepted(opened):
                    self.accepted[member] = opened
                case Send():
                    sends.append(effect)
        return sends
