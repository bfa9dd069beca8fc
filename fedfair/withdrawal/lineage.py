"""In which runs the records of a person counted, and which runs follow from these.

A site notes, for itself alone, at the first sum of each run and of each start: the run, its plan, from which round
on, the persons of each split, and those of its own earlier runs whose model this one begins with. A run follows
from another where a chain of beginnings leads to it: whoever counted in the first then counts in its model too.

A table of rows by key (`answered_facts.FactTable`) holds it. The names of persons (`owners.Names`), sorted, are
rows of their own that are found by their digest, so that a hundred runs over the same records keep them once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import TypeAdapter, ValidationError

from fedfair.errors import StateError
from fedfair.policy.answered_facts import FactTable, Rows, key
from fedfair.withdrawal.owners import NOBODY, Names

_RUNS = key("runs in which persons counted")


@dataclass(frozen=True, slots=True)
class CountedRun:
    """One start of one run at this site.

    Attributes:
        run: the run's id.
        plan: "sha256:" and 64 hex digits.
        federation: of the plan.
        round: training rounds that were done before these records counted, from 0.
        at: when, ISO 8601 in UTC.
        is_noised: whether the plan's noise covers every record, or the whole site.
        is_evaluation: whether the run evaluates a saved model and nothing else.
        follows: ids of this site's own runs whose model it begins with.
        withdrawn: how many had withdrawn at this site, and the chain value of the last entry in hex.
        persons: by split, the digest of the names of those whose records counted, in hex.
    """

    run: str
    plan: str
    federation: str
    round: int
    at: str
    is_noised: bool = False
    is_evaluation: bool = False
    follows: tuple[str, ...] = ()
    withdrawn: tuple[int, str] = (0, "")
    persons: Mapping[str, str] = field(default_factory=dict)


_RUN_LIST = TypeAdapter(tuple[CountedRun, ...])


class CountedRuns:
    """The runs in one table.

    Args:
        table: read and never written here.

    Raises:
        StateError: what stands there is no list of runs.
    """

    def __init__(self, table: FactTable) -> None:
        self._table = table
        try:
            self.runs = _RUN_LIST.validate_json(table.get(_RUNS) or b"[]")
        except ValidationError as error:
            raise StateError("the list of runs in which persons counted cannot be read") from error

    def noted(self, run: CountedRun, names: Mapping[str, Names]) -> Rows:
        """Return the rows of a start; none where the last start of the same run had the same persons.

        Args:
            run: the start, its `persons` not yet filled in.
            names: of the persons of each split; of records, in any order.
        """
        parts = {split: _packed(found) for split, found in names.items()}
        digests = {split: hashlib.sha256(raw).hexdigest() for split, raw in parts.items()}
        before = next((one for one in reversed(self.runs) if one.run == run.run), None)
        if before is not None and before.persons == digests:
            return ()
        rows: Rows = ((_RUNS, _RUN_LIST.dump_json((*self.runs, replace(run, persons=digests)))),)
        for split, raw in parts.items():
            place = _place(digests[split])
            if self._table.get(place) is None and (place, raw) not in rows:
                rows = (*rows, (place, raw))
        return rows

    def names(self, digest: str) -> frozenset[int]:
        """Return the names of persons by their digest.

        Raises:
            StateError: they are gone.
        """
        raw = self._table.get(_place(digest))
        if raw is None:
            raise StateError(f"the persons {digest} of a run are gone")
        return frozenset(np.frombuffer(raw, "<i8").tolist())

    def splits(self, run: CountedRun, name: int) -> tuple[str, ...]:
        """Return the splits of a start that have a record of a person."""
        return tuple(split for split, digest in run.persons.items() if name in self.names(digest))

    def among(self, run: CountedRun, withdrawn: frozenset[int]) -> frozenset[int]:
        """Return those of some persons who counted in a start."""
        return withdrawn & frozenset().union(*map(self.names, run.persons.values()))


def following(runs: Sequence[CountedRun], of: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the runs that follow from some, each with those of its beginnings that lead to them.

    Args:
        runs: all starts, the oldest first.
        of: ids of runs.

    Returns:
        By the id of a run that is not among `of`, in the order of the starts; a chain of any length counts.
    """
    begins: dict[str, tuple[str, ...]] = {}
    for one in runs:
        begins[one.run] = tuple(dict.fromkeys((*begins.get(one.run, ()), *one.follows)))
    counted = set(of)
    while fresh := {
        run for run, origins in begins.items() if run not in counted and counted.intersection(origins)
    }:
        counted |= fresh
    return {
        run: tuple(each for each in origins if each in counted)
        for run, origins in begins.items()
        if run in counted and run not in of
    }


def least_difference(runs: CountedRuns, withdrawn: frozenset[int]) -> int:
    """Return the fewest persons by whom a sum from now on can differ from an earlier one; 0 where by none.

    Only earlier sums without noise count. Every earlier set of persons is looked at: two of them may differ by
    many from now on, and a third, in between, by one.

    Args:
        runs: the starts of this site.
        withdrawn: who has withdrawn up to now.
    """
    found = {tuple(sorted(one.persons.items())): one for one in runs.runs if not one.is_noised}
    return min(filter(None, (len(runs.among(one, withdrawn)) for one in found.values())), default=0)


def round_of_ceasing(runs: Sequence[CountedRun], place: int) -> int | None:
    """Return before which round the persons of a start ceased to count, by a later start of the same run."""
    later = (one.round for one in runs[place + 1 :] if one.run == runs[place].run)
    return next(later, None)


def _packed(names: Names) -> bytes:
    found = np.unique(names)
    return np.ascontiguousarray(found[found != NOBODY], "<i8").tobytes()


def _place(digest: str) -> bytes:
    return key("persons", digest)
