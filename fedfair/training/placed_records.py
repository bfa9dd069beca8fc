"""A site's records of one split as its model takes them: features and a predicted number scaled, on its device."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from fedfair.aggregation.feature_scaling import scale_columns
from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.target_scaling import of_features, target_scaling
from fedfair.plan.losses import Loss
from fedfair.tables.dataset import Dataset
from fedfair.training.device import SplitRecords


def placed_records(dataset: Dataset, loss: Loss, scaling: FeatureScaling | None, like: Tensor) -> SplitRecords:
    """Return the records.

    Args:
        dataset: unscaled.
        loss: the plan's.
        scaling: of columns and target; None where no sum has made one.
        like: has the width and the device of the model.
    """
    scaled = None
    if scaling is not None:
        own = of_features(loss, scaling)
        scaled = partial(scale_columns, numeric=dataset.schema.numeric, scaling=own)
    labels = target_scaling(loss, scaling).placed(dataset.labels)
    return SplitRecords.place(dataset.features, labels, like.dtype, like.device, scaled)
