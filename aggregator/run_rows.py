"""The rows of a journal that grow with the run: costs of sums, evaluations, who left and who was late.

Each is written once, with a digest. They are checked where they are read, and the newest at a start.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aggregator.journal_database import JournalDatabase
from aggregator.journal_rows import damaged, sha256_of
from fedfair.aggregation.evaluator import Evaluation
from fedfair.ids import ParticipantId
from fedfair.results.costs import SumCost
from fedfair.rounds.events import Departed
from fedfair.run.history import to_line
from fedfair.statistics.table import Purpose

NEWEST_COSTS = 10_000
"""Rows of what sums cost that a start checks: a tenth of a second, whatever the run's history."""


class RunRows:
    """The rows of one journal that grow.

    Args:
        database: of the journal.

    Attributes:
        history: the evaluations that were written last by this process; None before.
    """

    def __init__(self, database: JournalDatabase) -> None:
        self._database = database
        self.history: tuple[Evaluation, ...] | None = None

    def add_costs(self, costs: Sequence[SumCost], first: int) -> None:
        """Write what sums cost, within a transaction; `first` rows are there."""
        for position, cost in enumerate(costs, first):
            taken = (float(cost.seconds), cost.contributors, cost.bytes_up, cost.bytes_down)
            row = (position, cost.purpose.value, cost.round, *taken)
            self._insert("cost", row)

    def record_history(self, history: tuple[Evaluation, ...]) -> int:
        """Write the evaluations that are not written yet, within a transaction; return how many there are."""
        known = self.history or ()
        # Evaluations are values that a run hands on as they are, so one look at the last of them is enough.
        continues = len(known) <= len(history) and (not known or history[len(known) - 1] is known[-1])
        if self.history is None or not continues:
            # A run that was restored, or a long history that was shortened.
            self._database.connection.execute("DELETE FROM evaluation")
            known = ()
        for position in range(len(known), len(history)):
            self._insert("evaluation", (position, to_line(history[position])))
        return len(history)

    def add_departure(self, departed: Departed) -> None:
        """Add who left, or does not come; afterwards a crash can no longer lose it."""
        with self._database.transaction() as connection:
            (position,) = connection.execute("SELECT count(*) FROM departure").fetchone()
            row = (position, departed.participant, departed.round, departed.reason)
            self._insert("departure", row)

    def add_lateness(self, who: ParticipantId, seconds: float, *, times: int) -> None:
        """Count a collaborator's lateness: one row for each, with the sum of `times` and the most of `seconds`.

        Args:
            who: its name.
            seconds: how long it has taken for a step of a sum.
            times: how many steps continued without it.
        """
        with self._database.transaction() as connection:
            (count,) = connection.execute("SELECT count(*) FROM late_site").fetchone()
            query = "SELECT position, times, seconds FROM late_site WHERE collaborator = ?"
            position, before, longest = connection.execute(query, (who,)).fetchone() or (count, 0, 0.0)
            row = (position, who, before + times, max(longest, float(seconds)))
            self._insert("late_site", row, verb="INSERT OR REPLACE")

    def costs(self) -> list[SumCost]:
        """Return what every sum of the recorded state cost, over all starts, in order.

        Raises:
            StateError: a row is damaged or lost.
        """
        rows = self._checked("cost", "what a sum cost", count=self._sums())
        return [SumCost(Purpose(purpose), *figures) for purpose, *figures in rows]

    def departures(self) -> list[Departed]:
        """Return who left, or did not come, over all starts, in order.

        Raises:
            StateError: a row is damaged.
        """
        rows = self._checked("departure", "who left")
        return [Departed(ParticipantId(name), number, reason) for name, number, reason in rows]

    def late_sites(self) -> list[tuple[str, int, float]]:
        """Return who was late, over all starts: its name, how often, and the most seconds that it took.

        Raises:
            StateError: a row is damaged.
        """
        return [(name, times, seconds) for name, times, seconds in self._checked("late_site", "who was late")]

    def evaluations(self, count: int) -> list[object]:
        """Return the words of every evaluation of the history, in order; raises StateError for a damaged row."""
        return [json.loads(words) for (words,) in self._checked("evaluation", "an evaluation", count=count)]

    def check(self) -> None:
        """Check the newest rows; older costs are checked when the result is made of all of them.

        Raises:
            StateError: a row is damaged or lost.
        """
        sums = self._sums()
        first = max(0, sums - NEWEST_COSTS)
        self._checked("cost", "what a sum cost", count=sums - first, first=first)
        self.departures()
        self.late_sites()

    def _sums(self) -> int:
        with self._database.reading() as connection:
            (sums,) = connection.execute("SELECT sums FROM run").fetchone()
        found: int = sums
        return found

    def _insert(self, table: str, row: tuple[object, ...], *, verb: str = "INSERT") -> None:
        places = ", ".join("?" * (len(row) + 1))
        statement = f"{verb} INTO {table} VALUES ({places})"
        self._database.connection.execute(statement, (*row, sha256_of(row)))

    def _checked(
        self, table: str, what: str, *, count: int | None = None, first: int = 0
    ) -> list[tuple[Any, ...]]:
        """Return rows without position and digest; each must be in its place, and have its digest."""
        query = f"SELECT * FROM {table} WHERE position >= {first:d} ORDER BY position"  # noqa: S608 - our own names
        path = self._database.path
        with self._database.reading() as connection:
            rows = connection.execute(query).fetchall()
            for place, (*values, digest) in enumerate(rows, first):
                if values[0] != place or sha256_of(values) != digest:
                    raise damaged(path, f"the row of {what} ({place + 1})")
        if count is not None and len(rows) != count:
            raise damaged(path, f"the table of {what}, with {len(rows)} rows in place of {count},")
        return [tuple(values[1:]) for *values, _ in rows]
