"""The two data sets that come with scikit-learn, so that a demonstration downloads nothing.

`breast-cancer` is the Wisconsin diagnostic set (569 records, 30 columns, 1 = benign; Street et al. 1993) and
`digits` the 8x8 digits (1,797 records, 64 columns from 0 to 16; Alpaydin and Kaynak 1998), each unscaled and in
scikit-learn's order. All 30 columns of the first separate its classes. Each of its ten measurements comes as a
mean over a person's cell nuclei, as the error of that mean, and as the mean of the three largest; the ranges
declared here are round numbers that leave room for other people.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.task import TaskSection
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.source_modules import DataPaths, FileRecords

BUILT_IN = {"breast-cancer": (load_breast_cancer, 2), "digits": (load_digits, 10)}

_MAXIMA = {
    "radius": (50, 5, 50),
    "texture": (50, 5, 50),
    "perimeter": (300, 30, 300),
    "area": (5000, 1000, 5000),
    "smoothness": (0.3, 0.05, 0.3),
    "compactness": (0.5, 0.2, 1.5),
    "concavity": (0.5, 0.5, 1.5),
    "concave points": (0.3, 0.1, 0.3),
    "symmetry": (0.5, 0.1, 1.0),
    "fractal dimension": (0.2, 0.05, 0.3),
}
"""Of each measurement: the greatest mean, error of the mean, and mean of the three largest; all begin at 0."""

_PIXELS, _GREYS = 64, 16.0
RANGES = {
    "breast-cancer": tuple((0.0, float(row[kind])) for kind in range(3) for row in _MAXIMA.values()),
    "digits": ((0.0, _GREYS),) * _PIXELS,
}


def planned_schema(stated: str, task: TaskSection) -> FeatureSchema:
    """Return the schema of the data set of a name."""
    return load_built_in(stated).schema


def read(stated: str, task: TaskSection, paths: DataPaths, extra: tuple[str, ...]) -> FileRecords:
    """Return the data set of a name."""
    return FileRecords(Splits(load_built_in(stated)))


@cache
def load_built_in(name: str) -> Dataset:
    """Return a bundled data set, all records; its arrays are read-only, as one process reads it once.

    Args:
        name: breast-cancer or digits.
    """
    loader, classes = BUILT_IN[name]
    bunch = loader()
    features, labels = np.array(bunch.data, np.float64), np.array(bunch.target, np.int64)
    for array in (features, labels):
        array.setflags(write=False)
    names = tuple(str(column) for column in bunch.feature_names)
    schema = FeatureSchema((features.shape[1],), classes, tuple(range(len(names))), names, ranges=RANGES[name])
    return Dataset(features, labels, schema)
