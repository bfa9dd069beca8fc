"""Checks, before every release, that a site's spending stays within an (epsilon, delta).

Decides yes or no. Composing takes tenths of a second, too long for every local round, and adding releases never
lowers epsilon. So a limit keeps a collection of releases that it has found to be affordable, and whatever is
contained in that is affordable too. It looks ahead as far again as has been spent since it began: a run of any
length is composed a few times only, and one by one near the end of the budget. No clock, no file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fedfair.errors import PrivacyError
from fedfair.privacy.accounting import epsilon, is_within
from fedfair.privacy.entries import LedgerEntry, Origin, Written
from fedfair.privacy.releases import RecordRelease, SkellamRelease, combined


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that releases may cost together.

    Attributes:
        epsilon: above 0.
        delta: in (0, 1).
    """

    epsilon: float
    delta: float = 1e-5

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g} at delta {self.delta:g}"


class Limit:
    """One budget over those entries of a ledger that concern it.

    Args:
        name: what limits, in words, such as "the budget of this site".
        budget: how much.
        concerns: from an entry's origin to whether it counts here.
        remedy: what the site can do where it is used up.
    """

    def __init__(self, name: str, budget: Budget, concerns: Callable[[Origin], bool], remedy: str) -> None:
        self._name = name
        self.budget = budget
        self._concerns = concerns
        self._remedy = remedy
        self._spent: Counter[RecordRelease] = Counter()
        self._found: Counter[RecordRelease] | None = None
        self._affordable: Counter[RecordRelease] = Counter()
        self._outside: LedgerEntry | None = None

    @property
    def spent(self) -> tuple[RecordRelease, ...]:
        """Return what was counted so far."""
        return _releases(self._spent)

    def count(self, entry: LedgerEntry) -> None:
        """Take note of what a ledger holds."""
        if not self._concerns(entry.origin):
            return
        if isinstance(entry.release, RecordRelease):
            self._spent += _counted((entry.release,))
        else:
            self._outside = self._outside or entry

    def affords(self, releases: Sequence[RecordRelease]) -> bool:
        """Return whether these may follow what was counted, composed again."""
        return self._outside is None and self._is_within(self._spent + _counted(releases))

    def allows(self, release: RecordRelease) -> bool:
        """Return whether one release more may follow what was counted; quick when asked again and again."""
        if self._outside is not None:
            return False
        together = self._spent + _counted((release,))
        if together <= self._affordable:
            return True
        self._found = self._spent.copy() if self._found is None else self._found
        for reach in (together + (together - self._found), together):
            if self._is_within(reach):
                self._affordable = reach
                return True
        return False

    def _is_within(self, counted: Counter[RecordRelease]) -> bool:
        return is_within(_releases(counted), self.budget.epsilon, self.budget.delta)

    def check(self, release: Written) -> None:
        """Refuse one release more that cannot be afforded.

        Raises:
            PrivacyError: it would go beyond the budget, or carries no noise; the message says how much is spent.
        """
        if not isinstance(release, RecordRelease):
            raise PrivacyError(
                f"{self._name} is {self.budget}, and {release.purpose} sums of this plan carry no noise for "
                "single records",
                "take part in plans with privacy.sample_level, or remove that term from collaborator.yaml",
            )
        if not self.allows(release):
            fault = f"{self._name} allows no further {release.purpose} release: {self.words((release,))}"
            raise PrivacyError(fault, self._remedy)

    def words(self, further: Sequence[RecordRelease] = ()) -> str:
        """Return how much is spent, and how much it would be with further releases."""
        if self._outside is not None:
            return f"it is {self.budget}, and no epsilon covers {in_words(self._outside)}"
        spent = self.cost()
        left = max(0.0, self.budget.epsilon - spent)
        told = f"{spent:.4g} of {self.budget} is spent, {left:.4g} is left"
        return f"{told}, with this it would be {self.cost(further):.4g}" if further else told

    def cost(self, further: Sequence[RecordRelease] = ()) -> float:
        """Return epsilon of what was counted and of further releases, at the delta of the budget."""
        return epsilon((*self.spent, *further), self.budget.delta)


def in_words(entry: LedgerEntry) -> str:
    """Return what an entry says that adds no noise for single records."""
    noise = (
        "under noise for whole collaborators only"
        if isinstance(entry.release, SkellamRelease)
        else "without noise"
    )
    where = f"under plan {entry.origin.plan_digest[:19]} of '{entry.origin.federation}'"
    return f"the {entry.release.purpose} sums {noise}, on {entry.at[:10]}, {where}"


def largest(holds: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` for which something holds that holds for all smaller ones too.

    Args:
        holds: from a whole number, 0 to `most`, to whether it does.
        most: asked first, because a plan is mostly afforded whole.

    Returns:
        From -1, where it does not even hold for 0, to `most`.
    """
    if holds(most):
        return most
    return bisect_left(range(most), True, key=lambda number: not holds(number)) - 1


def remaining(planned: Sequence[RecordRelease], released: Sequence[RecordRelease]) -> tuple[RecordRelease, ...]:
    """Return what of the planned releases has not been made yet."""
    return _releases(_counted(planned) - _counted(released))


def _counted(releases: Sequence[RecordRelease]) -> Counter[RecordRelease]:
    return Counter({replace(release, steps=1): release.steps for release in combined(releases)})


def _releases(counted: Counter[RecordRelease]) -> tuple[RecordRelease, ...]:
    return tuple(replace(kind, steps=count) for kind, count in counted.items() if count)
