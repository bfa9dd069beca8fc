"""The search for slices as three sums: what is asked next, and what each total makes of the search. Numpy only.

Step 1 gives the cells: of a number up to `bins` of about as many people each, of a category its values; a cell of
fewer than `evaluation.min_group` people is merged with another. Step 2 tells which tables may be asked for
(`slice_safety`), and step 3 what is in them. Each total must be of the very same people as the one before it:
it repeats the counts, and has the same members. A search that cannot go on is given up.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.slice_columns import Cut, SliceColumn
from fedfair.aggregation.slice_outcomes import check_answers
from fedfair.aggregation.slice_safety import asked_tables
from fedfair.aggregation.slice_sums import LEVELS, STEPS, SliceLayout, SliceQuestion
from fedfair.errors import LocalProtocolError, RemoteProtocolError

_LAST_SPLITS = (2, 1, 0)
"""The splits in the order in which they are wanted: people whom no training has seen come first."""


def _no_total() -> NDArray[np.float64]:
    return np.zeros(0)


@dataclass(frozen=True, slots=True)
class SliceSearch:
    """How far a search has come; no array is ever changed.

    Attributes:
        number: the step that is asked next, 1 to 3; 4 at the end.
        split: the place of the split whose people are looked at.
        cuts: the cells of each column, after step 1.
        asked: which tables are asked for, after step 2.
        members: who answered step 1; empty before it.
        header: the last total; empty before step 1.
        fault: why the search was given up; empty where it was not.
    """

    number: int = 1
    split: int = 0
    cuts: tuple[Cut, ...] = ()
    asked: tuple[bool, ...] = ()
    members: tuple[str, ...] = ()
    header: NDArray[np.float64] = field(default_factory=_no_total)
    fault: str = ""

    @classmethod
    def of(cls, records: Collection[float], fewest: int) -> SliceSearch:
        """Return a search that was not asked yet.

        Args:
            records: how many of each split the evaluation of the output model was over, by `SPLITS`.
            fewest: `evaluation.min_group`: the test records are looked at, or where they are fewer the validation
                records, or else those that were trained on.
        """
        held = tuple(records)
        return cls(split=next((at for at in _LAST_SPLITS if at < len(held) and held[at] >= fewest), 0))

    @property
    def is_over(self) -> bool:
        """Return whether nothing is asked any more."""
        return bool(self.fault) or self.number > STEPS

    @property
    def question(self) -> SliceQuestion | None:
        """Return what is to be asked; None at the end."""
        if self.is_over:
            return None
        return SliceQuestion(self.number, self.split, self.cuts, self.asked)

    def given_up(self, reason: str) -> SliceSearch:
        """Return the search that ends for a reason, and keeps no total."""
        return SliceSearch(self.number, self.split, fault=reason)

    def apply_aggregate(
        self, header: NDArray[np.float64], members: Collection[str], layout: SliceLayout, fewest: int
    ) -> SliceSearch:
        """Return the search after the total of all answers.

        Args:
            header: float64 array, as the layout says.
            members: whose answers are in it.
            layout: of the plan.
            fewest: `evaluation.min_group`.

        Raises:
            RemoteProtocolError: the total is not of the people, or the members, of the steps before; or there are
                too few people.
            LocalProtocolError: nothing is left to be asked.
        """
        if self.is_over:
            raise LocalProtocolError("a finished search accepts no further total")
        present = tuple(sorted(members))
        if self.number > 1 and present != self.members:
            raise RemoteProtocolError(
                f"step {self.number} of slices was answered by {', '.join(present)}, step 1 by "
                f"{', '.join(self.members)}",
                "slices need the same collaborators from their first step to their last",
            )
        found = layout.header.read(header)
        self._check_whole(header, layout)
        following = replace(self, number=self.number + 1, members=present, header=header)
        if self.number == 1:
            return replace(following, cuts=self._cuts(found, layout, fewest))
        tables = layout.tables_of(found["counts"])
        if self.number == 2:
            _check_cells(tables, self._expected(layout), layout)
            return replace(following, asked=_asked(tables, following.cuts, layout, fewest))
        self._check_values(found, layout)
        return following

    def _cuts(self, found: NDArray[np.void], layout: SliceLayout, fewest: int) -> tuple[Cut, ...]:
        records, columns = float(found["records"]), layout.fine_of(found["counts"])
        if records < fewest:
            raise RemoteProtocolError(
                f"slices of {records:g} records were asked for, evaluation.min_group is {fewest}",
                "slices need more records to evaluate on",
            )
        if any(fine.sum() != records for fine in columns):
            raise _impossible(1)
        return tuple(_cut(column, fine, fewest) for column, fine in zip(layout.columns, columns, strict=True))

    def _expected(self, layout: SliceLayout) -> list[NDArray[np.float64]]:
        """Return the counts of each column's cells, from the total of step 1."""
        before = layout.header.read(self.header)
        expected = []
        for column, cut, fine in zip(layout.columns, self.cuts, layout.fine_of(before["counts"]), strict=True):
            cells = column.cells_of(np.arange(column.fine), cut)
            expected.append(np.bincount(cells, weights=fine, minlength=column.most).astype(np.float64))
        return expected

    def _check_values(self, found: NDArray[np.void], layout: SliceLayout) -> None:
        """Refuse a total of step 3 that the people of step 2 do not have."""
        told = layout.tables_of(found["counts"])
        known = layout.tables_of(layout.header.read(self.header)["counts"])
        sums, squares = (layout.tables_of(found[name]) for name in ("sums", "squares"))
        for at, wanted in enumerate(self.asked):
            if not np.array_equal(told[at], known[at] if wanted else np.zeros_like(known[at])):
                raise _impossible(STEPS)
        for counts, total, square in zip(told, sums, squares, strict=False):
            # By Cauchy and Schwarz no mean is above the last level either.
            if (square > LEVELS * total).any() or (total**2 > counts * square).any() or (square < total).any():
                raise _impossible(STEPS)
        for values in (sums, squares):
            # Every table is of the same people.
            if len({float(table.sum()) for table, wanted in zip(values, self.asked, strict=False) if wanted}) > 1:
                raise _impossible(STEPS)
        check_answers(found, layout)

    def _check_whole(self, header: NDArray[np.float64], layout: SliceLayout) -> None:
        """Refuse a total that is not of counts, not of as many people, or of values before they are asked for."""
        found = layout.header.read(header)
        is_whole = (header >= 0).all() and (header == np.floor(header)).all()
        _, _, *late = (each.name for each in layout.header.fields)
        is_early = self.number < STEPS and any(found[name].any() for name in late)
        if not is_whole or is_early:
            raise _impossible(self.number)
        if self.number > 1 and found["records"] != layout.header.read(self.header)["records"]:
            raise _impossible(self.number)


def _check_cells(
    tables: list[NDArray[np.float64]], expected: list[NDArray[np.float64]], layout: SliceLayout
) -> None:
    """Refuse counts of cells that are not those of the people of step 1."""
    columns = len(layout.columns)
    fits = all(np.array_equal(table, cells) for table, cells in zip(tables[:columns], expected, strict=True))
    for table, (left, right) in zip(tables[columns:], layout.pairs, strict=True):
        fits &= np.array_equal(table.sum(axis=1), expected[left])
        fits &= np.array_equal(table.sum(axis=0), expected[right])
    if not fits:
        raise _impossible(2)


def _impossible(number: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"step {number} of slices was answered with numbers that the people of the step before do not have",
        "a site sent numbers that no honest site sends; compare the software of the sites",
    )


# ------------------------------------------------------------------ cells


def _cut(column: SliceColumn, fine: NDArray[np.float64], fewest: int) -> Cut:
    return _category_cut(fine, fewest) if column.values else _number_cut(fine, column.most, fewest)


def _number_cut(fine: NDArray[np.float64], most: int, fewest: int) -> Cut:
    """Return the first bin of each cell: about as many people in each, and never too few."""
    below, records = np.cumsum(fine), float(fine.sum())
    wanted = [int(np.searchsorted(below, records * place / most)) + 1 for place in range(1, most)]
    starts = [0, *(start for start in sorted(set(wanted)) if start < len(fine))]
    while len(starts) > 1:
        people = np.add.reduceat(fine, starts)
        least = int(np.argmin(people))
        if people[least] >= fewest:
            break
        # With the smaller neighbour: what goes is the border between them.
        before = people[least - 1] if least else np.inf
        after = people[least + 1] if least + 1 < len(people) else np.inf
        del starts[least if before <= after else least + 1]
    return tuple(starts)


def _category_cut(fine: NDArray[np.float64], fewest: int) -> Cut:
    """Return the cell of each value: those of too few people share one, with the smallest other if need be."""
    rare = fine < fewest
    kept = np.flatnonzero(~rare)
    cells = np.zeros(len(fine), np.int64)
    cells[kept] = np.arange(len(kept))
    shared = len(kept)
    if len(kept) > 0 and fine[rare].sum() < fewest:
        shared = int(np.argmin(fine[kept]))
    cells[rare] = shared
    return tuple(cells.tolist())


def _asked(
    tables: list[NDArray[np.float64]], cuts: tuple[Cut, ...], layout: SliceLayout, fewest: int
) -> tuple[bool, ...]:
    """Return which tables are asked for; raises RemoteProtocolError where none may be."""
    cells = [column.cells(cut) for column, cut in zip(layout.columns, cuts, strict=True)]
    count = len(cells)
    columns = [table[:length] for table, length in zip(tables[:count], cells, strict=True)]
    pairs = {
        pair: table[: cells[pair[0]], : cells[pair[1]]]
        for pair, table in zip(layout.pairs, tables[count:], strict=True)
    }
    kept, joined = asked_tables(columns, pairs, fewest, with_pairs=layout.with_pairs)
    if not kept:
        raise RemoteProtocolError(
            f"no column has two cells of evaluation.min_group {fewest} people that may be told",
            "slices need more records to evaluate on, or other columns",
        )
    return (*(at in kept for at in range(count)), *(pair in joined for pair in layout.pairs))
