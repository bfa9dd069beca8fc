"""All records of one split in one tensor, one collaborator after the other.

Decides nothing but where they lie. Scaling a pooled column is scaling it at every site, value by value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.target_scaling import scaler_of, target_scaling
from fedfair.fairness.record_losses import Losses
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import Loss
from fedfair.tables.dataset import Dataset
from fedfair.training.device import SplitRecords


@dataclass(frozen=True, slots=True)
class Pool:
    """All records of one split.

    Attributes:
        records: all of them, N in number, each with its features in a row: (N, columns).
        starts: int64 array (collaborators + 1,): those of number k are starts[k] to starts[k + 1] - 1.
    """

    records: SplitRecords
    starts: NDArray[np.int64] = field(repr=False)

    def of_site(self, place: int) -> SplitRecords:
        """Return the records of one collaborator, as views."""
        own, records = slice(int(self.starts[place]), int(self.starts[place + 1])), self.records
        filed = None if records.filed is None else records.filed[own]
        return replace(records, features=records.features[own], labels=records.labels[own], filed=filed)

    def of_each(self, losses: Losses) -> list[Losses]:
        """Return each collaborator's part of the losses of all records, as views."""
        ends = self.starts.tolist()
        return [losses.part(start, end) for start, end in itertools.pairwise(ends)]


def pooled(
    datasets: Sequence[Dataset | None],
    schema: FeatureSchema,
    loss: Loss,
    scaling: FeatureScaling | None,
    like: Tensor,
) -> Pool:
    """Return the records of all collaborators that have any.

    Args:
        datasets: one for each collaborator; None where it has none of this split.
        schema: what their features are.
        loss: the plan's.
        scaling: of columns and target; None where no sum has made one.
        like: has the width and the device of the model.
    """
    held = [dataset for dataset in datasets if dataset is not None]
    counts = [0 if dataset is None else len(dataset) for dataset in datasets]
    columns = math.prod(schema.input_shape)
    rows = [dataset.features.reshape(len(dataset), columns) for dataset in held]
    width = next((dataset.labels.dtype for dataset in held), np.dtype(np.int64))
    labels = np.concatenate([np.empty((0, *schema.targets), width), *(dataset.labels for dataset in held)])
    placed, scaled = target_scaling(loss, scaling).placed(labels), scaler_of(loss, schema.numeric, scaling)
    records = SplitRecords.place_joined(rows, (columns,), placed, like.dtype, like.device, scaled)
    return Pool(records, np.cumsum([0, *counts]))
