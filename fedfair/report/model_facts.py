"""A model's file in words: where it comes from, what it takes column by column, and what it returns.

Decides the words alone; the terminal and the model card show the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from fedfair.conformal.prediction_sets import set_words
from fedfair.plan.csv_table import OTHER, OWN
from fedfair.plan.losses import has_classes, loss_in_words, predicts_number
from fedfair.plan.sources import DataSource, section_of
from fedfair.run.calibration_text import answer_words
from fedfair.run.model_description import (
    CategoryColumn,
    Column,
    IndicatorColumn,
    NumberColumn,
    source_of,
)
from fedfair.run.saved_model import DescribedModel
from fedfair.templates import sentences

MAX_VALUES = 12
"""The most values of a category that are listed."""

_NUMBERS = {"refuse": "refused", "zero": "0"}
_CATEGORIES = {"refuse": "refused", OTHER: "counts as other", OWN: "a feature of its own"}


def model_facts(model: DescribedModel) -> tuple[tuple[str, str], ...]:
    """Return headings and words about a model as a whole."""
    said = model.origin.description
    made = {} if isinstance(said.architecture, str) else said.architecture
    lines = sentences(
        "fedfair.report",
        "model_facts.txt.jinja",
        model=model,
        details=[f"{key} {json.dumps(value)}" for key, value in made.items() if key != "name"],
        number=predicts_number(said.record_loss),
        classes=has_classes(said.record_loss),
        loss=loss_in_words(said.record_loss),
        sets=set_words(model.saved.sets),
        answers=answer_words(model.saved.calibration) if has_classes(said.record_loss) else "",
    )
    return tuple((heading, words) for heading, _, words in (line.partition("\t") for line in lines))


def column_facts(model: DescribedModel) -> Iterator[tuple[str, str, str]]:
    """Yield for each raw column its name, what it may hold, and what becomes of a missing value."""
    for column in model.origin.description.columns:
        yield _column(column, model)


def _column(column: Column, model: DescribedModel) -> tuple[str, str, str]:
    match column:
        case NumberColumn(name=None, features=count):
            return f"{count} columns", "numbers; the plan does not name them", _number(column, model)
        case NumberColumn(name=name, range=limits):
            held = "a number" if limits is None else f"a number from {limits[0]:g} to {limits[1]:g}"
            return str(name), held, _number(column, model)
        case CategoryColumn(name=name, values=values, missing=missing):
            shown = ", ".join(str(value) for value in values[:MAX_VALUES])
            more = f" and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else ""
            return name, f"one of {shown}{more}; any other counts as other", _CATEGORIES[missing]
        case IndicatorColumn(name=name):
            return name, "made of another column", ""


def _number(column: NumberColumn, model: DescribedModel) -> str:
    policy = column.missing or _policy(source_of(model.origin.description))
    if policy != "mean":
        return _NUMBERS[policy]
    if model.saved.scaling is not None:
        return "the overall mean"
    by_ranges = model.origin.description.input.by_ranges
    return "the middle of the range" if by_ranges else "the site's own mean, which is not in the file"


def _policy(source: DataSource) -> str:
    """Return what a source does with a missing number of which the plan says nothing."""
    section = section_of(source)
    return "refuse" if section is None else section.missing_number
