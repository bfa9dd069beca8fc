"""A model's file in words: where it comes from, what it takes column by column, and what it returns.

Decides the words alone; the terminal and the model card show the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from fedfair.plan.csv_table import OTHER, OWN
from fedfair.plan.losses import has_classes, loss_in_words, predicts_number
from fedfair.plan.sources import DataSource, section_of
from fedfair.run.calibration_text import answer_words
from fedfair.run.model_description import (
    CategoryColumn,
    Column,
    IndicatorColumn,
    ModelDescription,
    NumberColumn,
    source_of,
)
from fedfair.run.saved_model import DescribedModel

MAX_VALUES = 12
"""The most values of a category that are listed."""

_NUMBERS = {"refuse": "refused", "zero": "0"}
_CATEGORIES = {"refuse": "refused", OTHER: "counts as other", OWN: "a feature of its own"}


def model_facts(model: DescribedModel) -> tuple[tuple[str, str], ...]:
    """Return headings and words about a model as a whole."""
    saved, origin = model.saved, model.origin
    said = origin.description
    architecture = said.architecture if isinstance(said.architecture, str) else _words(said.architecture)
    label = said.label
    predicted = f"column '{label.column}'" if label.column else "the label of the plan's data"
    tuned = f"{origin.fine_tuned_at}, on its own records; this is no model of the federation"
    return (
        ("federation", origin.federation or "not said"),
        *((("fine-tuned at", tuned),) if origin.fine_tuned_at else ()),
        ("plan", saved.plan_digest or "not said"),
        ("which model", "not said" if saved.which is None else saved.which.words),
        ("training rounds", str(int(saved.round))),
        ("architecture", f"{architecture}; {model.layout.dimension} values of {model.layout.dtype.name}"),
        ("takes", _shape(said.input.shape)),
        ("scaling", _scaling(model)),
        ("predicts", _predicts(said, predicted)),
        *((("returns", answer_words(saved.calibration)),) if has_classes(said.record_loss) else ()),
        ("threshold", f"{saved.model.threshold:.6g}"),
    )


def _predicts(said: ModelDescription, predicted: str) -> str:
    if has_classes(said.record_loss):
        return f"{predicted}: {', '.join(str(each) for each in said.label.labels)}"
    names = f" ({', '.join(said.label.names)})" if said.label.names else ""
    return f"{predicted}{names}, by the {loss_in_words(said.record_loss)}"


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
        return "everybody's mean"
    by_ranges = model.origin.description.input.by_ranges
    return "the middle of the range" if by_ranges else "the site's own mean, which is not in the file"


def _policy(source: DataSource) -> str:
    """Return what a source does with a missing number of which the plan says nothing."""
    section = section_of(source)
    return "refuse" if section is None else section.missing_number


def _scaling(model: DescribedModel) -> str:
    if model.saved.scaling is not None:
        number = predicts_number(model.origin.description.record_loss)
        columns = f"{len(model.saved.scaling.mean) - number} numeric columns{' and the target' if number else ''}"
        return f"{columns} by everybody's means and deviations, in the file"
    return "by the declared ranges" if model.origin.description.input.by_ranges else "none"


def _shape(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"{shape[0]} features"
    return f"images of {' x '.join(str(side) for side in shape)} (channels, height, width)"


def _words(architecture: Mapping[str, JsonValue]) -> str:
    rest = ", ".join(f"{key} {json.dumps(value)}" for key, value in architecture.items() if key != "name")
    return f"{architecture['name']}{f' ({rest})' if rest else ''}"
