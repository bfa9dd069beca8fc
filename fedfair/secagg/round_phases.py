"""The phases of a round at the aggregator: `Uploading` [-> `HandingOver` -> `Voting`] -> `Answering` -> its end.

In a sparse graph a committee votes in every round. Whoever vanishes between its upload and its masks with the
missing is missing, too: then back to `Uploading`, where the others send the same bytes again. What arrives is
checked in `recovery`; these decide when a phase is complete, and what follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from fedfair.secagg.arriving import ArrivingVector
from fedfair.secagg.checks import SecaggError
from fedfair.secagg.disputes import Blame, Disputes
from fedfair.secagg.effects import RoundAborted, ServerEffect, SumOpened
from fedfair.secagg.masking import MaskedVector
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.params import Mode
from fedfair.secagg.recovery import Announcement, KeepBody, RoundState
from fedfair.secagg.round_messages import PairMasksRequest, Survivors
from fedfair.secagg.round_record import RoundRecord
from fedfair.secagg.server_state import Closed, Move, Resting, ServerState
from fedfair.secagg.signing import Roster


@dataclass(slots=True)
class RoundOutcome:
    """The part of a round that stays when it is over.

    Attributes:
        record: what opening it again takes.
        opened: the sum, until it is taken; None where there is none.
        announcement: what the cohort is to be told of it; None where there is none.
    """

    record: RoundRecord
    opened: OpenedSum | None = None
    announcement: Announcement | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """The way in which a sum is opened.

    Attributes:
        body_dtype: float32 or float64: width of an opened body.
        threads: how many threads may take masks away.
        keep: where its body is kept for those who are to be told of it; None for memory.
    """

    body_dtype: np.dtype[np.floating]
    threads: int
    keep: KeepBody | None


@dataclass(frozen=True, slots=True)
class Summing:
    """One round under way, in the hands of one phase after the other.

    Attributes:
        arrived: what arrived.
        outcome: what stays of it.
        is_reopened: whether it was interrupted before.
        least: for how many contributors its sum is opened at least.
        mode: what the aggregator is trusted with.
        opening: how its sum is opened.
        roster: for names.
        disputes: who contradicts whom.
        blame: says so.
    """

    arrived: RoundState
    outcome: RoundOutcome
    is_reopened: bool
    least: int
    mode: Mode
    opening: Opening
    roster: Roster
    disputes: Disputes
    blame: Blame

    @property
    def record(self) -> RoundRecord:
        """Return what opening the round again takes."""
        return self.outcome.record

    def note(self, record: RoundRecord) -> None:
        """Keep how far the round has come."""
        self.outcome.record = record

    @property
    def settled(self) -> tuple[int, ...]:
        """Return the survivors for whom an earlier attempt at this very round may have been answered, if any."""
        return self.record.survivors if self.is_reopened else ()

    def aborted(
        self,
        reason: str,
        missing: tuple[int, ...] = (),
        *,
        reopens: bool = False,
        survivors: tuple[int, ...] | None = None,
    ) -> Move:
        """Return the end of a round that is lost.

        Args:
            reason: in words.
            missing: whom the next attempt should go without.
            reopens: whether the very same round can be opened later.
            survivors: whose sum some may have helped to open; None for what an earlier attempt asked.
        """
        known = self.settled if survivors is None else survivors
        lost = RoundAborted(self.record.start.round, reason, bool(known), missing, known, reopens)
        return Move(Resting(ServerState.READY), after=(lost,))

    def voted_on(self) -> Move:
        """Ask for votes on the survivors, where any are due; otherwise to open their masks."""
        arrived = self.arrived
        self.note(replace(self.record, survivors=arrived.survivors))
        if self.mode is Mode.SEMI_HONEST:
            return Move(Answering(self, arrived.survivors, with_votes=False))
        if self.record.votes:
            arrived.votes |= self.record.votes
            return self.with_votes()
        return Move(Voting(self))

    def with_votes(self) -> Move:
        """Ask to open what was voted on: all survivors, where only a committee votes; otherwise who has voted."""
        arrived = self.arrived
        voted = tuple(sorted(arrived.votes))
        return Move(Answering(self, arrived.survivors if arrived.graph.votes_on_all else voted, with_votes=True))


class Uploading:
    """Members are asked for their masked vectors, some of them perhaps once more.

    Args:
        summing: the round.
        members: whom to ask.
    """

    state: Final = ServerState.UPLOADS

    def __init__(self, summing: Summing, members: Collection[int]) -> None:
        self.summing = summing
        self.asked = dict.fromkeys(members, summing.arrived.start.encode())

    @property
    def is_repeated(self) -> bool:
        """Return whether some of those who are asked have sent their uploads before."""
        return self.summing.is_reopened or self.summing.arrived.is_repeated

    def arriving(self) -> ArrivingVector | None:
        """Return what adds a vector to the running sum while it arrives; None where another one is arriving."""
        return self.summing.arrived.arriving()

    def take(self, sender: int, raw: bytes, vector: MaskedVector) -> list[ServerEffect]:
        """Check an upload and add its vector."""
        self.summing.arrived.add_upload(sender, raw, vector)
        return []

    def suffices(self, received: Collection[int]) -> bool:  # noqa: ARG002 - as `Phase`
        """Return whether enough have contributed."""
        return not self.summing.settled and len(self.summing.arrived.uploads) >= self.summing.least

    def is_over(self, missing: set[int], lost: Collection[int]) -> bool:  # noqa: ARG002 - as `Phase`
        """Return whether everybody has."""
        return not missing

    def close(self, received: Collection[int]) -> Move:  # noqa: ARG002 - as `Phase`
        """Go on with those who have contributed and whom nobody contradicts, where these are enough."""
        summing, arrived = self.summing, self.summing.arrived
        told, once_more = self._settle()
        contributed = len(arrived.uploads) + len(once_more)
        if contributed < summing.least:
            words = f"{contributed} of {len(arrived.start.cohort)} contributed, {summing.least} are needed"
            owing = set(arrived.start.cohort) - arrived.uploads.keys() - set(once_more)
            reopens = bool(summing.record.survivors)
            return replace(summing.aborted(words, tuple(sorted(owing)), reopens=reopens), before=told)
        following = Move(Uploading(summing, once_more)) if once_more else self._complete()
        return replace(following, before=told)

    def _settle(self) -> tuple[tuple[ServerEffect, ...], tuple[int, ...]]:
        """Leave out whom the uploads of others contradict; return what to tell, and who must upload once more."""
        arrived = self.summing.arrived
        told, without = self.summing.blame.settle(tuple(arrived.uploads), arrived.contradictions)
        return tuple(told), arrived.leave_out((*without, *arrived.lonely(without)))

    def _complete(self) -> Move:
        """Return what follows where the running sum is that of all who have contributed."""
        summing, arrived = self.summing, self.summing.arrived
        survivors, before = arrived.survivors, summing.record.survivors
        if before not in ((), survivors):
            again = f"{len(survivors)} of {len(before)} survivors sent their uploads again"
            return summing.aborted(f"{again}, all are needed", reopens=True)
        if survivors == arrived.start.cohort:
            if arrived.graph.votes_on_all:
                return summing.voted_on()
            summing.note(replace(summing.record, survivors=survivors))
            return Move(Answering(summing, survivors, with_votes=False))
        summing.note(replace(summing.record, uploaded=survivors))
        return Move(HandingOver(summing))


class HandingOver:
    """Those who have contributed are asked for their masks with the missing.

    Args:
        summing: the round.
    """

    state: Final = ServerState.PAIR_MASKS

    def __init__(self, summing: Summing) -> None:
        self.summing = summing
        survivors = summing.arrived.survivors
        self.asked = dict.fromkeys(survivors, PairMasksRequest(summing.arrived.transcript, survivors).encode())

    def take(self, sender: int, raw: bytes, vector: MaskedVector) -> list[ServerEffect]:  # noqa: ARG002 - as `Phase`
        """Check and keep the masks of a member with the missing."""
        self.summing.arrived.add_pair_masks(sender, raw)
        return []

    def suffices(self, received: Collection[int]) -> bool:  # noqa: ARG002 - as `Phase`
        """Return whether enough are left without those who have not handed over theirs."""
        arrived = self.summing.arrived
        present = len(arrived.uploads) - len(arrived.without_pair_masks)
        return not self.summing.settled and present >= self.summing.least

    def is_over(self, missing: set[int], lost: Collection[int]) -> bool:  # noqa: ARG002 - as `Phase`
        """Return whether everybody has."""
        return not missing

    def close(self, received: Collection[int]) -> Move:  # noqa: ARG002 - as `Phase`
        """Go on to the votes; or begin the sum again without those whose masks are missing."""
        summing, arrived = self.summing, self.summing.arrived
        lacking = arrived.without_pair_masks
        if not lacking:
            return summing.voted_on()
        lacking += arrived.lonely(lacking)
        present = len(arrived.survivors) - len(lacking)
        needed = len(summing.record.survivors) or summing.least
        if present < needed:
            words = f"{present} of {len(arrived.survivors)} handed over their masks with the missing"
            return summing.aborted(f"{words}, {needed} are needed", reopens=True)
        # Nobody but they know these masks, so the sum begins again without them.
        once_more = arrived.leave_out(lacking)
        summing.note(replace(summing.record, uploaded=once_more))
        return Move(Uploading(summing, once_more))


class Voting:
    """Those with a vote are asked whether these are the survivors.

    Args:
        summing: the round.
    """

    state: Final = ServerState.VOTES

    def __init__(self, summing: Summing) -> None:
        self.summing = summing
        arrived = summing.arrived
        self.asked = dict.fromkeys(arrived.voters, Survivors(arrived.transcript, arrived.survivors).encode())

    def take(self, sender: int, raw: bytes, vector: MaskedVector) -> list[ServerEffect]:  # noqa: ARG002 - as `Phase`
        """Check and keep a vote."""
        self.summing.arrived.add_vote(sender, raw)
        return []

    def suffices(self, received: Collection[int]) -> bool:  # noqa: ARG002 - as `Phase`
        """Return whether enough have voted."""
        return len(self.summing.arrived.votes) >= self.summing.arrived.graph.votes_needed

    def is_over(self, missing: set[int], lost: Collection[int]) -> bool:  # noqa: ARG002 - as `Phase`
        """Return whether everybody has."""
        return not missing

    def close(self, received: Collection[int]) -> Move:
        """Ask to open the sum, where enough have voted."""
        summing = self.summing
        votes, needed = summing.arrived.votes, summing.arrived.graph.votes_needed
        if not self.suffices(received):
            return summing.aborted(f"{len(votes)} votes on the survivors, {needed} are needed", reopens=True)
        summing.note(replace(summing.record, votes=tuple(sorted(votes.items()))))
        return summing.with_votes()


class Answering:
    """Survivors are asked for their shares of each other's masks.

    Args:
        summing: the round.
        members: whom to ask.
        with_votes: whether they must see the votes.
    """

    state: Final = ServerState.ANSWERS

    def __init__(self, summing: Summing, members: Collection[int], *, with_votes: bool) -> None:
        self.summing = summing
        arrived = summing.arrived
        self.asked = {one: arrived.request_for(one, with_votes=with_votes).encode() for one in members}

    def take(self, sender: int, raw: bytes, vector: MaskedVector) -> list[ServerEffect]:  # noqa: ARG002 - as `Phase`
        """Check and keep an answer; tell of shares that are not the promised ones."""
        arrived = self.summing.arrived
        arrived.add_answer(sender, raw)
        owners = [owner for holder, owner in arrived.wrong_shares if holder == sender]
        return self.summing.blame.wrong_shares(sender, owners) if owners else []

    def accuse(self, holder: int, owner: int) -> list[ServerEffect]:
        """Note that a survivor answers nothing, because what another one sealed for it does not open."""
        self.summing.arrived.add_unopened(holder, owner)
        self.summing.disputes.add([(holder, owner)])
        return self.summing.blame.unopened(holder, owner, self.summing.arrived.unopened)

    def suffices(self, received: Collection[int]) -> bool:  # noqa: ARG002 - as `Phase`
        """Return False: with enough answers the phase is over at once."""
        return False

    def is_over(self, missing: set[int], lost: Collection[int]) -> bool:
        """Return whether the sum can be opened, or cannot be any more."""
        arrived = self.summing.arrived
        if arrived.opens or not missing:
            return True
        # What the others still answer tells who lies, so a hopeless round with a dispute waits for them.
        is_disputed = bool(arrived.wrong_shares or arrived.unopened)
        return bool(lost) and not is_disputed and arrived.is_hopeless(missing, lost)

    def close(self, received: Collection[int]) -> Move:  # noqa: ARG002 - as `Phase`
        """Open the sum, or say why it cannot be."""
        summing, arrived = self.summing, self.summing.arrived
        if not arrived.opens:
            return self._short_of_shares()
        opening = summing.opening
        try:
            opened, said = arrived.open(opening.body_dtype, opening.threads, opening.keep)
        except SecaggError as error:
            # Not the fault of the member that answered last, so it is no refusal of that message.
            if not error.liar:
                return self._aborted(error.message)
            summing.disputes.convict(error.liar)
            found = summing.blame.exposed(error.liar, error.message, left_out=False)
            return replace(self._aborted(error.message, (error.liar,)), before=tuple(found))
        summing.outcome.opened, summing.outcome.announcement = opened, said
        return Move(Resting(ServerState.READY), after=(SumOpened(arrived.start.round, arrived.survivors),))

    def closed(self, received: Collection[int]) -> Closed:
        """Return what is still heard of the round once it is over."""
        unopened = set(self.summing.arrived.unopened)
        owing = self.asked.keys() - received - {holder for holder, _ in unopened}
        return Closed(self.summing.arrived.survivors, owing, unopened, self.summing.arrived.graph.holders)

    def _short_of_shares(self) -> Move:
        arrived = self.summing.arrived
        wrong, unopened = arrived.wrong_shares, arrived.unopened
        needed = min(map(arrived.graph.shares_needed, arrived.survivors))
        words = f"{len(arrived.answers)} answers, {needed} are needed"
        if not arrived.graph.is_complete:
            words = f"{arrived.fewest_shares} shares of a mask, {needed} are needed"
        if not wrong and not unopened:
            return self._aborted(words, reopens=True)
        if wrong:
            name = self.summing.roster.name(Counter(owner for _, owner in wrong).most_common(1)[0][0])
            words = f"{arrived.fewest_shares} right shares of {name}'s mask, {needed} are needed"
        pairs = {(min(pair), max(pair)) for pair in (*wrong, *unopened)}
        return self._aborted(words, self.summing.disputes.settle(tuple(arrived.uploads), pairs))

    def _aborted(self, reason: str, missing: tuple[int, ...] = (), *, reopens: bool = False) -> Move:
        # An honest member that could not open an envelope answered nothing, and will not be bound by an answer.
        refusing = {holder for holder, _ in self.summing.arrived.unopened}
        honest = self.asked.keys() - refusing - self.summing.disputes.liars
        survivors = self.summing.arrived.survivors if honest else ()
        return self.summing.aborted(reason, missing, reopens=reopens, survivors=survivors)


RoundPhase = Uploading | HandingOver | Voting | Answering
