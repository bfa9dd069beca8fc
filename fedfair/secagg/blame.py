"""Says in words whose messages contradict whose, and whether that proves somebody to lie.

`disputes` counts; this names. Decides no order of events; that is `server`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fedfair.secagg.disputes import Disputes, Pair
from fedfair.secagg.effects import Contradicted, ServerEffect
from fedfair.secagg.signing import Roster


class Blame:
    """Tells the driver of contradictions.

    Args:
        roster: for names.
        disputes: the contradictions of the run; noted there first.
    """

    def __init__(self, roster: Roster, disputes: Disputes) -> None:
        self._roster = roster
        self._disputes = disputes
        self._told: set[int] = set()  # the proven liars that the driver knows

    def settle(
        self, members: Sequence[int], pairs: Collection[Pair]
    ) -> tuple[list[ServerEffect], tuple[int, ...]]:
        """Note pairs of uploads that contradict each other; return what to tell, and whom to leave out.

        Args:
            members: who has contributed, in the order of arrival.
            pairs: who of them contradict each other in this sum.
        """
        self._disputes.add(pairs)
        without = self._disputes.settle(members, pairs)
        effects: list[ServerEffect] = []
        for member in without:
            others = sorted({one for pair in pairs if member in pair for one in pair} - {member})
            reason = f"{self._roster.name(member)} has other keys than {self._names(others)}"
            effects += self.exposed(member, reason, left_out=True)
        return effects, without

    def wrong_shares(self, sender: int, owners: Sequence[int]) -> list[ServerEffect]:
        """Return what to tell about an answer with other shares than their owners promised, itself maybe."""
        self._disputes.add((sender, owner) for owner in owners if owner != sender)
        if sender in owners:
            # It has signed the digest of its own share.
            self._disputes.convict(sender)
        reason = f"{self._roster.name(sender)} answers with other shares than {self._names(owners)} promised"
        effects = self.exposed(sender, reason, left_out=False)
        for owner in owners:
            if owner in self._disputes.liars - self._told:
                told = (
                    f"{self._roster.name(owner)} promised other shares than {self._roster.name(sender)} received"
                )
                effects += self.exposed(owner, told, left_out=False)
        return effects

    def unopened(self, holder: int, owner: int, unopened: Iterable[Pair]) -> list[ServerEffect]:
        """Return what to tell about a member that cannot open what another one sealed for it."""
        accusing = self._names(sorted(one for one, accused in unopened if accused == owner))
        reason = f"{self._roster.name(owner)} sealed shares that do not open, according to {accusing}"
        effects = self.exposed(owner, reason, left_out=False)
        if holder in self._disputes.liars - self._told:
            accused = self._names(self._disputes.contradicting(holder))
            effects += self.exposed(holder, f"{self._roster.name(holder)} contradicts {accused}", left_out=False)
        return effects

    def exposed(self, member: int, reason: str, *, left_out: bool) -> list[ServerEffect]:
        """Return what to tell of one member."""
        proven = member in self._disputes.liars
        if proven:
            self._told.add(member)
        return [Contradicted(member, reason, proven, left_out)]

    def _names(self, members: Iterable[int]) -> str:
        return ", ".join(self._roster.name(member) for member in members)
