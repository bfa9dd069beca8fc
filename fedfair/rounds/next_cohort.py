"""Who is asked in the next sum, and whether enough of them are there.

Ordinarily that is everybody who is connected. After a lost sum it may be others: what some sites have helped to
open, they help to open again for the very same sites and for nobody else; and where uploads were missing, the next
attempt goes without those who owed them, if the others are enough. Knows no sums and no deadlines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedfair.ids import ParticipantId
    from fedfair.rounds.membership import Membership


class NextCohort:
    """The rule of one run.

    Args:
        members: who is connected.
        quorum: the fewest that a sum needs.
        total: how many collaborators the plan has.
    """

    def __init__(self, members: Membership, quorum: int, total: int) -> None:
        self._members = members
        self._quorum = quorum
        self._total = total
        self._only: tuple[ParticipantId, ...] = ()
        self._without: tuple[ParticipantId, ...] = ()

    def repeat_with(self, cohort: tuple[ParticipantId, ...]) -> None:
        """Ask exactly these next time."""
        self._only = cohort

    def go_without(self, missing: tuple[ParticipantId, ...]) -> None:
        """Leave these out next time, if the others are enough."""
        self._without = missing

    @property
    def is_fixed(self) -> bool:
        """Return whether only the very same sites can be asked."""
        return bool(self._only)

    @property
    def absent(self) -> tuple[ParticipantId, ...]:
        """Return who must come before the next sum begins at once."""
        missing = self._members.missing
        return tuple(who for who in missing if who in self._only) if self._only else missing

    @property
    def has_quorum(self) -> bool:
        """Return whether enough are connected, whoever they are."""
        return len(self._members.connected) >= self._quorum

    @property
    def is_enough(self) -> bool:
        """Return whether a sum can begin now."""
        return not self.absent if self._only else self.has_quorum

    @property
    def may_begin_late(self) -> bool:
        """Return whether a sum can begin without whoever is absent, when the patience for them is over."""
        return self.has_quorum and not self.is_fixed

    @property
    def attendance(self) -> str:
        """Return in words who is there."""
        connected = len(self._members.connected)
        return f"{connected} of {self._total} collaborators are connected, {self._quorum} are needed"

    def lack(self, due: str) -> tuple[str, str]:
        """Return why the sum that is `due` cannot begin after all patience, and what to do about it."""
        absent = ", ".join(self.absent)
        if self.is_fixed:
            why = f"some sites have helped to open the {due}, so only the very same sites can repeat it"
            remedy = (
                "start the aggregator again once they are back: it goes on with this sum, and repeats no training"
            )
        else:
            why, remedy = (
                self.attendance,
                "start the missing collaborators, or lower min_collaborators in the plan",
            )
        return f"{why}, and the join deadline has passed without {absent}", remedy

    def take(self) -> tuple[ParticipantId, ...]:
        """Return who is asked in the sum that begins now; afterwards the ordinary rule holds again."""
        connected, only = self._members.connected, self._only
        others = tuple(who for who in connected if who not in self._without)
        self._only, self._without = (), ()
        return only or (others if len(others) >= self._quorum else connected)
