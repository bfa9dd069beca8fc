"""The section of a run's page about prediction sets: their promise in sentences, and how large they are.

Decides words and rounding; the figures are `results.prediction_sets`'s. A set says little where it has most
classes. So the sizes stand beside what is missed.
"""

from __future__ import annotations

from markupsafe import Markup

from fedfair.report.blocks import bullets, paragraph, table
from fedfair.results.document import ResultDocument
from fedfair.results.prediction_sets import SetFigures
from fedfair.run.calibration_text import RECORDS
from fedfair.templates import sentences

TITLE = "What may well be true of a person"

SIZES = ("no class", "one class", "two classes")


def set_lines(document: ResultDocument) -> tuple[str, ...]:
    """Return the sentences about the sets of a result; none where it says nothing of them."""
    found = document.sets
    return () if found is None else sentences("fedfair.report", "sets.txt.jinja", found=found, records=RECORDS)


def set_parts(document: ResultDocument, found: SetFigures) -> Markup:
    """Return what a page says about the sets of its result."""
    words = (
        "A set holds every class that may well be true of a person, an interval every number. Whose true answer "
        "is not in it is missed. The promise holds for every group of the size, named by nobody."
    )
    return paragraph(words) + bullets(set_lines(document)) + _table(found)


def _table(found: SetFigures) -> Markup:
    if not found.splits:
        return Markup()
    sized = any(each.mean_size is not None for each in found.splits.values())
    shares = any(each.by_size is not None for each in found.splits.values())
    headings = ("records of", "missed", *(["mean classes in a set"] if sized else []), *(SIZES if shares else ()))
    rows = [
        (
            split,
            f"{each.missed:.1%}",
            *([] if each.mean_size is None else [f"{each.mean_size:.2f}"]),
            *(f"{share:.1%}" for share in each.by_size or ()),
        )
        for split, each in found.splits.items()
    ]
    caption = "What sets are of the records of each split."
    if shares:
        caption += " The last columns are the shares of people by the size of their set."
    return table(caption, headings, rows)
