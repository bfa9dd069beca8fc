"""The two data sets that come with scikit-learn, so that a demonstration downloads nothing.

`breast-cancer` is the Wisconsin diagnostic set (569 records, 30 columns, 1 = benign; Street et al. 1993) and
`digits` the 8x8 digits (1,797 records, 64 columns from 0 to 16; Alpaydin and Kaynak 1998), each unscaled and in
scikit-learn's order. All 30 columns of the first separate its classes.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from fedfair.learning.data.dataset import Dataset, FeatureSchema

BUILT_IN = {"breast-cancer": (load_breast_cancer, 2), "digits": (load_digits, 10)}


def load_built_in(name: str) -> Dataset:
    """Return a bundled data set, all records.

    Args:
        name: breast-cancer or digits.
    """
    loader, classes = BUILT_IN[name]
    bunch = loader()
    features = np.asarray(bunch.data, np.float64)
    names = tuple(str(column) for column in bunch.feature_names)
    schema = FeatureSchema((features.shape[1],), classes, tuple(range(len(names))), names)
    return Dataset(features, np.asarray(bunch.target, np.int64), schema)
