"""Records that a program holds in memory: features and labels of several sites, checked and numbered alike.

Decides what counts as features and as labels, and which class has which number. Every fault is reported at once
with its site and the place. Tables of a library (`DataFrame`, `Series`) and tensors are taken as they are; their
columns give the features their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.fields import Scalar
from fedfair.tables.dataset import Dataset
from fedfair.tables.feature_storage import first_of
from fedfair.tables.pixels import Values, are_pixels, is_image
from fedfair.tables.text_table import listed

SPLIT_NAMES = ("train", "validation", "test")
MIN_CLASSES = 2
SHOWN = 5

ArrayPair: TypeAlias = tuple[Any, Any]
"""Features (n, columns), or (n, channels, height, width), and labels (n,). Images of bytes stand for x / 255."""

SiteArrays: TypeAlias = ArrayPair | Mapping[str, ArrayPair]
"""A site's records, all to train on; or by split: train, and validation and test where the site brings them."""


@dataclass(frozen=True, slots=True)
class RawRecords:
    """Features and labels before the classes have their numbers.

    Attributes:
        where: whose they are, for messages.
        features: float array (n, *input_shape), finite; or the bytes of images.
        labels: array (n,) of integers or texts; of other answers than classes float64 array (n, ...).
        names: of the columns; None where the features have none.
        label_name: of the labels; None where they have none.
    """

    where: str
    features: Values = field(repr=False)
    labels: NDArray[np.generic] = field(repr=False)
    names: tuple[str, ...] | None
    label_name: str | None


@dataclass(frozen=True, slots=True)
class LabelCoding:
    """The classes and their numbers.

    Attributes:
        values: the values of each class, in the order of the classes; None where they are 0 to count - 1.
        count: how many classes there are, at least 2; 0 where the answers are numbers.
    """

    values: tuple[tuple[Scalar, ...], ...] | None
    count: int

    def numbers(self, raw: RawRecords) -> NDArray[Any]:
        """Return the class of each record, int64 array (n,); or its answer as it is where there are no classes.

        Raises:
            DataError: a label is of no class.
        """
        if not self.count:
            return raw.labels
        if self.values is None:
            return self._counted(raw)
        places = {value: number for number, values in enumerate(self.values) for value in values}
        labels = raw.labels.tolist()
        unknown = [value for value in dict.fromkeys(labels) if value not in places]
        if unknown:
            raise DataError(
                f"{raw.where}: labels of no class: {_shown(unknown)}", f"the classes are {_shown(places)}"
            )
        return np.array([places[value] for value in labels], np.int64)

    def _counted(self, raw: RawRecords) -> NDArray[np.int64]:
        if raw.labels.dtype.kind not in "iu":
            raise DataError(
                f"{raw.where}: the labels are texts such as {raw.labels[0]!r}, and the classes are numbers",
                f"number the classes from 0 to {self.count - 1}",
            )
        outside = [value for value in np.unique(raw.labels).tolist() if not 0 <= value < self.count]
        if outside:
            raise DataError(
                f"{raw.where}: labels of no class: {_shown(outside)}; there are {self.count} classes",
                f"number the classes from 0 to {self.count - 1}",
            )
        return raw.labels.astype(np.int64)


def read_pair(where: str, pair: object, *, classes: bool = True) -> RawRecords:
    """Return a pair of features and labels as arrays.

    Args:
        where: whose records these are, for messages.
        pair: (features, labels).
        classes: whether labels are classes, and not numbers.

    Raises:
        DataError: it is no such pair, the shapes do not fit, there are no records, or a value is not finite.
    """
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        found = type(pair).__name__ + (f" of {len(pair)}" if isinstance(pair, tuple | list) else "")
        raise DataError(
            f"{where}: the records are {found}, not a pair of features and labels", "give (features, labels)"
        )
    given, answers = pair
    columns = getattr(given, "columns", None)
    names = None if columns is None else tuple(str(name) for name in columns)
    features = _features(where, given, names)
    labels = _labels(where, answers) if classes else _answers(where, answers)
    if features.ndim < 2:
        raise DataError(
            f"{where}: the features have shape {features.shape}, not one row for each record",
            "give an array (records, columns); a single column is reshape(-1, 1)",
        )
    if not labels.ndim or (classes and labels.ndim != 1) or len(labels) != len(features):
        raise DataError(
            f"{where}: the features have shape {features.shape} and the labels {labels.shape}",
            "give one label for each record, as an array (records,)",
        )
    if not len(labels):
        raise DataError(f"{where}: there are no records", "leave this site out, or give it records")
    if not features.shape[1]:
        raise DataError(f"{where}: the features have no columns", "give at least one")
    _check_finite(where, features, names)
    name = getattr(answers, "name", None)
    return RawRecords(where, features, labels, names, name if isinstance(name, str) else None)


def _answers(where: str, given: object) -> NDArray[np.float64]:
    values = _array(where, "answers", given)
    if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
        raise DataError(f"{where}: the answers are not all finite numbers", "give numbers as task.loss takes them")
    return values.astype(np.float64)


def read_labels(where: str, answers: object) -> RawRecords:
    """Return labels alone, of records without features here.

    Raises:
        DataError: they are neither whole numbers nor texts, one for each record.
    """
    labels = _labels(where, answers)
    if labels.ndim != 1 or not len(labels):
        raise DataError(f"{where}: the labels have shape {labels.shape}", "give one label for each record")
    return RawRecords(where, np.zeros((len(labels), 0)), labels, None, None)


def check_alike(parts: Sequence[RawRecords]) -> None:
    """Refuse records of several sites that have other features than the first.

    Raises:
        DataError: naming both sites and what differs.
    """
    first = parts[0]
    for other in parts[1:]:
        if other.features.shape[1:] != first.features.shape[1:]:
            raise DataError(
                f"{other.where}: a record has shape {other.features.shape[1:]}, one of {first.where} has "
                f"{first.features.shape[1:]}",
                "give every site the same columns",
            )
        if other.names is not None and first.names is not None and set(other.names) != set(first.names):
            own = next(name for name in other.names if name not in first.names)
            missing = next(name for name in first.names if name not in other.names)
            raise DataError(
                f"{other.where}: there is a column {own!r}, and {first.where} has {missing!r} in its place",
                "give every site the same columns; their order does not matter",
            )


def coding_of(parts: Sequence[RawRecords], classes: int | None) -> LabelCoding:
    """Return the classes of the labels of all sites: the values that occur, sorted, or as many as are stated.

    Raises:
        DataError: some labels are texts and others numbers, there are fewer than two classes, or no site has
            records of every class: then a label may be misspelt.
    """
    if classes is not None:
        return LabelCoding(None, classes)
    kinds = {part.labels.dtype.kind in "iu" for part in parts}
    if len(kinds) > 1:
        numbers, texts = (
            next(p.where for p in parts if (p.labels.dtype.kind in "iu") == kind) for kind in (True, False)
        )
        raise DataError(f"the labels of {numbers} are numbers and those of {texts} are texts", "give one kind")
    values = sorted({value for part in parts for value in np.unique(part.labels).tolist()})
    if len(values) < MIN_CLASSES:
        raise DataError(
            f"every label of every site is {values[0]!r}, so there is nothing to tell apart",
            "give records of at least two classes, or state task={'classes': ...}",
        )
    _check_one_has_all(parts, values)
    if values == list(range(len(values))):
        return LabelCoding(None, len(values))
    return LabelCoding(tuple((value,) for value in values), len(values))


def _check_one_has_all(parts: Sequence[RawRecords], values: Sequence[object]) -> None:
    """Refuse labels of which no site has all, so that a class may be a slip of one site."""
    found = [(part.where, set(np.unique(part.labels).tolist())) for part in parts]
    where, most = max(found, key=lambda one: len(one[1]))
    if len(most) == len(values):
        return
    other, strange = next((name, own - most) for name, own in found if own - most)
    raise DataError(
        f"{other} has the labels {_shown(sorted(strange))}, which {where} has not: it has {_shown(sorted(most))}",
        "correct the labels; or number the classes from 0 and state how many there are, such as "
        f"task={{'classes': {len(values)}}}",
    )


def dataset_of(raw: RawRecords, coding: LabelCoding, schema: FeatureSchema) -> Dataset:
    """Return checked records as everything after loading takes them.

    Raises:
        DataError: a label is of no class, or the features are others than the schema's.
    """
    features = _in_order(raw, schema)
    if features.shape[1:] != schema.input_shape:
        raise DataError(
            f"{raw.where}: a record has shape {features.shape[1:]}, the model takes {schema.input_shape}",
            "give the columns that the model was trained on",
        )
    return Dataset(features, coding.numbers(raw), schema)


def _in_order(raw: RawRecords, schema: FeatureSchema) -> Values:
    """Return the features in the order of the schema's columns, where both have names."""
    if raw.names is None or not schema.names or raw.names == schema.names:
        return raw.features
    missing = [name for name in schema.names if name not in raw.names]
    unknown = [name for name in raw.names if name not in schema.names]
    if missing or unknown:
        what = f"there is no column {missing[0]!r}" if missing else f"{unknown[0]!r} is no column of the model"
        raise DataError(f"{raw.where}: {what}", f"its columns are {_shown(schema.names)}")
    return raw.features[:, [raw.names.index(name) for name in schema.names]]


def _features(where: str, given: object, names: tuple[str, ...] | None) -> Values:
    if hasattr(given, "toarray"):
        raise DataError(f"{where}: the features are a sparse matrix", "give them dense: X.toarray()")
    if names is not None and hasattr(given, "dtypes"):
        for name, kind in zip(names, cast("Any", given).dtypes, strict=True):
            if getattr(kind, "kind", "f") not in "fiub":
                raise DataError(
                    f"{where}: column {name!r} is of type {kind}, not of numbers",
                    "encode it first, such as by pandas.get_dummies; or describe a CSV file in a plan",
                )
    if names is not None and hasattr(given, "isna"):
        # A table of pandas: its own missing values become NaN, which is reported with its place.
        given = cast("Any", given).to_numpy(dtype=np.float64, na_value=np.nan)
    values = _array(where, "features", given)
    if values.dtype.kind not in "fiub":
        raise DataError(
            f"{where}: the features are of type {values.dtype}, not numbers",
            "encode texts and dates as numbers first",
        )
    if is_image(values):
        return values.astype(np.uint8, copy=False)
    keeps = values.dtype == np.float32 and values.ndim > 2
    numbers: NDArray[np.floating] = values.astype(np.float32 if keeps else np.float64)
    return numbers


def _labels(where: str, given: object) -> NDArray[np.generic]:
    values, remedy = _array(where, "labels", given), "give whole numbers or texts as labels"
    kind = values.dtype.kind
    if kind == "f":
        whole = np.isfinite(values) & (values == np.rint(values))
        if not whole.all():
            raise DataError(f"{where}: a label is {values[~whole][0]}, and labels are classes", remedy)
    held = sorted({type(value).__name__ for value in values.ravel()}) if kind == "O" else []
    if kind in "bf" or (held and {"int", "bool"}.issuperset(held)):
        return values.astype(np.int64)
    if held == ["str"]:
        return values.astype(np.str_)
    if kind == "O" or (kind not in "iuU" and values.size):
        what = ", ".join(held[:SHOWN]) if kind == "O" else values.dtype
        raise DataError(f"{where}: the labels are of type {what}", remedy)
    return values


def _array(where: str, what: str, given: object) -> NDArray[np.generic]:
    # A tensor that requires a gradient, or lies on another device, does not turn into an array by itself.
    for method in ("detach", "cpu"):
        if hasattr(given, method):
            given = getattr(given, method)()
    try:
        return np.asarray(given)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: the {what} are no array: {error}", "give every record the same columns"
        ) from error


def _check_finite(where: str, features: Values, names: tuple[str, ...] | None) -> None:
    found = None if are_pixels(features) else first_of(features, lambda block: ~np.isfinite(block))
    if found is None:
        return
    record, place, count = found
    unnamed = f"column {place[0]}" if len(place) == 1 else f"{list(place)}"
    column = unnamed if names is None else repr(names[place[0]])
    raise DataError(
        f"{where}: {count} values are NaN or infinite, the first is {column} of record {record}",
        "fill in such values or remove the records; a plan for CSV files can fill them in",
    )


def _shown(values: Any) -> str:  # noqa: ANN401 - any values, in words
    return listed([repr(value) for value in values], SHOWN)
