"""A lying aggregator with real sites at its mercy.

`Lies` runs an honest federation up to the point of the attack; a test then forges a message and hands it to a
real site with `refused`, which returns the check that fired and makes sure that the site has not moved. A new
attack is: bring the sites to a point, forge, assert the check.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Send, SendTo, ServerEffect
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.params import Mode, SecaggPolicy, Suite
from fedfair.secagg.participant import Participant
from fedfair.secagg.recovery import RoundState
from fedfair.secagg.round_messages import ConsistencyCheck, PairMasksRequest, RoundStart, Survivors, UnmaskRequest
from fedfair.secagg.transcript import RoundSubject
from tests.secagg.federation_in_memory import MODEL, Wire, arrived_of, shape_of, terms_of, unit_update


class Lies(Wire):
    """An aggregator that knows every message and sends what it likes."""

    def __init__(
        self,
        members: int = 5,
        colluders: int = 0,
        *,
        mode: Mode = Mode.MALICIOUS,
        suite: Suite = Suite.X25519,
        policy: SecaggPolicy | None = None,
    ) -> None:
        shapes = {"training": shape_of(members), "evaluation": shape_of(0, 2)}
        super().__init__(members, terms_of(members, colluders, mode=mode, suite=suite), shapes)
        if policy is not None:
            self.policy = policy
            self.sites = {index: self.site(index) for index in self.roster.indices}

    @classmethod
    def in_session(cls, members: int = 5, colluders: int = 0, **options: object) -> Lies:
        """Return an aggregator whose sites have all agreed on keys."""
        lies = cls(members, colluders, **options)  # type: ignore[arg-type]  # forwarded as they are
        lies.set_up()
        return lies

    @classmethod
    def after_uploads(
        cls, members: int = 5, colluders: int = 0, *, without: Sequence[int] = (), **options: object
    ) -> Lies:
        """Return an aggregator that holds the uploads of all but `without`."""
        lies = cls.in_session(members, colluders, **options)
        lies.collect(lies.fresh_updates(), without=without)
        return lies

    def fresh_updates(self) -> dict[int, Update]:
        """Return a new unit-vector update for each site."""
        return {index: unit_update(index, self.members) for index in self.roster.indices}

    def collect(self, updates: dict[int, Update], *, without: Sequence[int] = ()) -> None:
        """Start a round and take the uploads; nothing is opened."""
        self.updates = updates
        for effect in self.server.start_round("training", MODEL, (1.0,), updates):
            for send in self.carry_out(effect.member, self.hand_over(effect.member, effect.message)):
                self.uploads[effect.member] = send
                if effect.member not in without:
                    self.round_state.add_upload(effect.member, send.message, send.vector)

    @property
    def round_state(self) -> RoundState:
        """Return what the aggregator holds of this round."""
        return arrived_of(self.server)

    @property
    def transcript(self) -> bytes:
        """Return T_r."""
        return self.round_state.transcript

    def start(self, **changes: object) -> bytes:
        """Return the start of the next round, with lies."""
        honest = RoundStart(
            self.server.session_id, self.server.round + 1, "training", self.roster.indices, self.terms.threshold,
            MODEL, (1.0,),
        )  # fmt: skip
        return replace(honest, **changes).encode()

    def survivors(self, members: Iterable[int]) -> bytes:
        """Return the claim that exactly `members` uploaded."""
        return Survivors(self.transcript, tuple(sorted(members))).encode()

    def masks_request(self, members: Iterable[int]) -> bytes:
        """Return the claim that exactly `members` uploaded, to be handed the masks with the others."""
        return PairMasksRequest(self.transcript, tuple(sorted(members))).encode()

    def masks_of(self, member: int, survivors: Iterable[int]) -> bytes:
        """Return what a site hands over of its masks with those who are no survivors."""
        return self._said(member, self.masks_request(survivors), Kind.PAIR_MASKS)

    def vote_of(self, member: int, survivors: Iterable[int]) -> bytes:
        """Return the signature of a site's real vote, given when asked; it has handed over masks before."""
        self.masks_of(member, survivors)
        for effect in self.sites[member].receive(self.survivors(survivors), MODEL):
            if isinstance(effect, Send):
                return ConsistencyCheck.decode(effect.message).signature
        raise AssertionError("no vote was sent")

    def request(
        self, member: int, survivors: Iterable[int], votes: dict[int, bytes] | None = None, **changes: object
    ) -> bytes:
        """Return a request to open the masks of `survivors`, with the right envelopes for `member`."""
        chosen = tuple(sorted(survivors))
        envelopes = tuple(
            (sender, self.round_state._envelopes.get(sender, member)) for sender in chosen if sender != member
        )
        honest = UnmaskRequest(self.transcript, chosen, tuple(sorted((votes or {}).items())), envelopes)
        return replace(honest, **changes).encode()

    def answer(self, member: int, raw: bytes) -> bytes:
        """Return what a site answers to a request."""
        return self._said(member, raw, Kind.UNMASK_SHARES)

    def _said(self, member: int, raw: bytes, kind: Kind) -> bytes:
        sends = [effect for effect in self.sites[member].receive(raw, MODEL) if isinstance(effect, Send)]
        assert [kind_of(send.message) for send in sends] == [kind]
        return sends[0].message


def carried(
    lies: Wire, effects: Iterable[ServerEffect], alter: Callable[[int, Send], Send] = lambda _, send: send
) -> list[ServerEffect]:
    """Carry every message, each as a member alters it; return what the aggregator does beside sending."""
    pending, found = list(effects), list[ServerEffect]()
    while pending:
        effect = pending.pop(0)
        if not isinstance(effect, SendTo):
            found.append(effect)
            continue
        for honest in lies.carry_out(effect.member, lies.hand_over(effect.member, effect.message)):
            send = alter(effect.member, honest)
            pending += lies.server.receive(effect.member, send.message, send.vector)
    return found


def check_of(refusing: Callable[..., object], *arguments: object, **options: object) -> Check:
    """Return the check with which a call is refused."""
    with pytest.raises(SecaggError) as refusal:
        refusing(*arguments, **options)
    return refusal.value.check


def refused(site: Participant, raw: bytes, model: RoundSubject = MODEL) -> Check:
    """Return the check with which a site refuses a message; the site must be as it was."""
    before = _state(site)
    with pytest.raises(SecaggError) as refusal:
        site.receive(raw, model)
    assert _state(site) == before
    return refusal.value.check


def refused_by_server(lies: Wire, sender: int, send: Send) -> Check:
    """Return the check with which the aggregator refuses a message; it must be as it was."""
    held = None if lies.server._summing is None else arrived_of(lies.server)
    before = (
        lies.server.state,
        dict(lies.server._phases.received),
        None if held is None else held._sum.header.copy(),
    )
    with pytest.raises(SecaggError) as refusal:
        lies.server.receive(sender, send.message, send.vector)
    assert before[:2] == (lies.server.state, dict(lies.server._phases.received))
    if held is not None:
        np.testing.assert_array_equal(before[2], held._sum.header)
    return refusal.value.check


def _state(site: Participant) -> tuple[object, ...]:
    session = site.session
    return (
        id(site.phase),
        id(site._setup),
        id(session),
        None if session is None else (session.last_round, session.rounds, dict(session.history.pending)),
        tuple(site._sent),
    )


def noise() -> bytes:
    """Return 32 bytes that mean nothing."""
    return hashlib.sha256(secrets.token_bytes(8)).digest()
