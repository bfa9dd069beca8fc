"""Has an open sum continue without members that are late, where the sum and the plan allow it.

`stragglers` says how long that is, and when they are asked again. This joins it to one sum: whether the sum can do
without them, and the deadline that ends the wait. Where it cannot, the plan's own deadline does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from fedfair.plan.derived import is_masked, quorum
from fedfair.rounds.events import CancelDeadline, CaughtUp, DeadlineKind, LeftBehind, SetDeadline, Unawaited
from fedfair.rounds.membership import Presence
from fedfair.rounds.slowness.stragglers import Question, Stragglers

if TYPE_CHECKING:
    from fedfair.aggregation.requests import SumRequest
    from fedfair.ids import ParticipantId
    from fedfair.plan.schema import Plan
    from fedfair.rounds.deadlines import Deadlines
    from fedfair.rounds.membership import Membership
    from fedfair.rounds.sum_round import SumRound


class LateMembers:
    """The late members of the sums of one run.

    Args:
        plan: its quorum, its deadline and its attempts.
        members: who is connected.
        deadlines: of the run.
        clock: seconds since any fixed moment.

    Attributes:
        times: how long members take, and who is not asked now.
    """

    def __init__(self, plan: Plan, members: Membership, deadlines: Deadlines, clock: Callable[[], float]) -> None:
        self._is_masked = is_masked(plan)
        self._last_round = plan.training.rounds
        self._max_attempts = plan.federation.max_attempts
        self._members = members
        self._deadlines = deadlines
        self._only_these = False
        terms = plan.federation
        self.times = Stragglers(clock, quorum(plan), terms.round_deadline_seconds, terms.reconnect_grace_seconds)

    def begin_sum(self, *, only_these: bool) -> None:
        """Note that a sum begins, and whether nobody of its cohort can be left out."""
        self._only_these = only_these

    def resting(self, request: SumRequest) -> frozenset[ParticipantId]:
        """Return who is not asked in a sum, if the others are enough.

        In the last round these are only those who have not answered what they were asked before: nothing comes
        after it for which time could be saved, and who takes part has the final model.
        """
        return self.times.owing if request.round >= self._last_round else self.times.resting

    def watch(self, sum_round: SumRound) -> Iterator[SetDeadline | CancelDeadline]:
        """Time the present step of an open sum; once enough have answered it, limit the wait for the others."""
        request, awaited = sum_round.request, sum_round.waiting_for
        purpose = "" if sum_round.is_of_session else request.purpose.value
        needs_all = bool(purpose) and self._is_opened_for_all(sum_round)
        question = Question(sum_round.number, purpose, sum_round.step_name, needs_all)
        if self.times.begin(question, awaited):
            yield from self._deadlines.cancel(DeadlineKind.STRAGGLERS)
        self.times.note_away(self._away(awaited) if sum_round.suffices else ())
        if self._deadlines.is_running(DeadlineKind.STRAGGLERS) or not self.may_be_left(sum_round):
            return
        seconds = self.times.patience(awaited)
        if seconds is not None:
            yield self._deadlines.set(DeadlineKind.STRAGGLERS, seconds)

    def may_be_left(self, sum_round: SumRound) -> bool:
        """Return whether a sum can continue, or be repeated, without those it waits for.

        Who has lost its connection keeps the grace of the plan, as far as its account goes. A sum that only the
        very same sites can repeat waits for the plan's deadline, and so does one that is tried for the last time
        and would be lost.
        """
        awaited = sum_round.waiting_for
        if self._only_these or not awaited or not sum_round.suffices:
            return False
        if any(self.times.is_waited_for(who) for who in self._away(awaited)):
            return False
        return not self._is_opened_for_all(sum_round) or sum_round.request.attempt < self._max_attempts

    def leave_behind(self, sum_round: SumRound) -> Iterator[LeftBehind | Unawaited]:
        """Close the present step without those who have not answered it; say who they are."""
        awaited, number, request = sum_round.waiting_for, sum_round.number, sum_round.request
        away = self._away(awaited)
        late = self.times.leave_behind([who for who in awaited if who not in away])
        sum_round.pass_deadline()
        for who, by in late.items():
            yield LeftBehind(who, number, request, by.seconds, by.median)
        for who in away:
            yield Unawaited(who, number, request, "its connection breaks too often to be waited for")

    def _away(self, awaited: Collection[ParticipantId]) -> tuple[ParticipantId, ...]:
        return tuple(who for who in awaited if self._members.presence(who) is not Presence.CONNECTED)

    def hear(self, participant: ParticipantId) -> Iterator[CaughtUp]:
        """Note that a participant said something; it has caught up, if it had been left behind."""
        if self.times.owes(participant):
            late = self.times.caught_up(participant)
            yield CaughtUp(participant, late.seconds, late.median)

    def _is_opened_for_all(self, sum_round: SumRound) -> bool:
        """Return whether a sum is opened for its whole cohort or not at all."""
        return self._is_masked and not sum_round.request.purpose.statistic.draws_anew
