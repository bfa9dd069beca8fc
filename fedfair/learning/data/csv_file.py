"""A site's own table, read by the schema that the plan declares.

Decides how texts become features: numeric columns as they are, then one column for each declared value of each
categorical column, one for any other value and, where the plan wants it, one for a missing value. Nothing is
learnt from the file about its own schema, so that every site's features mean the same; for that reason
`numeric: all` takes the columns in the order of their names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.learning.data.dataset import Dataset, FeatureSchema
from fedfair.learning.data.reading import Faults, Table, TableForm, numbers, read_table, require_columns
from fedfair.learning.standardisation import unit_of
from fedfair.plan.csv_data import CsvData
from fedfair.plan.fields import Scalar

OTHER = "other"
OWN = "own"
MISSING = "missing"
BINARY = 2
SHOWN_LABELS = 10


def csv_schema(spec: CsvData, classes: int | None, numeric: Sequence[str]) -> FeatureSchema:
    """Return what the declared columns amount to.

    Args:
        spec: the plan's description of the table.
        classes: number of classes that the plan states, if any.
        numeric: the numeric columns, in order.
    """
    names = (*numeric, *(name for column in spec.categorical for name in _one_hot(column, spec)))
    units = tuple(unit_of(*spec.ranges[name]) if name in spec.ranges else 1.0 for name in numeric)
    return FeatureSchema(
        (len(names),),
        _class_count(spec, classes),
        tuple(range(len(numeric))),
        names,
        units if spec.ranges else (),
    )


def load_csv(path: Path, spec: CsvData, classes: int | None, extra: Collection[str]) -> Dataset:
    """Return the records of one file; a missing number is NaN where the plan wants a mean.

    Args:
        path: the file, plain or gzip.
        spec: the plan's description of it.
        classes: number of classes that the plan states, if any.
        extra: columns to keep raw beside those that the plan keeps, such as the one that records are divided by.

    Raises:
        DataError: the file cannot be read or has values that the plan does not allow; all of them are reported.
    """
    table = read_table(path, form=TableForm(spec.columns, spec.separator, spec.comment))
    kept = dict.fromkeys((*spec.keep, *extra))
    numeric = _numeric_columns(table, spec, kept)
    require_columns(path, list(table.columns), (spec.label, *numeric, *spec.categorical, *kept))
    schema = csv_schema(spec, classes, numeric)
    faults = Faults(table)
    features = [_numeric(table, column, spec, faults) for column in numeric]
    features += [block for column in spec.categorical for block in _indicators(table, column, spec, faults)]
    labels = _labels(table, spec, schema.classes, faults)
    faults.refuse()
    return Dataset(np.stack(features, axis=1), labels, schema, {name: table.columns[name] for name in kept})


def _numeric_columns(table: Table, spec: CsvData, kept: Collection[str]) -> tuple[str, ...]:
    if not isinstance(spec.numeric, str):
        return spec.numeric
    named = {spec.label, spec.collaborator, *spec.categorical, *kept}
    columns = tuple(sorted(name for name in table.columns if name not in named))
    if not columns and not spec.categorical:
        raise DataError(f"{table.path} has no column left for numeric: all", "check the file's columns")
    return columns


def _missing(table: Table, column: str, spec: CsvData) -> NDArray[np.bool_]:
    missing: NDArray[np.bool_] = np.isin(table.columns[column], spec.missing_values)
    for value in spec.missing_values_of.get(column, ()):
        missing |= _matches(table.columns[column], value)
    return missing


def _numeric(table: Table, column: str, spec: CsvData, faults: Faults) -> NDArray[np.float64]:
    missing, policy = _missing(table, column, spec), spec.missing_of.get(column, spec.missing)
    if policy == "refuse":
        faults.add(column, "missing values", missing, "fill them in, or set missing: mean or zero in the plan")
    values = numbers(table, column, missing, faults)
    if column in spec.ranges:
        least, greatest = spec.ranges[column]
        outside = np.isfinite(values) & ((values < least) | (values > greatest))
        remedy = "correct it, or have the plan's ranges changed"
        faults.add(column, f"outside of {least:g} to {greatest:g}, its range", outside, remedy)
    return np.where(missing, 0.0, values) if policy == "zero" else values


def _indicators(table: Table, column: str, spec: CsvData, faults: Faults) -> list[NDArray[np.float64]]:
    """Return one 0/1 array (n,) for each value, one for all other texts, and one for none where that is asked."""
    policy = spec.missing_of.get(column, OTHER)
    missing = _missing(table, column, spec) & (policy != OTHER)
    if policy == "refuse":
        faults.add(column, "missing values", missing, "fill them in, or set missing_of: own or other in the plan")
    hits = [_matches(table.columns[column], value) & ~missing for value in spec.categorical[column]]
    blocks = [*hits, ~np.any([*hits, missing], axis=0), *([missing] if policy == OWN else [])]
    return [block.astype(np.float64) for block in blocks]


def _one_hot(column: str, spec: CsvData) -> list[str]:
    more = (OTHER, MISSING) if spec.missing_of.get(column) == OWN else (OTHER,)
    return [f"{column}={value}" for value in (*spec.categorical[column], *more)]


def _class_count(spec: CsvData, classes: int | None) -> int:
    if spec.label_values is not None:
        return len(spec.label_values)
    return BINARY if spec.label_above is not None else classes or BINARY


def _labels(table: Table, spec: CsvData, count: int, faults: Faults) -> NDArray[np.int64]:
    if spec.label_above is not None:
        measured = numbers(table, spec.label, np.zeros(len(table), np.bool_), faults)
        return (measured > spec.label_above).astype(np.int64)
    classes = spec.label_classes or tuple((index,) for index in range(count))
    labels = np.full(len(table), -1, np.int64)
    for index, values in enumerate(classes):
        for value in values:
            labels[_matches(table.columns[spec.label], value)] = index
    named = [str(value) for values in classes for value in values]
    remedy = f"the plan allows {', '.join(named[:SHOWN_LABELS])}{', ...' if len(named) > SHOWN_LABELS else ''}"
    faults.add(spec.label, "a label that the plan does not name", labels < 0, f"{remedy} (label_values)")
    return labels


def _matches(texts: NDArray[np.str_], value: Scalar) -> NDArray[np.bool_]:
    """Return where a text means a value: equal text, equal number (1 and 1.0), true or false in any case."""
    distinct, index = np.unique(texts, return_inverse=True)
    same: NDArray[np.bool_] = np.array([_means(str(text), value) for text in distinct], np.bool_)[index]
    return same


def _means(text: str, value: Scalar) -> bool:
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, str):
        return text == value
    try:
        return float(text) == value
    except ValueError:
        return False
