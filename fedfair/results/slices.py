"""The slices of people whom a model serves worst, in a result and in words: three at a terminal, all on a page.

A slice has enough people to be told of, because no other has been asked for. Part of the model in `document.py`;
what the figures mean is `aggregation.slice_findings`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from fedfair.aggregation.slice_findings import SliceCell, SliceCheck, SliceFindings
from fedfair.aggregation.slice_outcomes import DecidedSlice
from fedfair.plan.csv_table import MISSING, OTHER
from fedfair.results.frozen import FrozenPart, given
from fedfair.results.loss_text import loss_text

TOLD = 3
"""So many slices are named at a terminal."""


class SliceCellFields(FrozenPart):
    """A cell of one column: of a number an interval of it, of a category some of its values."""

    column: str
    """the column"""

    at_least: float | None = None
    """the least number in the cell; omitted for the lowest cell, and for a category"""

    below: float | None = None
    """the number that the cell ends before; omitted for the highest cell, and for a category"""

    values: tuple[str, ...] | None = None
    """of a category; other is any other value; omitted for a number"""


class ToldSlice(FrozenPart):
    """The people of a cell, or of two cells at once."""

    cells: tuple[SliceCellFields, ...]
    """one or two"""

    n: int
    """how many people"""

    mean: float
    """of their measures"""

    interval: tuple[float, float]
    """that holds the true mean, with about 95 % for all slices together"""


class SliceDecisions(FrozenPart):
    """How a model of two classes decides about the people of the first slice, at a score of one half."""

    confusion: tuple[tuple[int, int], tuple[int, int]]
    """a row for each class, and a column for what it was taken for"""

    sensitivity: tuple[float, float]
    """that holds the true share of class 1 that is found, with 95 % for all shares of all slices together"""

    specificity: tuple[float, float]
    """likewise of the others, who are not alarmed"""

    precision: tuple[float, float] | None = None
    """likewise of the alarms that are right; omitted where there are none"""


class CheckedSlices(FrozenPart):
    """What the references said of the people of slices: of class 1, or of the likeliest of more classes."""

    within: float
    """about no slice the mean chance is further from the true share than this, with 95 % for all together"""

    cells: tuple[SliceCellFields, ...] | None = None
    """of the slice about which they are furthest off, those surely off before all others; omitted, as what
    follows, where no slice has enough people with the outcome and without it"""

    n: int | None = None
    """how many people"""

    said: float | None = None
    """the mean of the chances"""

    found: float | None = None
    """of which share of them it came true"""

    interval: tuple[float, float] | None = None
    """that holds the true share less the mean of the chances"""


class SliceFigures(FrozenPart):
    """The slices whose mean measure lies highest, by the lower ends of their intervals."""

    measure: Literal["loss", "excess"]
    """what is measured of each person"""

    split: str
    """whose records: test, or validation, or train where there are no others"""

    n: int
    """how many records there are"""

    mean: float
    """of the measures of all of them"""

    counted_up_to: float
    """no measure counts for more"""

    looked_at: int
    """how many slices there were"""

    slices: tuple[ToldSlice, ...]
    """the highest first, ten at most"""

    columns: tuple[str, ...]
    """the columns that were looked at"""

    untold: tuple[str, ...]
    """columns of which nothing could be asked without telling of too few people"""

    decisions: SliceDecisions | None = None
    """about the first slice; omitted where it is not surely above everybody, tells of too few people, or where the
    plan does not count outcomes of two classes"""

    references: CheckedSlices | None = None
    """how right they are about slices; omitted where the plan does not sum it"""

    given_up: str | None = None
    """why there are none; omitted where there are"""


def slice_figures(
    found: SliceFindings | None, fault: str, measure: Literal["loss", "excess"]
) -> SliceFigures | None:
    """Return what a result tells of slices; None where a run has looked for none, or has not come to it.

    Args:
        found: the findings; None without any.
        fault: why the search was given up; empty where it was not.
        measure: what is measured.
    """
    if found is None:
        nothing = {
            "split": "",
            "n": 0,
            "mean": 0.0,
            "counted_up_to": 0.0,
            "looked_at": 0,
            "slices": (),
            "columns": (),
            "untold": (),
        }
        return SliceFigures.model_validate({"measure": measure, **nothing, "given_up": fault}) if fault else None
    return SliceFigures(
        measure=measure,
        split=found.split,
        n=found.records,
        mean=found.mean,
        counted_up_to=found.greatest,
        looked_at=found.looked_at,
        slices=tuple(
            ToldSlice(cells=tuple(map(cell_fields, one.cells)), n=one.count, mean=one.mean, interval=one.interval)
            for one in found.slices
        ),
        columns=found.columns,
        untold=found.untold,
        **given(decisions=_decisions(found.decided), references=_checked(found.checked)),
    )


def _decisions(found: DecidedSlice | None) -> SliceDecisions | None:
    return None if found is None else SliceDecisions.model_validate(given(**asdict(found)))


def _checked(found: SliceCheck | None) -> CheckedSlices | None:
    if found is None or found.furthest is None:
        return None if found is None else CheckedSlices(within=found.within)
    one = found.furthest
    return CheckedSlices(
        within=found.within,
        cells=tuple(map(cell_fields, found.cells)),
        n=one.count,
        said=one.said,
        found=one.found,
        interval=one.interval,
    )


def cell_fields(cell: SliceCell) -> SliceCellFields:
    """Return a cell as a result has it."""
    values = cell.values or None
    return SliceCellFields(column=cell.column, **given(at_least=cell.lowest, below=cell.below, values=values))


# ------------------------------------------------------------------ words


@dataclass(frozen=True, slots=True)
class CellPhrases:
    """The words for a cell in one language.

    Attributes:
        below: of the lowest cell of a number, with column and high to be filled in.
        onwards: of the highest, with column and low.
        between: of any other.
        any: of the only one.
        either: between two values.
        point: of a decimal fraction.
        other: any value that the plan does not name, where it is alone, and among others.
        missing: no value at all.
    """

    below: str
    onwards: str
    between: str
    any: str
    either: str
    point: str
    other: tuple[str, str]
    missing: str


ENGLISH = CellPhrases(
    "{column} below {high}", "{column} from {low} on", "{column} {low} to {high}", "{column} of any value",
    " or ", ".", ("any other value", "a rare value"), "no value",
)  # fmt: skip


def slice_words(cells: Sequence[SliceCellFields], phrases: CellPhrases = ENGLISH) -> str:
    """Return who is in a slice, such as "sex f, age 61 to 77"."""
    return ", ".join(_cell_words(cell, phrases) for cell in cells)


def _cell_words(cell: SliceCellFields, phrases: CellPhrases) -> str:
    if cell.values is not None:
        other = phrases.other[len(cell.values) > 1]
        words: Mapping[str, str] = {OTHER: other, MISSING: phrases.missing}
        return f"{cell.column} {phrases.either.join(words.get(value, value) for value in cell.values)}"
    if cell.at_least is None:
        said = phrases.any if cell.below is None else phrases.below
    else:
        said = phrases.onwards if cell.below is None else phrases.between
    low, high = (f"{end or 0.0:.4g}".replace(".", phrases.point) for end in (cell.at_least, cell.below))
    return said.format(column=cell.column, low=low, high=high)


def is_higher(one: ToldSlice, fields: SliceFigures) -> bool:
    """Return whether a slice lies above everybody beyond doubt: its whole interval does."""
    return one.interval[0] > fields.mean


def slice_sentences(fields: SliceFigures | None) -> Iterator[str]:
    """Yield what a terminal says about slices; nothing where none were looked for."""
    if fields is None:
        return
    if fields.given_up is not None:
        yield f"No slices are told of: {fields.given_up}."
        return
    higher = [one for one in fields.slices if is_higher(one, fields)]
    if higher:
        told = "; ".join(f"{slice_words(one.cells)}: {figures_of(one, fields)}" for one in higher[:TOLD])
        yield f"Of {fields.looked_at} slices these are served worst: {told}. Everybody: {loss_text(fields.mean)}."
    else:
        yield (
            f"Of {fields.looked_at} slices none has a mean {fields.measure} above that of everybody, "
            f"{loss_text(fields.mean)}, beyond doubt."
        )
    yield from checked_sentence(fields)


def worst_slice(fields: SliceFigures | None) -> ToldSlice | None:
    """Return the slice that is served worst; None where none lies above everybody beyond doubt."""
    if fields is None or not fields.slices or not is_higher(fields.slices[0], fields):
        return None
    return fields.slices[0]


def checked_sentence(fields: SliceFigures | None) -> Iterator[str]:
    """Yield how right the references are about slices; nothing where that was not summed."""
    found = None if fields is None else fields.references
    if fields is None or found is None:
        return
    bound = (
        f"In none of {fields.looked_at} slices is their mean chance off by more than {_points(found.within)}; "
        "errors that cancel within a slice do not show."
    )
    if found.cells is None or found.said is None or found.found is None or found.interval is None:
        yield f"Of what the references said of slices too few people can be told. {bound}"
        return
    low, high = found.interval
    doubt = "MORE THAN CHANCE ALLOWS" if low > 0.0 or high < 0.0 else "within what chance allows"
    yield (
        f"By slices the references are furthest off about {slice_words(found.cells)}: they gave its {found.n} "
        f"people a mean chance of {found.said:.1%}, and it came true for {found.found:.1%}, {doubt} (by "
        f"{100.0 * low:+.1f} to {100.0 * high:+.1f} points, with 95 % for all slices together). {bound}"
    )


def _points(share: float) -> str:
    return f"{100.0 * share:.1f} points"


def figures_of(one: ToldSlice, fields: SliceFigures) -> str:
    """Return how many people a slice has, and its mean with the interval."""
    low, high = (loss_text(end, beside=fields.mean) for end in one.interval)
    mean = loss_text(one.mean, beside=fields.mean)
    return f"{one.n} people, {fields.measure} {mean} ({low} to {high})"
