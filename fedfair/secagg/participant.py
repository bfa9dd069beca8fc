"""Drives a site's side of the protocol: messages in, effects out.

Puts the phases of `session` and `client` in a row, writes the log before anything is sent, resends byte for byte
when the same request comes again, and takes up the one round of a log after a restart. Decides nothing about
cryptography. Use: call `receive` with every message of the aggregator and carry out the effects in order; after
`Contribute`, call `contribute` or `abstain`.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError
from fedfair.secagg.acceptance import Acceptance, AwaitedSum
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.client import (
    ConsistencyChecked,
    Contributing,
    MasksWrapped,
    RoundPhase,
    SharesRevealed,
    Uploaded,
)
from fedfair.secagg.effects import (
    Contribute,
    Log,
    Remember,
    ReplaceLog,
    Send,
    SiteEffect,
    StateVouched,
)
from fedfair.secagg.graph_terms import MAX_DRAWN_GRAPHS
from fedfair.secagg.history import LOGGED_KEY, MASKS_KEY, SettledRows
from fedfair.secagg.keys import ENVELOPE_KEY_BYTES, Secret
from fedfair.secagg.log import (
    Record,
    frame,
    history_record,
    reply_fields,
    upload_fields,
)
from fedfair.secagg.masking import Update, abstention
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.restoring import note_sent, restored
from fedfair.secagg.round_start import enter_round
from fedfair.secagg.sealing import seal_masks
from fedfair.secagg.session import Advertised, Agreed, Drawing, Joining, Session, SessionSite
from fedfair.secagg.shamir import Randomness
from fedfair.secagg.transcript import NO_STATE, RoundSubject


class Participant:
    """One site's side of the protocol.

    Args:
        site: what the site knows before anybody speaks.
        randomness: source of every key and coefficient: `secrets.token_bytes`.
        log: the write-ahead log as it was found; empty on a first start.
        settled: the table that `Remember` writes to; None for an empty one.

    Raises:
        LocalProtocolError: the log is damaged, lost or put back, or the table is.
    """

    def __init__(
        self, site: SessionSite, randomness: Randomness, log: bytes = b"", settled: SettledRows | None = None
    ) -> None:
        self._site = site
        self._randomness = randomness
        self._setup: Joining | Advertised | Drawing | Agreed = Joining(site)
        self._session: Session | None = None
        kept = restored(site, log, {} if settled is None else settled)
        self._history = kept.history
        self._phase: RoundPhase | None = kept.phase
        self._start = kept.start  # digest of the round start under way
        self._acceptance = Acceptance(kept.awaited)
        self._sent = kept.sent

    @property
    def session(self) -> Session | None:
        """Return the session, or None before the first and after a restart."""
        return self._session

    @property
    def phase(self) -> RoundPhase | None:
        """Return the phase of the round under way, if any."""
        return self._phase

    def receive(
        self,
        raw: bytes,
        subject: RoundSubject,
        computed: bytes = b"",
        vector: bytes | bytearray | memoryview = b"",
    ) -> list[SiteEffect]:
        """Take one message of the aggregator.

        Args:
            raw: the message.
            subject: what a round that begins now is about, computed by this site from what it holds; with a
                proposal, its state is the one that this site holds (NO_STATE for none).
            computed: 32 bytes, equal for sums of which this site opens no two for different sites; empty for the
                request digest of the subject.
            vector: what travelled beside an opened sum.

        Returns:
            what to do now, in order.

        Raises:
            SecaggError: the message was refused; nothing changed. `check` says why.
        """
        kind, request = kind_of(raw), hashlib.sha256(raw).digest()
        if request in self._sent:
            return [self._sent[request]]
        match kind:
            case Kind.PROPOSAL | Kind.MEMBER_LIST | Kind.KEY_ADVERTISEMENTS | Kind.CONFIRMS:
                return self._set_up(kind, raw, request, subject.state_digest)
            case Kind.ROUND_START:
                return self._enter(raw, request, subject, computed or subject.request_digest)
            case Kind.PAIR_MASKS_REQUEST | Kind.SURVIVORS | Kind.UNMASK_REQUEST:
                asked = {
                    Kind.PAIR_MASKS_REQUEST: self._wrap,
                    Kind.SURVIVORS: self._vote,
                    Kind.UNMASK_REQUEST: self._answer,
                }
                return asked[kind](raw, request)
            case Kind.OPENED:
                return [self._acceptance.accept(raw, request, vector, self._phase)]
            case _:
                raise SecaggError(Check.OUT_OF_ORDER, f"a message of type {kind.name} is never for a site")

    def contribute(
        self, update: Update, draws: bytes, encoded: NDArray[np.uint32] | None = None
    ) -> list[SiteEffect]:
        """Return the upload of this site's update for the round under way.

        Args:
            update: what it adds.
            draws: 32 bytes that stand for what was drawn to make it, and for no value (see `history.fingerprint`).
            encoded: where to put the body as it is added, before it is masked; as `masking.masked_vector`.

        Raises:
            LocalProtocolError: no update is due, it does not have the shape of the sum, or the draws do not have
                32 bytes.
            TrainingError: it must not be sent; `abstain` or `drop_out` instead.
            SecaggError: REUSED_UPDATE.
        """
        if not isinstance(self._phase, Contributing):
            raise LocalProtocolError("no update is due; wait for Contribute")
        hashed: list[bytes] = []
        uploaded, message, vector = self._phase.upload(
            update, draws, self._history, self._randomness, encoded, hashed
        )
        # Nothing of this round has left the site yet, so one step on the disk ends the round before and begins it.
        settled, before = self._settle(), history_record(self._history)
        key = Secret(self._randomness(ENVELOPE_KEY_BYTES))
        sealed = seal_masks(key, uploaded.context.transcript, uploaded.masks or {})
        fields = upload_fields(uploaded, self._acceptance.due, self._start, message, sealed)
        record = frame(Record.UPLOAD, fields, vector, hashed)
        self._phase = uploaded
        note_sent(self._history, uploaded)
        self._sent[self._start] = Send(message, vector, tuple(hashed))
        # Only once the log is there may the table say so, and before anything that it must hold is sent.
        known = () if self._history.log_is_known else ((LOGGED_KEY, b"\x01"),)
        remembered = Remember(((MASKS_KEY, key.reveal()), *known))
        key.erase()
        return [*settled, ReplaceLog((before, record, vector)), remembered, self._sent[self._start]]

    def abstain(self, draws: bytes) -> list[SiteEffect]:
        """Return an upload of nothing with weight 0: the aggregator cannot tell it from another.

        Args:
            draws: 32 bytes that stand for what was drawn, as if this site had records.

        Raises:
            LocalProtocolError: no update is due.
            SecaggError: REUSED_UPDATE, just where a site with records would be refused.
        """
        if not isinstance(self._phase, Contributing):
            raise LocalProtocolError("no update is due; wait for Contribute")
        return self.contribute(abstention(self._site.shapes[self._phase.start.purpose]), draws)

    def drop_out(self) -> None:
        """Leave the round under way, visibly; its secrets are forgotten. Its sum can still be accepted."""
        if self._phase is not None:
            self._phase.erase()
        self._phase = None

    def decline_session(self) -> None:
        """Leave the session, or its set-up, because this site does not hold the state that the others hold."""
        self._leave_session()
        self._setup = Joining(self._site)

    def _set_up(self, kind: Kind, raw: bytes, request: bytes, state_digest: bytes) -> list[SiteEffect]:
        match kind, self._setup:
            case Kind.PROPOSAL, _:
                advertised, message = Joining(self._site).advertise(raw, state_digest, self._randomness)
                self._leave_session()
                self._setup = advertised
                settled = self._settle()
                begun = ReplaceLog((history_record(self._history),))
                return [*settled, begun, self._reply(request, message)]
            case Kind.MEMBER_LIST, Advertised() as phase:
                drawing, message = phase.reveal(raw)
                written = self._note_drawing()
                self._setup = drawing
                return [*written, self._reply(request, message)]
            case Kind.KEY_ADVERTISEMENTS, (Advertised() | Drawing()) as phase:
                self._setup, message = phase.agree(raw)
                other = self._setup.other_state
                vouched: list[SiteEffect] = [StateVouched(other)] if other != NO_STATE else []
                return [*vouched, self._reply(request, message)]
            case Kind.CONFIRMS, Agreed() as phase:
                self._session = phase.enter(raw, self._history)
                self._setup = Joining(self._site)
                return []
            case _:
                raise SecaggError(Check.OUT_OF_ORDER, f"a message of type {kind.name} is not due")

    def _note_drawing(self) -> list[SiteEffect]:
        """Count, on the disk, that one more graph is drawn with this site's nonce.

        Raises:
            SecaggError: GRAPH: it is one too many.
        """
        drawn = self._history.drawn_graphs
        words = f"this site has helped to draw {drawn} graphs under one plan, at most {MAX_DRAWN_GRAPHS} are safe"
        remedy = "continue under a new plan; or ask who keeps beginning sessions"
        require(drawn < MAX_DRAWN_GRAPHS, Check.GRAPH, words, remedy)
        self._history.drew_graph()
        return [ReplaceLog((history_record(self._history),))]

    def _settle(self) -> list[SiteEffect]:
        """Return the writing of what the log need not repeat in every round, where that has become much."""
        return [Remember(self._history.settle())] if self._history.is_due else []

    def _enter(self, raw: bytes, request: bytes, subject: RoundSubject, computed: bytes) -> list[SiteEffect]:
        require(
            self._session is not None,
            Check.SESSION,
            "this site has no keys in common with the others since it started; it gets them with the next sum",
        )
        session = _known(self._session)
        contributing = enter_round(session, raw, subject, computed)
        self.drop_out()
        self._phase, self._start, self._sent = contributing, request, {}
        start = contributing.start
        self._acceptance.renew(AwaitedSum(contributing.context, start, contributing.check))
        return [Contribute(start.round, start.purpose, start.clips)]

    def _wrap(self, raw: bytes, request: bytes) -> list[SiteEffect]:
        match self._phase:
            case Uploaded() | MasksWrapped() as phase:
                wrapped, message = phase.wrap(raw)
                record = frame(Record.PAIR_MASKS, reply_fields(wrapped.survivors, request, message))
                self._phase = wrapped
                return [Log((record,)), self._reply(request, message)]
            case phase:
                raise out_of_turn(Kind.PAIR_MASKS_REQUEST, phase)

    def _vote(self, raw: bytes, request: bytes) -> list[SiteEffect]:
        match self._phase:
            case Uploaded() | MasksWrapped() as phase:
                voted, message = phase.vote(raw)
                record = frame(Record.VOTE, reply_fields(voted.survivors, request, message))
                self._phase = voted
                return [Log((record,)), _FORGET_MASKS, self._reply(request, message)]
            case phase:
                raise out_of_turn(Kind.SURVIVORS, phase)

    def _answer(self, raw: bytes, request: bytes) -> list[SiteEffect]:
        match self._phase:
            case Uploaded() | MasksWrapped() | ConsistencyChecked() as phase:
                answered, message = phase.answer(raw)
                record = frame(Record.ANSWER, reply_fields(answered.survivors, request, message))
                self._history.answered(answered.fingerprint, answered.context.computed, answered.survivors)
                forgotten = () if isinstance(phase, ConsistencyChecked) else (_FORGET_MASKS,)
                self._phase = answered
                return [Log((record,)), *forgotten, self._reply(request, message)]
            case phase:
                raise out_of_turn(Kind.UNMASK_REQUEST, phase)

    def _reply(self, request: bytes, message: bytes) -> Send:
        self._sent[request] = Send(message)
        return self._sent[request]

    def _leave_session(self) -> None:
        self.drop_out()
        self._acceptance.renew(None)
        if isinstance(self._setup, Agreed | Advertised | Drawing):
            self._setup.erase()
        if self._session is not None:
            self._session.erase()
        self._session, self._sent = None, {}


_FORGET_MASKS: Final = Remember(((MASKS_KEY, bytes(ENVELOPE_KEY_BYTES)),))
"""Whoever has the log alone cannot read the masks in it."""


def _known(session: Session | None) -> Session:
    if session is None:
        raise LocalProtocolError("no session")
    return session


_TWICE: Final = {
    Kind.PAIR_MASKS_REQUEST: ("a request for masks", "a set of survivors for a round that this site has answered"),
    Kind.SURVIVORS: ("a set of survivors", "a set of survivors for a round that this site has answered"),
    Kind.UNMASK_REQUEST: ("a request to open masks", "a second request to open masks of one round"),
}
"""What a message is, and what it is once this site has answered."""


def out_of_turn(kind: Kind, phase: RoundPhase | None) -> SecaggError:
    """Return the refusal of a message that the present phase of a round does not take, to be raised."""
    what, again = _TWICE[kind]
    match phase:
        case ConsistencyChecked():
            return SecaggError(Check.ONE_VOTE, "a second set of survivors for one round")
        case SharesRevealed():
            return SecaggError(Check.ONE_ANSWER, again)
        case _:
            return SecaggError(Check.OUT_OF_ORDER, f"{what} before this site has uploaded")
