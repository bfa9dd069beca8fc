"""Records in memory: what one collaborator holds, whichever source it came from.

Decides the form that everything after loading relies on (no infinite feature, labels from 0 to classes - 1, equal
lengths) and checks it once, at construction. NaN is a missing value: `numeric_columns.py` fills it, or the scaling
does. Loading is the business of the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.tables.feature_storage import FeatureStorage, first_of, joined, taken
from fedfair.tables.pixels import Values, are_pixels, feature_values
from fedfair.tables.site_survey import SiteSurvey

Columns = Mapping[str, NDArray[np.generic]]
"""Raw columns by name, each (n,): for partitions and group reports, never features by themselves."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Labelled records.

    Attributes:
        features: array (n, *input_shape); floats with NaN where missing, or the bytes of images (`pixels`).
        labels: the records' answers: int64 array (n,), from 0 to classes - 1; for pixels (n, *targets). Where the
            schema has no classes float64 array (n, *targets), finite.
        schema: what the features are.
        columns: raw columns (n,) by name, kept for partitions and group reports.
        person_column: the column that says whose record it is, where a person has several; None otherwise.
        owners: keyed hash of whose each record is, int64 array (n,), for withdrawals; None where none are kept.
    """

    features: Values = field(repr=False)
    labels: NDArray[Any] = field(repr=False)
    schema: FeatureSchema
    columns: Columns = field(default_factory=dict)
    person_column: str | None = None
    owners: NDArray[np.int64] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_shapes(self.features, self.labels, self.schema, self.columns)
        _check_values(self.features, self.labels, self.schema)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.integer]) -> Dataset:
        """Return the records at `indices` (m,), in that order, as a copy."""
        return Dataset(
            taken(self.features, indices),
            self.labels[indices],
            self.schema,
            {name: values[indices] for name, values in self.columns.items()},
            self.person_column,
            None if self.owners is None else self.owners[indices],
        )


@dataclass(frozen=True, slots=True)
class Splits:
    """One collaborator's records: what it trains on, and what it only evaluates on.

    Attributes:
        train: to train on.
        validation: to choose the best round by; None without any.
        test: to report on; None without any.
        survey: what the training records looked like before gaps were filled; None where the plan has no survey.
        counted: float64 array, what they add to the plan's statistics, without noise; None where it has none.
    """

    train: Dataset
    validation: Dataset | None = None
    test: Dataset | None = None
    survey: SiteSurvey | None = None
    counted: NDArray[np.float64] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, part in (("validation", self.validation), ("test", self.test)):
            if part is not None and part.schema != self.train.schema:
                raise DataError(
                    f"the {name} records do not have the features of the training records: "
                    f"{_differences(part.schema, self.train.schema)}",
                    "give every split the same columns, in the same order, and the same classes",
                )

    @property
    def parts(self) -> dict[str, Dataset]:
        """The parts that there are, by name: train, validation, test."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}

    @property
    def owners(self) -> dict[str, NDArray[np.int64]]:
        """Whose each record is, by split, where that is kept."""
        return {name: part.owners for name, part in self.parts.items() if part.owners is not None}

    def changed(self, change: Callable[[Dataset], Dataset]) -> Splits:
        """Return the same parts, each as `change` makes it."""
        made = {name: change(part) for name, part in self.parts.items()}
        return Splits(made["train"], made.get("validation"), made.get("test"), self.survey, self.counted)

    @property
    def records(self) -> int:
        """Return how many records there are, over all splits."""
        return sum(map(len, self.parts.values()))


def concatenated(parts: Sequence[Dataset]) -> Dataset:
    """Return the records of several parts of one schema; a raw column that a part lacks is false there."""
    if len(parts) == 1:
        return parts[0]
    columns = {
        name: np.concatenate([part.columns.get(name, np.zeros(len(part), np.bool_)) for part in parts])
        for name in dict.fromkeys(name for part in parts for name in part.columns)
    }
    features, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("features", "labels"))
    return Dataset(features, labels, parts[0].schema, columns)


def no_records(schema: FeatureSchema) -> Dataset:
    """Return a data set of these features without a record."""
    width = np.int64 if schema.classes else np.float64
    return Dataset(np.zeros((0, *schema.input_shape)), np.zeros((0, *schema.targets), width), schema)


def kept(splits: Splits, storage: FeatureStorage) -> Splits:
    """Return the same records with their features where there is room for them.

    Raises:
        DataError: there is none.
    """

    def held(part: Dataset) -> Dataset:
        features = storage.kept(part.features)
        return part if features is part.features else replace(part, features=features)

    return splits.changed(held)


def pooled_features(parts: Sequence[Dataset]) -> Values:
    """Return the features of several data sets, at least one, in their order; bytes only where all of them are."""
    held = [part.features for part in parts]
    return joined(held if all(map(are_pixels, held)) else [feature_values(features) for features in held])


def _differences(found: FeatureSchema, expected: FeatureSchema) -> str:
    names = sorted(set(found.names) ^ set(expected.names))[:5]
    only = f", and only one of them has {', '.join(names)}" if names else ""
    return (
        f"shape {found.input_shape} and {found.classes} classes, not {expected.input_shape} and "
        f"{expected.classes}{only}"
    )


def _check_shapes(features: Values, labels: NDArray[Any], schema: FeatureSchema, columns: Columns) -> None:
    expected = (len(labels), *schema.input_shape)
    if labels.ndim < 1 or labels.shape[1:] != schema.targets or features.shape != expected:
        raise DataError(
            f"features of shape {features.shape} and labels of shape {labels.shape} do not match {expected}"
        )
    for name, values in columns.items():
        if values.shape != labels.shape[:1]:
            raise DataError(f"column '{name}' has shape {values.shape}, the labels have {labels.shape}")


def _check_values(features: Values, labels: NDArray[Any], schema: FeatureSchema) -> None:
    pixels, width = are_pixels(features), np.int64 if schema.classes else np.float64
    if not (pixels or np.issubdtype(features.dtype, np.floating)) or labels.dtype != width:
        kind = np.dtype(width).name
        raise DataError(f"features must be floats and labels {kind}, not {features.dtype} and {labels.dtype}")
    if pixels and schema.numeric:
        raise DataError(
            "features of uint8 are the pixels of images, and these have numeric columns",
            "give the columns as floats",
        )
    infinite = None if pixels else first_of(features, np.isinf)
    if infinite is not None:
        record, place, _ = infinite
        raise DataError(f"{schema.name_of(place)} of record {record} is infinite", "remove or fill such values")
    if not schema.classes:
        wrong = ~np.isfinite(labels)
        if wrong.any():
            raise DataError(
                f"the answer of record {int(np.argwhere(wrong)[0][0])} is not finite", "remove such records"
            )
    elif labels.size and (labels.min() < 0 or labels.max() >= schema.classes):
        raise DataError(
            f"labels run from {labels.min()} to {labels.max()}, but there are {schema.classes} classes",
            f"number the classes from 0 to {schema.classes - 1}",
        )
