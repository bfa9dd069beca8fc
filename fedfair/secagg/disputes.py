"""Tracks who contradicted whom over a whole run, and what follows where most members are honest.

Two honest members never contradict each other, so of two that do, at least one lies; which one, a single
contradiction does not tell. A member that is contradicted by more others than there can be liars is one itself.
Decides which members a sum omits, who is proven to lie, and how the driver is notified; what counts as a
contradiction is `recovery`'s business. Every decision is polynomial: at most n steps over at most n² pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from fedfair.secagg.effects import Contradicted, ServerEffect
from fedfair.secagg.signing import Roster

Pair = tuple[int, int]


class Disputes:
    """The contradictions of one run.

    Args:
        members: how many members the roster has; more than half of them are taken to be honest.
    """

    def __init__(self, members: int) -> None:
        self._most_liars = (members - 1) // 2
        self._against: defaultdict[int, set[int]] = defaultdict(set)
        self._left_out: Counter[int] = Counter()
        self._convicted: set[int] = set()

    def convict(self, member: int) -> None:
        """Note that a member is proven to lie by what it has signed itself."""
        self._convicted.add(member)

    def add(self, pairs: Iterable[Pair]) -> None:
        """Note that the two members of each pair contradict each other."""
        for one, other in pairs:
            self._against[one].add(other)
            self._against[other].add(one)

    def contradicting(self, member: int) -> tuple[int, ...]:
        """Return who has ever contradicted `member`, increasing."""
        return tuple(sorted(self._against.get(member, ())))

    @property
    def liars(self) -> frozenset[int]:
        """Return who is proven to lie: an honest member is contradicted by liars only, and they are a minority.

        Each proven liar leaves fewer that can still contradict an honest member. Where the proofs name more
        members than a minority, most are not honest, and only what members have signed themselves proves anything.
        """
        proven = set(self._convicted)
        while True:
            unknown = self._most_liars - len(proven)
            found = {
                member
                for member, others in self._against.items()
                if member not in proven and len(others - proven) > unknown
            }
            if not found:
                return frozenset(proven)
            proven |= found
            if len(proven) > self._most_liars:
                return frozenset(self._convicted)

    def settle(self, members: Sequence[int], pairs: Collection[Pair]) -> tuple[int, ...]:
        """Return the members to exclude from a sum, so that no two of the others contradict each other.

        The member that is contradicted most goes first: a single liar that contradicts two or more never takes an
        honest member's place. Of two that contradict only each other, nobody can say who lies, and they are left
        out in turn.

        Args:
            members: who has contributed, in the order of arrival.
            pairs: who of them contradict each other in this sum; noted with `add` before.

        Returns:
            Members in the order in which they were left out; empty where no member is contradicted.
        """
        arrival = {member: at for at, member in enumerate(members)}
        liars, open_pairs, without = self.liars, set(pairs), []
        while open_pairs:
            degree = Counter(member for pair in open_pairs for member in pair)
            worst = max(
                degree,
                key=lambda member: (
                    member in liars,
                    degree[member],
                    len(self._against[member]),
                    -self._left_out[member],
                    arrival[member],
                ),
            )
            without.append(worst)
            open_pairs = {pair for pair in open_pairs if worst not in pair}
        self._left_out.update(without)
        return tuple(without)


class Blame:
    """Tells the driver of contradictions.

    Args:
        roster: for names.
        disputes: the contradictions of the run; noted there first.
    """

    def __init__(self, roster: Roster, disputes: Disputes) -> None:
        self._roster = roster
        self._disputes = disputes
        self._reported: set[int] = set()  # the proven liars that the driver knows

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
            if owner in self._disputes.liars - self._reported:
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
        if holder in self._disputes.liars - self._reported:
            accused = self._names(self._disputes.contradicting(holder))
            effects += self.exposed(holder, f"{self._roster.name(holder)} contradicts {accused}", left_out=False)
        return effects

    def exposed(self, member: int, reason: str, *, left_out: bool) -> list[ServerEffect]:
        """Return what to tell of one member."""
        proven = member in self._disputes.liars
        if proven:
            self._reported.add(member)
        return [Contradicted(member, reason, proven, left_out)]

    def _names(self, members: Iterable[int]) -> str:
        return ", ".join(self._roster.name(member) for member in members)
