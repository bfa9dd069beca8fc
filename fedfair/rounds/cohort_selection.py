"""Selects the cohort of the next sum, and checks that enough of it is there.

Ordinarily that is all sites that are connected. After a lost sum it may be others: what some sites have helped to
open, they help to open again for the very same sites and for nobody else; a sum that was interrupted waits for
those who can open it; and where uploads were missing, the next attempt goes without those who owed them, if the
others are enough. Who was left behind by earlier sums rests under the same condition. Knows no sums and no
deadlines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fedfair.rounds.events import AfterWaiting, Waiting

if TYPE_CHECKING:
    from collections.abc import Collection

    from fedfair.aggregation.requests import SumRequest
    from fedfair.ids import ParticipantId
    from fedfair.rounds.events import DeadlineToken
    from fedfair.rounds.liars import Liars
    from fedfair.rounds.membership import Membership
    from fedfair.rounds.sum_round import SumRound


class GivenUp(Protocol):
    """The interface of what follows a lost sum."""

    @property
    def when_given_up(self) -> AfterWaiting:
        """Return what follows where the awaited do not come."""

    @property
    def reopens(self) -> bool:
        """Return whether an interrupted sum is to be opened from what sites have sent."""


class CohortSelection:
    """The rule of one run.

    Args:
        members: who is connected.
        quorum: the fewest that a sum needs.
        total: how many collaborators the plan has.
        liars: who was proven to lie, and is not asked again.
    """

    def __init__(self, members: Membership, quorum: int, total: int, liars: Liars) -> None:
        self._liars = liars
        self._members = members
        self._quorum = quorum
        self._total = total
        self._only: tuple[ParticipantId, ...] = ()
        self._needs_all = False
        self._why = ""
        self._without: tuple[ParticipantId, ...] = ()

    def repeat_with(self, cohort: tuple[ParticipantId, ...]) -> None:
        """Ask exactly these next time, all of them."""
        self._only, self._needs_all, self._why = cohort, True, ""

    def reopen_with(self, cohort: tuple[ParticipantId, ...], due: str, *, needs_all: bool) -> None:
        """Ask these again for what they have sent in a sum that was interrupted.

        Args:
            cohort: who was asked.
            due: the sum, in words.
            needs_all: whether nothing can be opened without any of them.
        """
        self._only, self._needs_all = cohort, needs_all
        who = f"only {', '.join(cohort)} together" if needs_all else ", ".join(cohort)
        self._why = f"the {due} was interrupted, and {who} can open it from what they have sent"

    def ask_anybody(self) -> None:
        """Take all sites that are connected next time."""
        self._only, self._needs_all, self._why = (), False, ""

    def note_opened(self, sum_round: SumRound, following: SumRequest | None) -> None:
        """Ask the same sites for the sum that follows an opened one, where to them it is the same sum.

        So it is with the evaluation of the output model after that of the last one.
        """
        if following is not None and following.place == sum_round.request.place:
            self.repeat_with(sum_round.aftermath.settled)

    def note_lost(self, sum_round: SumRound) -> None:
        """Ask the very sites that helped to open a lost sum; where nobody did, leave those out who owed it.

        The very sites do not come together again where one of them was sent away for a lie. Then the others are
        asked; each of them that has helped to open the lost sum refuses in words, as its policy has it.
        """
        left = sum_round.aftermath
        if left.settled and not any(who in self._liars for who in left.settled):
            self.repeat_with(left.settled)
        else:
            self.go_without(left.missing)

    def go_without(self, missing: tuple[ParticipantId, ...]) -> None:
        """Leave these out next time, if the others are enough."""
        self._without = missing

    @property
    def is_fixed(self) -> bool:
        """Return whether only the very same sites can be asked."""
        return self._needs_all

    @property
    def absent(self) -> tuple[ParticipantId, ...]:
        """Return who must come before the next sum begins at once."""
        missing = self._members.missing
        return tuple(who for who in missing if who in self._only) if self._only else missing

    @property
    def has_quorum(self) -> bool:
        """Return whether enough are connected of those who can be asked."""
        return self.present >= self._quorum

    @property
    def others_suffice(self) -> bool:
        """Return whether enough are connected, if anybody may be asked."""
        return len(self._members.connected) >= self._quorum

    @property
    def is_enough(self) -> bool:
        """Return whether a sum can begin now."""
        return not self.absent if self._only else self.has_quorum

    @property
    def may_begin_late(self) -> bool:
        """Return whether a sum can begin without the absent sites, after the wait for them."""
        return self.has_quorum and not self.is_fixed

    @property
    def only(self) -> tuple[ParticipantId, ...]:
        """Return who alone can be asked; empty where any collaborator can."""
        return self._only

    @property
    def present(self) -> int:
        """Return how many of those who can be asked are connected."""
        return len([who for who in self._members.connected if not self._only or who in self._only])

    @property
    def total(self) -> int:
        """Return how many can be asked."""
        return len(self._only) or self._total

    @property
    def needed(self) -> int:
        """Return the fewest that the next sum needs."""
        return len(self._only) if self._needs_all else self._quorum

    def lack(self, due: str) -> tuple[str, str]:
        """Return why the sum that is `due` cannot begin after all patience, and what to do about it."""
        absent = ", ".join(self.absent)
        if self._why:
            why = self._why
            remedy = "start the aggregator again once they are back: it opens this sum, and repeats no training"
            return f"{why}; the join deadline has passed without {absent}", remedy
        if self.is_fixed:
            why = f"some sites have helped to open the {due}, so only the very same sites can repeat it"
            remedy = (
                "restart the aggregator once they are back: it resumes with this sum and repeats no other; or "
                "each site that has helped allows another set of sites with policy.max_reopened_sums"
            )
        else:
            connected = len(self._members.connected)
            why = f"{connected} of {self._total} collaborators are connected, {self._quorum} are needed"
            remedy = "start the missing collaborators, or lower min_collaborators in the plan"
        return f"{why}, and the join deadline has passed without {absent}", remedy

    def waiting(self, due: SumRequest | None, until: tuple[DeadlineToken, ...], given_up: GivenUp) -> Waiting:
        """Return what there is to say of those who are waited for.

        Args:
            due: the sum that begins next.
            until: the deadlines of which the first ends the wait.
            given_up: what follows a wait that is given up.
        """
        then = AfterWaiting.START_WITHOUT if self.may_begin_late else given_up.when_given_up
        counts = (self.present, self.total, self.needed)
        return Waiting(self.absent, *counts, until, then, due, self.only, given_up.reopens)

    def take(self, resting: Collection[ParticipantId] = ()) -> tuple[ParticipantId, ...]:
        """Return who is asked in the sum that begins now; afterwards the ordinary rule holds again.

        Args:
            resting: who is left out, if the others are enough.
        """
        connected, only = self._members.connected, self._only
        others = tuple(who for who in connected if who not in self._without)
        rested = tuple(who for who in others if who not in resting)
        others = rested if len(rested) >= self._quorum else others
        self._without = ()
        self.ask_anybody()
        return only or (others if len(others) >= self._quorum else connected)
