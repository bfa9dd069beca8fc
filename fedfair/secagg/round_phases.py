"""The phases of a round at the aggregator: `Uploading` [-> `HandingOver` -> `Voting`] -> `Answering` -> its end.

In a sparse graph a committee votes in every round. Whoever vanishes between its upload and its masks with the
missing is missing, too: then back to `Uploading`, where the others send the same bytes again. What arrives is
checked in `recovery`; these decide when a phase is complete, and what follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from fedfair.secagg.arriving import ArrivingVector
from fedfair.secagg.checks import SecaggError
from fedfair.secagg.effects import ServerEffect, SumOpened
from fedfair.secagg.masking import MaskedVector
from fedfair.secagg.open_round import OpenRound
from fedfair.secagg.params import Mode
from fedfair.secagg.round_messages import PairMasksRequest, Survivors
from fedfair.secagg.server_state import Closed, Move, Resting, ServerState


class Uploading:
    """Members are asked for their masked vectors, some of them perhaps once more.

    Args:
        summing: the round.
        members: whom to ask.
    """

    state: Final = ServerState.UPLOADS

    def __init__(self, summing: OpenRound, members: Collection[int]) -> None:
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

    def suffices(self) -> bool:
        """Return whether enough have contributed."""
        return not self.summing.settled and len(self.summing.arrived.uploads) >= self.summing.least

    def close(self) -> Move:
        """Continue with those who have contributed and whom nobody contradicts, where these are enough."""
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
                return ask_for_votes(summing)
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

    def __init__(self, summing: OpenRound) -> None:
        self.summing = summing
        survivors = summing.arrived.survivors
        self.asked = dict.fromkeys(survivors, PairMasksRequest(summing.arrived.transcript, survivors).encode())

    def take(self, sender: int, raw: bytes, vector: MaskedVector) -> list[ServerEffect]:  # noqa: ARG002 - as `AskingPhase`
        """Check and keep the masks of a member with the missing."""
        self.summing.arrived.add_pair_masks(sender, raw)
        return []

    def suffices(self) -> bool:
        """Return whether enough are left without those who have not handed over theirs."""
        arrived = self.summing.arrived
        present = len(arrived.uploads) - len(arrived.without_pair_masks)
        return not self.summing.settled and present >= self.summing.least

    def close(self) -> Move:
        """Continue to the votes; or begin the sum again without those whose masks are missing."""
        summing, arrived = self.summing, self.summing.arrived
        lacking = arrived.without_pair_masks
        if not lacking:
            return ask_for_votes(summing)
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

    def __init__(self, summing: OpenRound) -> None:
        self.summing = summing
        arrived = summing.arrived
        self.asked = dict.fromkeys(arrived.voters, Survivors(arrived.transcript, arrived.survivors).encode())

    def take(self, sender: int, raw: bytes, vector: MaskedVector) -> list[ServerEffect]:  # noqa: ARG002 - as `AskingPhase`
        """Check and keep a vote."""
        self.summing.arrived.add_vote(sender, raw)
        return []

    def suffices(self) -> bool:
        """Return whether enough have voted."""
        return len(self.summing.arrived.votes) >= self.summing.arrived.graph.votes_needed

    def close(self) -> Move:
        """Ask to open the sum, where enough have voted."""
        summing = self.summing
        votes, needed = summing.arrived.votes, summing.arrived.graph.votes_needed
        if not self.suffices():
            return summing.aborted(f"{len(votes)} votes on the survivors, {needed} are needed", reopens=True)
        summing.note(replace(summing.record, votes=tuple(sorted(votes.items()))))
        return open_with_votes(summing)


class Answering:
    """Survivors are asked for their shares of each other's masks.

    Args:
        summing: the round.
        members: whom to ask.
        with_votes: whether they must see the votes.
    """

    state: Final = ServerState.ANSWERS

    def __init__(self, summing: OpenRound, members: Collection[int], *, with_votes: bool) -> None:
        self.summing = summing
        arrived = summing.arrived
        self.asked = {one: arrived.request_for(one, with_votes=with_votes).encode() for one in members}

    def take(self, sender: int, raw: bytes, vector: MaskedVector) -> list[ServerEffect]:  # noqa: ARG002 - as `AskingPhase`
        """Check and keep an answer; tell of shares that are not the promised ones."""
        arrived = self.summing.arrived
        arrived.add_answer(sender, raw)
        owners = [owner for holder, owner in sorted(arrived.shares.wrong) if holder == sender]
        return self.summing.blame.wrong_shares(sender, owners) if owners else []

    def accuse(self, holder: int, owner: int) -> list[ServerEffect]:
        """Note that a survivor answers nothing, because what another one sealed for it does not open."""
        self.summing.arrived.shares.add_unopened(holder, owner)
        self.summing.disputes.add([(holder, owner)])
        return self.summing.blame.unopened(holder, owner, self.summing.arrived.shares.unopened)

    def suffices(self) -> bool:
        """Return False: with enough answers the phase is over at once."""
        return False

    def is_decided(self, missing: set[int], lost: Collection[int]) -> bool:
        """Return whether the sum can be opened, or cannot be any more.

        Args:
            missing: who may still answer.
            lost: who may just have failed to send a right answer.
        """
        shares = self.summing.arrived.shares
        # What the others still answer tells who lies, so a hopeless round with a dispute waits for them.
        is_disputed = bool(shares.wrong or shares.unopened)
        return shares.suffice or (bool(lost) and not is_disputed and shares.is_hopeless(missing, lost))

    def close(self) -> Move:
        """Open the sum, or say why it cannot be."""
        summing, arrived = self.summing, self.summing.arrived
        if not arrived.shares.suffice:
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
        unopened = self.summing.arrived.shares.unopened
        owing = self.asked.keys() - received - {holder for holder, _ in unopened}
        return Closed(self.summing.arrived.survivors, owing, unopened, self.summing.arrived.graph.holders)

    def _short_of_shares(self) -> Move:
        arrived = self.summing.arrived
        wrong, unopened = sorted(arrived.shares.wrong), arrived.shares.unopened
        needed = min(map(arrived.graph.shares_needed, arrived.survivors))
        words = f"{len(arrived.shares.answers)} answers, {needed} are needed"
        if not arrived.graph.is_complete:
            words = f"{arrived.shares.fewest} shares of a mask, {needed} are needed"
        if not wrong and not unopened:
            return self._aborted(words, reopens=True)
        if wrong:
            name = self.summing.roster.name(Counter(owner for _, owner in wrong).most_common(1)[0][0])
            words = f"{arrived.shares.fewest} right shares of {name}'s mask, {needed} are needed"
        pairs = {(min(pair), max(pair)) for pair in (*wrong, *unopened)}
        return self._aborted(words, self.summing.disputes.settle(tuple(arrived.uploads), pairs))

    def _aborted(self, reason: str, missing: tuple[int, ...] = (), *, reopens: bool = False) -> Move:
        # An honest member that could not open an envelope answered nothing, and will not be bound by an answer.
        refusing = {holder for holder, _ in self.summing.arrived.shares.unopened}
        honest = self.asked.keys() - refusing - self.summing.disputes.liars
        survivors = self.summing.arrived.survivors if honest else ()
        return self.summing.aborted(reason, missing, reopens=reopens, survivors=survivors)


RoundPhase = Uploading | HandingOver | Voting | Answering


def ask_for_votes(summing: OpenRound) -> Move:
    """Ask for votes on the survivors, where any are due; otherwise to open their masks."""
    arrived = summing.arrived
    summing.note(replace(summing.record, survivors=arrived.survivors))
    if summing.mode is Mode.SEMI_HONEST:
        return Move(Answering(summing, arrived.survivors, with_votes=False))
    if summing.record.votes:
        arrived.votes |= summing.record.votes
        return open_with_votes(summing)
    return Move(Voting(summing))


def open_with_votes(summing: OpenRound) -> Move:
    """Ask to open what was voted on: all survivors, where only a committee votes; otherwise who has voted."""
    arrived = summing.arrived
    voted = tuple(sorted(arrived.votes))
    return Move(Answering(summing, arrived.survivors if arrived.graph.votes_on_all else voted, with_votes=True))
