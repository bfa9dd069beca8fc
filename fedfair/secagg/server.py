"""The aggregator's order of events: a transition table; messages, departures and deadlines in, effects out.

IDLE -> ADVERTS -> (REVEALS ->) CONFIRMS -> READY -> UPLOADS -> (PAIR_MASKS -> VOTES ->) ANSWERS -> READY. In a
sparse graph a committee votes in every round. Whoever vanishes between its upload and its masks with the missing
is missing, too: then back to UPLOADS, where the others send the same bytes again. A round that was interrupted
begins again at UPLOADS, with the bytes of its record. Its driver says who sent a message (from the certificate,
never from the message), who is gone and when time is up. A refused message changes nothing. What arrived is
checked in `server_setup` and `recovery`; this module decides when a phase is complete.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError
from fedfair.secagg.arriving import ArrivingVector
from fedfair.secagg.blame import Blame
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.disputes import Disputes
from fedfair.secagg.effects import (
    RoundAborted,
    SendTo,
    ServerEffect,
    SessionFailed,
    SessionReady,
    SumOpened,
)
from fedfair.secagg.masking import MaskedVector
from fedfair.secagg.messages import VERSION, Kind, kind_of
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.params import Mode, SessionPlan, least_survivors, threshold
from fedfair.secagg.recovery import Announcement, KeepBody, RoundState
from fedfair.secagg.round_messages import PairMasksRequest, RoundStart, Survivors
from fedfair.secagg.round_record import RoundRecord
from fedfair.secagg.server_setup import SetUp
from fedfair.secagg.server_state import EXPECTED, OF_A_ROUND, Closed, ServerState
from fedfair.secagg.session_graph import SessionGraph
from fedfair.secagg.shamir import Randomness
from fedfair.secagg.shape import SumShape, check_shapes
from fedfair.secagg.signing import Roster
from fedfair.secagg.transcript import RoundSubject


class Server:
    """The aggregator's side of the protocol.

    Args:
        roster: everybody's pinned keys.
        plan: what every session is for, and its terms.
        shapes: the shape of the sum of every purpose.
        randomness: source of nonces: `secrets.token_bytes`.
        body_dtype: float32 or float64: width of an opened body.
        threads: how many threads may take masks away.
        quorum: fewest contributors of a sum that is opened, where the consortium wants more than the protocol.
        keep: where the body of an opened sum is kept for those who are to be told of it; None for memory.
    """

    def __init__(
        self,
        roster: Roster,
        plan: SessionPlan,
        shapes: Mapping[str, SumShape],
        randomness: Randomness,
        body_dtype: np.dtype[np.floating],
        threads: int = 1,
        quorum: int = 0,
        keep: KeepBody | None = None,
    ) -> None:
        self._keep = keep
        self._roster = roster
        check_shapes(shapes, checked=plan.terms.check_sums)
        self._terms = plan.terms
        self._shapes = shapes
        self._body_dtype = body_dtype
        self._threads = threads
        self._quorum = quorum
        self.state = ServerState.IDLE
        self.members: tuple[int, ...] = ()
        self.round = 0
        self._gone: set[int] = set()
        self._asked: dict[int, bytes] = {}
        self._received: dict[int, bytes] = {}
        self._missing: set[int] = set()  # of those who were asked
        self._closed: Closed | None = None  # the last round, where it came to its answers
        self._set_up = SetUp(roster, plan, shapes, randomness)
        self._session_id = b""
        self._graph = SessionGraph(
            (), None, b""
        )  # of the session that is ready, or of a round that is opened again
        self._round_state: RoundState | None = None
        self._spares: dict[int, NDArray[np.uint32]] = {}  # memory of earlier rounds, by the length of the body
        self._disputes = Disputes(len(roster))
        self._blame = Blame(roster, self._disputes)
        self._record: RoundRecord | None = None
        self._is_reopened = False
        self._opened: OpenedSum | None = None
        self._announcement: Announcement | None = None

    @property
    def session_id(self) -> bytes:
        """Return the 32 bytes that name the session, or of the set-up under way; empty before the first."""
        return self._session_id

    @property
    def round_record(self) -> RoundRecord | None:
        """Return what `reopen` needs for the round under way, or for the last one of this session.

        The driver keeps it before it sends anything that was asked meanwhile.
        """
        return self._record

    @property
    def announcement(self) -> Announcement | None:
        """Return what the cohort is to be told of its opened sum; None once the next session or round begins."""
        return self._announcement

    @property
    def awaited(self) -> tuple[int, ...]:
        """Return who was asked, has not answered, and is not gone."""
        return tuple(sorted(self._missing))

    @property
    def suffices(self) -> bool:
        """Return whether the present phase can close without those who are awaited.

        Where a sum is opened for the whole cohort or for nobody, it is lost then, but the others can repeat it.
        """
        if self.state in (ServerState.ADVERTS, ServerState.CONFIRMS):
            return len(self._received) >= self._least_members
        if self.state is ServerState.REVEALS:
            return len(self._set_up.without_silent) >= self._least_members
        if self.state in (ServerState.UPLOADS, ServerState.PAIR_MASKS):
            settled = self._is_reopened and self._known_record.survivors
            present = len(self._current.uploads)
            if self.state is ServerState.PAIR_MASKS:
                present -= len(self._current.without_pair_masks)
            return not settled and present >= self._least_uploads
        return self.state is ServerState.VOTES and len(self._current.votes) >= self._current.graph.votes_needed

    @property
    def is_repeated(self) -> bool:
        """Return whether members are asked for an upload that some of them have sent before."""
        return self.state is ServerState.UPLOADS and (self._is_reopened or self._current.is_repeated)

    def open_session(self, members: Iterable[int]) -> list[ServerEffect]:
        """Propose a session to `members`; whatever was under way is over."""
        self._forget_round()
        self._record, self._announcement = None, None
        self._gone.clear()
        self.round = 0
        return self._ask(ServerState.ADVERTS, dict.fromkeys(members, self._set_up.propose()))

    def without_neighbours(self, cohort: Iterable[int]) -> frozenset[int]:
        """Return who of a cohort can share no mask in it, because too few of its neighbours are in it."""
        return frozenset(self._graph.lonely(frozenset(cohort)))

    def start_round(
        self,
        purpose: str,
        subject: RoundSubject,
        clips: tuple[float, ...],
        cohort: Iterable[int],
        *,
        unanimous: bool = False,
    ) -> list[ServerEffect]:
        """Ask `cohort` to contribute to a new sum; every attempt is a new round.

        Args:
            purpose: why something is summed.
            subject: what it is about.
            clips: C of each group of the body.
            cohort: whom to ask, members of the session.
            unanimous: whether the sum is opened for the whole cohort or for nobody. Then a member that has not
                answered may send the same update again, because no sum with it can be open.

        Raises:
            LocalProtocolError: no session is ready, or the cohort is not part of it.
            PlanError: the cohort is too small for the colluders of the terms.
        """
        chosen = tuple(sorted(cohort))
        if self.state is not ServerState.READY or not set(chosen) <= set(self.members):
            raise LocalProtocolError(f"no round can start with {chosen} while waiting for {self.state.value}")
        least = threshold(self._terms.mode, len(chosen), self._terms.colluders)
        needed = len(chosen) if unanimous else least
        start = RoundStart(self._session_id, self.round + 1, purpose, chosen, needed, subject, clips)
        record = RoundRecord(self.members, self._graph, start)
        self._record, self._is_reopened, self._announcement = record, False, None
        self._round_state = self._round(start)
        self.round += 1
        return self._ask(ServerState.UPLOADS, dict.fromkeys(chosen, start.encode()))

    def reopen(self, record: RoundRecord) -> list[ServerEffect]:
        """Ask for the very same round again, byte for byte; whatever was under way is over.

        Sites that have uploaded, voted or answered send what they sent then. Where the survivors were known, the
        sum is opened for them or for nobody.

        Args:
            record: of a round of this plan, by this process or an earlier one.

        Raises:
            LocalProtocolError: its sum is none of this plan.
        """
        start = record.start
        if start.purpose not in self._shapes:
            raise LocalProtocolError(f"the record of a {start.purpose} sum, which this plan does not have")
        self._graph = record.graph
        self._round_state = self._round(start)
        self._record, self._is_reopened, self._announcement = record, True, None
        self.members, self.round, self._session_id = record.members, start.round, start.session_id
        return self._ask(ServerState.UPLOADS, dict.fromkeys(record.asked, start.encode()))

    def arriving(self, sender: int, raw: bytes, length: int) -> ArrivingVector | None:
        """Return what adds the vector of an upload to the running sum while it arrives.

        Nothing is said by that about the upload: it counts once `receive` has taken it.

        Args:
            sender: roster index behind the peer's certificate.
            raw: the message of the upload.
            length: of its vector, in bytes.

        Returns:
            None where no upload of the member is due, where its vector would have another length, or where another
            one is arriving. Then `receive` takes the whole vector, or refuses it.
        """
        awaited = self.state is ServerState.UPLOADS and sender in self._asked and sender not in self._received
        if not awaited or raw[:2] != bytes((VERSION, Kind.UPLOAD)):
            return None
        shape = self._shapes[self._current.start.purpose]
        return self._current.arriving() if length == shape.vector_bytes(self._terms.ring_bits) else None

    def receive(self, sender: int, raw: bytes, vector: MaskedVector = b"") -> list[ServerEffect]:
        """Take one message of a member; an exact repetition, or one answer too many, is passed over.

        Args:
            sender: roster index behind the peer's certificate.
            raw: the message.
            vector: what travelled beside an upload; of one that was added while it arrived, what `arriving` gave.

        Raises:
            SecaggError: the message was refused; nothing changed.
        """
        kind, seen = kind_of(raw), hashlib.sha256(raw).digest()
        if self._received.get(sender) == seen:
            return []
        closed = self._closed if kind is Kind.UNMASK_SHARES and self.state is ServerState.READY else None
        if closed is not None and sender in closed.owing:
            # It was asked to answer, but others were quicker.
            closed.owing.discard(sender)
            return []
        said = f"{kind.name} of member {sender}"
        if kind is not EXPECTED[self.state]:
            late = Check.LATE if kind in OF_A_ROUND else Check.OUT_OF_ORDER
            raise SecaggError(late, f"{said} while waiting for {self.state.value}")
        self._roster.check_pinned(sender)
        require(sender in self._asked, Check.LATE, f"{said}, who is not asked this time")
        require(sender not in self._received, Check.DUPLICATE, f"a second, different {said}")
        self._take(kind, sender, raw, vector)
        self._received[sender] = seen
        self._missing.discard(sender)
        self._gone.discard(sender)
        told = self._wrong_shares_of(sender)
        return [*told, *self._advance(lost=(sender,) if told else ())]

    def accuse(self, holder: int, owner: int) -> list[ServerEffect]:
        """Note that a member answers nothing, because what a survivor sealed for it does not open; it is gone.

        Either of the two lies, so they contradict each other. One word of each member counts in a sum.

        Args:
            holder: roster index behind the peer's certificate.
            owner: whom it accuses; anything that the peer has sent.

        Raises:
            SecaggError: OUT_OF_ORDER, LATE or DUPLICATE: no answer of `holder` is due; MEMBERSHIP: it is
                nobody, or `owner` is no other survivor. Nothing changed.
        """
        early = f"member {holder} accuses member {owner} while waiting for {self.state.value}"
        require(self.state is ServerState.ANSWERS, Check.OUT_OF_ORDER, early)
        self._roster.check_pinned(holder)
        require(holder in self._asked, Check.LATE, f"member {holder} accuses, and is not asked this time")
        again = f"member {holder} accuses member {owner} after its answer or refusal"
        require(holder not in self._received.keys() | self._gone, Check.DUPLICATE, again)
        self._current.add_unopened(holder, owner)
        self._disputes.add([(holder, owner)])
        return [*self._blame.unopened(holder, owner, self._current.unopened), *self.gone(holder)]

    def accuse_late(self, holder: int, owner: int) -> list[ServerEffect]:
        """Note the same about the round before: its sum was opened, or lost, before the member had refused.

        Args:
            holder: roster index behind the peer's certificate.
            owner: whom it accuses; anything that the peer has sent.

        Raises:
            SecaggError: LATE: no answer of `holder` was outstanding in that round; MEMBERSHIP: `owner` is no other
                survivor of it. Nothing changed.
        """
        closed = self._closed
        if closed is None or holder not in closed.owing:
            raise SecaggError(Check.LATE, f"member {holder} accuses member {owner} when no answer is due")
        sealed = holder != owner and {holder, owner} <= set(closed.survivors) and owner in closed.peers(holder)
        words = f"member {holder} accuses member {owner}, who had sealed nothing for it"
        require(sealed, Check.MEMBERSHIP, words)
        closed.owing.discard(holder)
        closed.unopened.add((holder, owner))
        self._disputes.add([(holder, owner)])
        return self._blame.unopened(holder, owner, closed.unopened)

    def gone(self, member: int) -> list[ServerEffect]:
        """Note that a member cannot answer any more; a phase that waits only for it is closed."""
        self._gone.add(member)
        self._missing.discard(member)
        return self._advance(lost=(member,)) if member in self._asked else []

    def returned(self, member: int) -> list[ServerEffect]:
        """Note that a member is back; what it was asked and has not answered is sent again, byte for byte."""
        self._gone.discard(member)
        if member in self._asked and member not in self._received:
            self._missing.add(member)
            return [SendTo(member, self._asked[member])]
        return []

    def deadline(self) -> list[ServerEffect]:
        """Close the present phase with what there is."""
        return self._close() if EXPECTED[self.state] is not None else []

    def take_sum(self) -> OpenedSum:
        """Return the sum after `SumOpened`, once.

        Raises:
            LocalProtocolError: there is none.
        """
        if self._opened is None:
            raise LocalProtocolError("no sum was opened")
        opened, self._opened = self._opened, None
        return opened

    def _round(self, start: RoundStart) -> RoundState:
        self._forget_round()
        shape = self._shapes[start.purpose]
        spare = self._spares.pop(shape.body_length, None)
        return RoundState(self._roster, self._terms, start, shape, self._graph, spare)

    def _forget_round(self) -> None:
        """End a round; keep its memory for the next one of the same length."""
        if self._round_state is not None and (spare := self._round_state.take_spare()) is not None:
            self._spares[spare.size] = spare
        self._round_state = None

    def _take(self, kind: Kind, sender: int, raw: bytes, vector: MaskedVector) -> None:
        match kind:
            case Kind.KEY_ADVERTISEMENT:
                self._set_up.take_advert(sender, raw)
            case Kind.REVEAL:
                self._set_up.take_reveal(sender, raw)
            case Kind.CONFIRM:
                self._set_up.take_confirm(sender, raw)
            case Kind.UPLOAD:
                self._current.add_upload(sender, raw, vector)
            case Kind.PAIR_MASKS:
                self._current.add_pair_masks(sender, raw)
            case Kind.CONSISTENCY_CHECK:
                self._current.add_vote(sender, raw)
            case _:
                self._current.add_answer(sender, raw)

    def _advance(self, *, lost: Collection[int]) -> list[ServerEffect]:
        """Close the present phase where nothing more is to come.

        Args:
            lost: who may just have failed to send a right answer.
        """
        missing = self._missing
        if self.state is ServerState.ANSWERS:
            # What the others still answer tells who lies, so a hopeless round with a dispute waits for them.
            patient = bool(missing) and bool(self._current.wrong_shares or self._current.unopened)
            hopeless = not missing or (lost and not patient and self._current.is_hopeless(missing, lost))
            return self._close() if self._current.opens or hopeless else []
        return [] if missing or EXPECTED[self.state] is None else self._close()

    def _close(self) -> list[ServerEffect]:
        closing: Mapping[ServerState, Callable[[], list[ServerEffect]]] = {
            ServerState.ADVERTS: self._close_adverts,
            ServerState.REVEALS: self._close_reveals,
            ServerState.CONFIRMS: self._close_confirms,
            ServerState.UPLOADS: self._close_uploads,
            ServerState.PAIR_MASKS: self._close_pair_masks,
            ServerState.VOTES: self._close_votes,
            ServerState.ANSWERS: self._close_answers,
        }
        return closing[self.state]()

    def _close_adverts(self) -> list[ServerEffect]:
        if failed := self._too_few(len(self._received), "brought keys"):
            return failed
        drawing = self._set_up.name_session()
        self._session_id = self._set_up.session_id
        return self._ask(ServerState.REVEALS, drawing) if drawing else self._ask_to_confirm()

    def _close_reveals(self) -> list[ServerEffect]:
        if self._set_up.is_drawn:
            return self._ask_to_confirm()
        others = self._set_up.without_silent
        if failed := self._too_few(len(others), "are left without those who did not reveal a nonce of the graph"):
            return failed
        # Nobody may leave once it could know the order, so the others begin again, with other nonces.
        return self._ask(ServerState.ADVERTS, dict.fromkeys(others, self._set_up.propose()))

    def _ask_to_confirm(self) -> list[ServerEffect]:
        adverts = self._set_up.adverts()
        self._session_id = self._set_up.session_id
        return self._ask(ServerState.CONFIRMS, adverts)

    def _close_confirms(self) -> list[ServerEffect]:
        if failed := self._too_few(len(self._received), "confirmed the session"):
            return failed
        messages = self._set_up.confirms()
        self.members, self._graph = tuple(messages), self._set_up.drawn
        effects = self._ask(ServerState.READY, messages)
        return [*effects, SessionReady(self._session_id, self.members)]

    @property
    def _least_members(self) -> int:
        return max(self._terms.colluders + 2, self._quorum)

    def _too_few(self, members: int, what: str) -> list[ServerEffect]:
        if members >= self._least_members:
            return []
        reason = f"{members} members {what}, at least {self._least_members} are needed"
        self._rest(ServerState.IDLE)
        return [SessionFailed(reason)]

    def _close_uploads(self) -> list[ServerEffect]:
        round_state = self._current
        effects, once_more = self._settle()
        least = self._least_uploads
        contributed = len(round_state.uploads) + len(once_more)
        if contributed < least:
            words = f"{contributed} of {len(round_state.start.cohort)} contributed, {least} are needed"
            owing = set(round_state.start.cohort) - round_state.uploads.keys() - set(once_more)
            reopens = bool(self._known_record.survivors)
            return [*effects, *self._abort(words, tuple(sorted(owing)), reopens=reopens)]
        if once_more:
            return effects + self._ask(ServerState.UPLOADS, dict.fromkeys(once_more, round_state.start.encode()))
        return effects + self._ask_for_the_masks()

    def _ask_for_the_masks(self) -> list[ServerEffect]:
        round_state, record = self._current, self._known_record
        survivors = round_state.survivors
        if record.survivors not in ((), survivors):
            again = f"{len(survivors)} of {len(record.survivors)} survivors sent their uploads again"
            return self._abort(f"{again}, all are needed", reopens=True)
        if survivors == round_state.start.cohort:
            if round_state.graph.votes_on_all:
                return self._ask_for_votes()
            self._record = replace(record, survivors=survivors)
            return self._ask_to_open(survivors, with_votes=False)
        self._record = replace(record, uploaded=survivors)
        question = PairMasksRequest(round_state.transcript, survivors).encode()
        return self._ask(ServerState.PAIR_MASKS, dict.fromkeys(survivors, question))

    def _close_pair_masks(self) -> list[ServerEffect]:
        round_state, record = self._current, self._known_record
        lacking = round_state.without_pair_masks
        if not lacking:
            return self._ask_for_votes()
        lacking += round_state.lonely(lacking)
        present = len(round_state.survivors) - len(lacking)
        needed = len(record.survivors) or self._least_uploads
        if present < needed:
            words = f"{present} of {len(round_state.survivors)} handed over their masks with the missing"
            return self._abort(f"{words}, {needed} are needed", reopens=True)
        # Nobody but they know these masks, so the sum begins again without them.
        once_more = round_state.leave_out(lacking)
        self._record = replace(record, uploaded=once_more)
        return self._ask(ServerState.UPLOADS, dict.fromkeys(once_more, round_state.start.encode()))

    def _ask_for_votes(self) -> list[ServerEffect]:
        round_state = self._current
        survivors = round_state.survivors
        self._record = record = replace(self._known_record, survivors=survivors)
        if self._terms.mode is Mode.SEMI_HONEST:
            return self._ask_to_open(survivors, with_votes=False)
        if record.votes:
            round_state.votes |= record.votes
            return self._ask_to_open(self._opening, with_votes=True)
        question = Survivors(round_state.transcript, survivors).encode()
        return self._ask(ServerState.VOTES, dict.fromkeys(round_state.voters, question))

    @property
    def _opening(self) -> tuple[int, ...]:
        """Return who is asked to open a set that was voted on: all survivors, where only a committee votes."""
        current = self._current
        return current.survivors if current.graph.votes_on_all else tuple(sorted(current.votes))

    def _close_votes(self) -> list[ServerEffect]:
        votes, needed = self._current.votes, self._current.graph.votes_needed
        if len(votes) < needed:
            return self._abort(f"{len(votes)} votes on the survivors, {needed} are needed", reopens=True)
        self._record = replace(self._known_record, votes=tuple(sorted(votes.items())))
        return self._ask_to_open(self._opening, with_votes=True)

    def _ask_to_open(self, members: tuple[int, ...], *, with_votes: bool) -> list[ServerEffect]:
        requests = {
            member: self._current.request_for(member, with_votes=with_votes).encode() for member in members
        }
        return self._ask(ServerState.ANSWERS, requests)

    def _close_answers(self) -> list[ServerEffect]:
        round_state = self._current
        if not round_state.opens:
            return self._abort_for_want_of_shares()
        try:
            self._opened, self._announcement = round_state.open(self._body_dtype, self._threads, self._keep)
        except SecaggError as error:
            # Not the fault of the member that answered last, so it is no refusal of that message.
            if not error.liar:
                return self._abort(error.message)
            self._disputes.convict(error.liar)
            found = self._blame.exposed(error.liar, error.message, left_out=False)
            return [*found, *self._abort(error.message, (error.liar,))]
        self._rest(ServerState.READY)
        return [SumOpened(round_state.start.round, round_state.survivors)]

    def _abort_for_want_of_shares(self) -> list[ServerEffect]:
        round_state = self._current
        wrong, unopened = round_state.wrong_shares, round_state.unopened
        needed = min(map(round_state.graph.shares_needed, round_state.survivors))
        words = f"{len(round_state.answers)} answers, {needed} are needed"
        if not round_state.graph.is_complete:
            words = f"{round_state.fewest_shares} shares of a mask, {needed} are needed"
        if not wrong and not unopened:
            return self._abort(words, reopens=True)
        if wrong:
            name = self._roster.name(Counter(owner for _, owner in wrong).most_common(1)[0][0])
            words = f"{round_state.fewest_shares} right shares of {name}'s mask, {needed} are needed"
        pairs = {(min(pair), max(pair)) for pair in (*wrong, *unopened)}
        return self._abort(words, self._disputes.settle(tuple(round_state.uploads), pairs))

    def _settle(self) -> tuple[list[ServerEffect], tuple[int, ...]]:
        """Leave out whom the uploads of others contradict; return what to tell, and who must upload once more."""
        round_state = self._current
        effects, without = self._blame.settle(tuple(round_state.uploads), round_state.contradictions)
        lonely = round_state.lonely(without)
        return effects, round_state.leave_out((*without, *lonely))

    def _wrong_shares_of(self, sender: int) -> list[ServerEffect]:
        """Return what to tell about the answer that came last, where a share in it is not the promised one."""
        pairs = [] if self._round_state is None else [p for p in self._round_state.wrong_shares if p[0] == sender]
        if self.state is not ServerState.ANSWERS or not pairs:
            return []
        return self._blame.wrong_shares(sender, [owner for _, owner in pairs])

    def _abort(self, reason: str, missing: tuple[int, ...] = (), *, reopens: bool = False) -> list[ServerEffect]:
        # What an earlier attempt at this very round has asked may have been answered then.
        earlier = self._known_record.survivors if self._is_reopened else ()
        survivors = self._perhaps_opened if self.state is ServerState.ANSWERS else earlier
        aborted = RoundAborted(self.round, reason, bool(survivors), missing, survivors, reopens)
        self._rest(ServerState.READY)
        return [aborted]

    @property
    def _perhaps_opened(self) -> tuple[int, ...]:
        """Return the survivors, where an honest one may have helped to open their sum; nobody otherwise.

        An honest member that could not open an envelope answered nothing, and will not be bound by an answer.
        """
        refusing = {holder for holder, _ in self._current.unopened}
        return self._current.survivors if set(self._asked) - refusing - self._disputes.liars else ()

    def _ask(self, state: ServerState, messages: Mapping[int, bytes]) -> list[ServerEffect]:
        self.state = state
        self._asked, self._received = dict(messages), {}
        self._missing = self._asked.keys() - self._gone
        effects: list[ServerEffect] = [SendTo(member, message) for member, message in messages.items()]
        return effects + self._advance(lost=self._asked)

    def _rest(self, state: ServerState) -> None:
        self._closed = None
        if self.state is ServerState.ANSWERS:
            unopened = set(self._current.unopened)
            owing = self._asked.keys() - self._received.keys() - {holder for holder, _ in unopened}
            self._closed = Closed(self._current.survivors, owing, unopened, self._current.graph.holders)
        self.state = state
        self._asked, self._received, self._missing = {}, {}, set()
        self._forget_round()

    @property
    def _least_uploads(self) -> int:
        """Return for how many contributors the sum under way is opened at least."""
        start, terms = self._current.start, self._terms
        protocol = least_survivors(terms.mode, len(start.cohort), terms.colluders)
        return max(protocol, self._quorum, start.threshold)

    @property
    def _known_record(self) -> RoundRecord:
        if self._record is None:
            raise LocalProtocolError("no round is under way")
        return self._record

    @property
    def _current(self) -> RoundState:
        if self._round_state is None:
            raise LocalProtocolError("no round is under way")
        return self._round_state
