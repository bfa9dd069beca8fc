"""Totals a ledger, data set by data set: what was released, and the one sentence that may be said of it.

Decides which entries are about the same people, and adds them up; the sentence, and when it is refused, is
`statement.py`'s. No file, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fedfair.errors import PrivacyError
from fedfair.privacy.accounting import accountant, epsilon
from fedfair.privacy.budget import Budget, in_words
from fedfair.privacy.entries import LedgerEntry, Origin, Written
from fedfair.privacy.releases import RecordRelease, Unprotected
from fedfair.privacy.statement import SampleLevelFacts, sample_level_sentence


@dataclass(frozen=True, slots=True)
class RepeatedRelease:
    """Releases of one plan that differ only in when they were made.

    Attributes:
        origin: who released them, of whom.
        release: what was released, all of them counted together.
        entries: how many entries of the ledger they are.
        first: when the first was written down, in UTC.
        last: when the last was.
    """

    origin: Origin
    release: Written
    entries: int
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Spending:
    """The releases of one data set.

    Attributes:
        data_set: its name; None for records without a name, with which everything adds up.
        lines: what was released, in order.
        spent: epsilon at the delta of `statement`; None where none can be stated.
        statement: what may be said; empty where nothing may.
        refusal: why not; empty where something may be said.
        left: how much of the budget is left; None where there is no budget, or nothing can be stated.
    """

    data_set: str | None
    lines: tuple[RepeatedRelease, ...]
    spent: float | None
    statement: str
    refusal: str
    left: float | None


def data_sets(entries: Iterable[LedgerEntry]) -> tuple[str | None, ...]:
    """Return the data sets of a ledger: every name, and None where a release has none or there is no release."""
    found = dict.fromkeys(entry.origin.data_set for entry in entries)
    names = sorted(name for name in found if name is not None)
    return (*names, None) if None in found or not names else tuple(names)


def spending(
    entries: Sequence[LedgerEntry], data_set: str | None, delta: float, budget: Budget | None
) -> Spending:
    """Return the releases of one data set and their total cost.

    Args:
        entries: the whole ledger.
        data_set: which one.
        delta: at which epsilon is stated, in (0, 1).
        budget: what the site allows; None where it has none.
    """
    own = Origin("", "", "", data_set)
    concerned = [entry for entry in entries if own.may_share_records(entry.origin)]
    lines = tuple(_lines(concerned))
    releases = [entry.release for entry in concerned if isinstance(entry.release, RecordRelease)]
    outside = next((entry for entry in concerned if not isinstance(entry.release, RecordRelease)), None)
    if outside is not None:
        refusal = _refused(_facts(concerned, data_set, releases, 0.0, delta, complete=False))
        return Spending(data_set, lines, None, "", f"{refusal}: {in_words(outside)}", None)
    spent = epsilon(releases, delta)
    facts = _facts(concerned, data_set, releases, spent, delta, complete=True)
    refusal = _refused(facts)
    left = None if budget is None else max(0.0, budget.epsilon - epsilon(releases, budget.delta))
    if refusal:
        return Spending(data_set, lines, None, "", refusal, left)
    return Spending(data_set, lines, spent, sample_level_sentence(facts), "", left)


def _facts(
    concerned: Sequence[LedgerEntry],
    data_set: str | None,
    releases: Sequence[RecordRelease],
    spent: float,
    delta: float,
    *,
    complete: bool,
) -> SampleLevelFacts:
    names = list(dict.fromkeys(entry.origin.participant for entry in concerned))
    whose = f"collaborator{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else "this site"
    holder = whose if data_set is None else f"{whose} in data set '{data_set}'"
    return SampleLevelFacts(holder, tuple(releases), spent, delta, accountant(releases), complete=complete)


def _refused(facts: SampleLevelFacts) -> str:
    try:
        sample_level_sentence(facts)
    except PrivacyError as fault:
        return fault.message
    return ""


def _lines(entries: Iterable[LedgerEntry]) -> Iterator[RepeatedRelease]:
    found: dict[tuple[Origin, Written], list[LedgerEntry]] = {}
    for entry in entries:
        found.setdefault((entry.origin, _counted(entry.release, 1)), []).append(entry)
    for (origin, kind), alike in found.items():
        total = sum(_count(entry.release) for entry in alike)
        yield RepeatedRelease(origin, _counted(kind, total), len(alike), alike[0].at, alike[-1].at)


def _count(release: Written) -> int:
    """Return how many steps or sums a release is of."""
    if isinstance(release, Unprotected):
        return 1
    return release.steps if isinstance(release, RecordRelease) else release.count


def _counted(release: Written, count: int) -> Written:
    """Return the same release of so many steps or sums."""
    if isinstance(release, Unprotected):
        return release
    return replace(release, steps=count) if isinstance(release, RecordRelease) else replace(release, count=count)
