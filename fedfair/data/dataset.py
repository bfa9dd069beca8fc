"""Records in memory: what one collaborator holds, whichever source it came from.

Decides the form that everything after loading relies on (no infinite feature, labels from 0 to classes - 1, equal
lengths) and checks it once, at construction. NaN is a missing value: `missing.py` fills it, or the scaling does.
Loading is the business of the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.feature_schema import FeatureSchema

Columns = Mapping[str, NDArray[np.generic]]
"""Raw columns by name, each (n,): for partitions and group reports, never features by themselves."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Labelled records.

    Attributes:
        features: float array (n, *input_shape), NaN where missing; float64 for tables, float32 from 0 to 1 for
            images.
        labels: int64 array (n,), from 0 to classes - 1.
        schema: what the features are.
        columns: raw columns (n,) by name, kept for partitions and group reports.
        person_column: the column that says whose record it is, where a person has several; None otherwise.
    """

    features: NDArray[np.floating]
    labels: NDArray[np.int64]
    schema: FeatureSchema
    columns: Columns = field(default_factory=dict)
    person_column: str | None = None

    def __post_init__(self) -> None:
        _check_shapes(self.features, self.labels, self.schema, self.columns)
        _check_values(self.features, self.labels, self.schema)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.integer]) -> Dataset:
        """Return the records at `indices` (m,), in that order, as a copy."""
        return Dataset(
            self.features[indices],
            self.labels[indices],
            self.schema,
            {name: values[indices] for name, values in self.columns.items()},
            self.person_column,
        )


@dataclass(frozen=True, slots=True)
class Splits:
    """One collaborator's records: what it trains on, and what it only evaluates on."""

    train: Dataset
    validation: Dataset | None = None
    test: Dataset | None = None

    def __post_init__(self) -> None:
        for name, part in (("validation", self.validation), ("test", self.test)):
            if part is not None and part.schema != self.train.schema:
                raise DataError(
                    f"the {name} records do not have the features of the training records: "
                    f"{_differences(part.schema, self.train.schema)}",
                    "give every split the same columns, in the same order, and the same classes",
                )


def _differences(found: FeatureSchema, expected: FeatureSchema) -> str:
    names = sorted(set(found.names) ^ set(expected.names))[:5]
    only = f", and only one of them has {', '.join(names)}" if names else ""
    return (
        f"shape {found.input_shape} and {found.classes} classes, not {expected.input_shape} and "
        f"{expected.classes}{only}"
    )


def _check_shapes(
    features: NDArray[np.floating], labels: NDArray[np.int64], schema: FeatureSchema, columns: Columns
) -> None:
    expected = (len(labels), *schema.input_shape)
    if labels.ndim != 1 or features.shape != expected:
        raise DataError(
            f"features of shape {features.shape} and labels of shape {labels.shape} do not match {expected}"
        )
    for name, values in columns.items():
        if values.shape != labels.shape:
            raise DataError(f"column '{name}' has shape {values.shape}, the labels have {labels.shape}")


def _check_values(features: NDArray[np.floating], labels: NDArray[np.int64], schema: FeatureSchema) -> None:
    if not np.issubdtype(features.dtype, np.floating) or labels.dtype != np.int64:
        raise DataError(f"features must be floats and labels int64, not {features.dtype} and {labels.dtype}")
    infinite = np.isinf(features)
    if infinite.any():
        record, *place = (int(i) for i in np.argwhere(infinite)[0])
        raise DataError(
            f"{schema.name_of(tuple(place))} of record {record} is infinite", "remove or fill such values"
        )
    if len(labels) and (labels.min() < 0 or labels.max() >= schema.classes):
        raise DataError(
            f"labels run from {labels.min()} to {labels.max()}, but there are {schema.classes} classes",
            f"number the classes from 0 to {schema.classes - 1}",
        )
