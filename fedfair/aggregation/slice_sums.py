"""The sums of slices: which numbers a site adds in each of three steps, in one header as long in every step.

    step 1    how many records have each fine place of each column
    step 2    how many are in each cell of each column, and of each two columns
    step 3    of the cells that are asked for: how many, the sum of their measures, and the sum of the squares;
              where the plan counts outcomes, what `slice_outcomes` says

The measure is the excess of a plan with `measure: excess`, otherwise the loss. It counts as one of `LEVELS` + 1
whole numbers up to `greatest_measure`, and is rounded up with the chance of what would be cut off: so
means are unbiased, and a lone record's number tells few bits. The draw is a function of the plan's seed, the site
and the place in its file, so that no repetition averages it out. It is no secret, but nobody else knows whose
place it is. Numpy only.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Bits, Everything, Field, Header, Number, one_of
from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.slice_columns import Cut, SliceColumn, slice_columns
from fedfair.errors import LocalProtocolError, PlanError, RemoteProtocolError
from fedfair.plan.derived import (
    counts_outcomes,
    measures_excess,
    planned_loss_range,
    predicts_classes,
    slices_of,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.fields import MAX_PLANNED_NUMBERS
from fedfair.plan.schema import Plan
from fedfair.plan.slice_terms import too_many_cells

LEVELS = 64
"""The greatest measure that counts is so many steps; a lone record's number is one of 65."""

STEPS = 3

_COUNTED = Everything(
    "the counts tell in which cells of its columns a lone record is: policy.reveals must name slice-sums, "
    "policy.min_collaborators"
)


_YES_OR_NO = Bits(1.0, each=True)


@dataclass(frozen=True)
class SliceLayout:
    """The columns of a plan's slices, and where their numbers are.

    Attributes:
        columns: the columns.
        with_pairs: whether values are asked for of the cells of two columns.
        decides: whether outcomes and the decisions of a model of two classes are counted.
        checks: whether what the references said is summed, beside how often it came true.
    """

    columns: tuple[SliceColumn, ...]
    with_pairs: bool
    decides: bool = False
    checks: bool = False

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Return every two columns by their places, in order."""
        return tuple(itertools.combinations(range(len(self.columns)), 2))

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the most cells of each table: those of the columns, then those of every two of them."""
        most = [column.most for column in self.columns]
        return (*((cells,) for cells in most), *((most[left], most[right]) for left, right in self.pairs))

    @cached_property
    def header(self) -> Header:
        """Return the fields of a contribution."""
        cells = [int(np.prod(shape)) for shape in self.shapes]
        singles = sum(cells[: len(self.columns)])
        fine = sum(column.fine for column in self.columns)
        counted, summed = max(fine, sum(cells)), sum(cells) if self.with_pairs else singles
        return Header(
            Field("records", Number.COUNT, lone=Bits(0)),
            Field("counts", Number.COUNT, (counted,), lone=_COUNTED),
            Field("sums", Number.COUNT, (summed,), lone=one_of_levels()),
            Field("squares", Number.COUNT, (summed,), lone=one_of_levels()),
            Field("outcomes", Number.COUNT, (summed * (self.decides or self.checks),), lone=_YES_OR_NO),
            Field("flagged", Number.COUNT, (summed * self.decides,), lone=_YES_OR_NO),
            Field("found", Number.COUNT, (summed * self.decides,), lone=_YES_OR_NO),
            Field("chances", Number.COUNT, (summed * self.checks,), lone=one_of_levels()),
        )

    def fine_of(self, counts: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return the counts of step 1 by column, from the field; raises RemoteProtocolError for more of them."""
        ends = np.cumsum([column.fine for column in self.columns])
        *found, rest = np.split(counts, ends)
        _check_unasked(rest)
        return found

    def tables_of(self, values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return views of the tables in a field of step 2 or 3; raises RemoteProtocolError for more of them."""
        tables, start = [], 0
        for shape in self.shapes:
            length = int(np.prod(shape))
            if start + length > len(values):
                break
            tables.append(values[start : start + length].reshape(shape))
            start += length
        _check_unasked(values[start:])
        return tables


def one_of_levels() -> Bits:
    """Return what a sum over one record tells: every one of its cells tells the same number."""
    return Bits(one_of(LEVELS + 1).most, each=True)


def _check_unasked(rest: NDArray[np.float64]) -> None:
    if rest.any():
        raise RemoteProtocolError("slices were answered with numbers that were not asked for")


def slice_layout(plan: Plan, schema: FeatureSchema) -> SliceLayout:
    """Return the layout of a plan's slices.

    Raises:
        PlanError: it names a column that there is not, or they have too many cells for a masked sum; or it counts
            outcomes of more than two classes.
    """
    told = counts_outcomes(plan) and predicts_classes(plan)
    decides, checks = told and schema.classes == 2, told and measures_excess(plan)
    if told and not (decides or checks):
        raise PlanError(
            f"evaluation.slices.outcomes is true, and of {schema.classes} classes no one is the outcome",
            "set outcomes: false, or objective.measure: excess, whose references are checked with any classes",
        )
    layout = SliceLayout(slice_columns(plan, schema), slices_of(plan).pairs, decides, checks)
    if layout.header.length > MAX_PLANNED_NUMBERS:
        fault = too_many_cells(layout.header.length)
        raise PlanError(f"evaluation.slices: {fault.message}", fault.remedy)
    return layout


@dataclass(frozen=True, slots=True)
class SliceQuestion:
    """The request of one step, the same for all sites.

    Attributes:
        number: 1 to 3.
        split: the place of the split among `loss_histogram.SPLITS`.
        cuts: the cells of each column; none in step 1.
        asked: which tables are asked for, as `SliceLayout.shapes`; none before step 3.
    """

    number: int
    split: int
    cuts: tuple[Cut, ...] = ()
    asked: tuple[bool, ...] = ()

    @property
    def step(self) -> QueryStep:
        """Return the request as a step of a query."""
        cuts = itertools.chain.from_iterable((len(cut), *cut) for cut in self.cuts)
        return QueryStep(self.number, (self.split, *cuts, *map(int, self.asked)))

    @classmethod
    def of(cls, step: QueryStep, layout: SliceLayout) -> SliceQuestion:
        """Return what a step of a query asks.

        Raises:
            RemoteProtocolError: it is no step of such slices.
        """
        left, cuts = list(step.prefixes), list[Cut]()
        split = left.pop(0) if left else -1
        for _ in layout.columns if step.number > 1 else ():
            length = left.pop(0) if left else 0
            cuts.append(tuple(left[:length]))
            del left[:length]
        question = cls(step.number, split, tuple(cuts), tuple(map(bool, left)))
        if question.step != step or not question.may_be(layout):
            raise RemoteProtocolError(
                f"step {step.number} of slices asks for cells that this plan does not have",
                "compare the plan digests and the versions of fedfair on both sides",
            )
        return question

    def may_be(self, layout: SliceLayout) -> bool:
        """Return whether it is a question about such slices."""
        columns = layout.columns
        cut = len(columns) if self.number > 1 else 0
        tables = len(layout.shapes) if self.number == STEPS else 0
        known = (1 <= self.number <= STEPS, 0 <= self.split < STEPS)
        return (
            all((*known, len(self.cuts) == cut, len(self.asked) == tables))
            and all(column.may_be(cells) for column, cells in zip(columns, self.cuts, strict=bool(cut)))
            and (layout.with_pairs or not any(self.asked[len(columns) :]))
        )


def greatest_measure(plan: Plan, classes: int) -> float:
    """Return what the last level of a measure stands for: the end of the loss histogram, or a quarter of it.

    An excess is far below a loss: it is that of people for whom the loss cannot be foretold, less just that.
    """
    end = planned_loss_range(plan, classes)
    return end / 4.0 if measures_excess(plan) else end


def levels_of(measures: NDArray[np.floating], greatest: float, draws: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return measures as whole numbers from 0 to `LEVELS`: int64 array (n,).

    Args:
        measures: array (n,), without NaN.
        greatest: what the last level stands for, above 0; no measure counts for more, and none for less than 0.
        draws: array (n,), uniform in [0, 1): a measure is rounded up where the draw is below what is cut off.
    """
    steps = np.clip(np.asarray(measures, np.float64) / greatest, 0.0, 1.0) * LEVELS
    whole = np.floor(steps)
    return (whole + (draws < steps - whole)).astype(np.int64)


def slice_header(
    question: SliceQuestion,
    places: NDArray[np.int64],
    levels: NDArray[np.int64] | None,
    layout: SliceLayout,
    answers: Mapping[str, NDArray[np.int64]] = MappingProxyType({}),
) -> NDArray[np.float64]:
    """Return one site's answer.

    Args:
        question: what is asked.
        places: fine places of its records, int64 array (n, columns).
        levels: from `levels_of`; None before step 3.
        layout: of the plan.
        answers: what else step 3 sums of each record, arrays (n,) by field: `slice_outcomes.counted_answers`.
    """
    header = layout.header.zeros()
    found = layout.header.read(header)
    found["records"] = len(places)
    if question.number == 1:
        fine = [np.bincount(places[:, at], minlength=column.fine) for at, column in enumerate(layout.columns)]
        counts = np.concatenate(fine)
        found["counts"][: len(counts)] = counts
        return header
    cells = [column.cells_of(places[:, at], question.cuts[at]) for at, column in enumerate(layout.columns)]
    indices = [(each,) for each in cells] + [(cells[left], cells[right]) for left, right in layout.pairs]
    asked = question.asked or (True,) * len(indices)
    _add(found["counts"], np.ones(len(places)), indices, asked, layout)
    if question.number == STEPS:
        if levels is None:
            raise LocalProtocolError("the values of slices are asked for, and there are no measures")
        for name, values in {"sums": levels, "squares": levels * levels, **answers}.items():
            _add(found[name], values, indices, asked, layout)
    return header


def _add(
    field: NDArray[np.float64],
    values: NDArray[np.generic],
    indices: Sequence[tuple[NDArray[np.int64], ...]],
    asked: Sequence[bool],
    layout: SliceLayout,
) -> None:
    """Add the values of records to the tables that are asked for."""
    for table, index, wanted in zip(layout.tables_of(field), indices, asked, strict=False):
        if wanted:
            np.add.at(table, index, values)
