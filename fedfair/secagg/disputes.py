"""Tracks who contradicted whom over a whole run, and what follows where most members are honest.

Two honest members never contradict each other, so of two that do, at least one lies; which one, a single
contradiction does not tell. A member that is contradicted by more others than there can be liars is one itself.
Decides which members a sum omits, and who is proven to lie; what counts as a contradiction is `recovery`'s
business. Every decision is polynomial: at most n steps over at most n² pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

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
            Members in the order in which they were left out; empty where nobody is contradicted.
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
