"""Everything that an evaluation sums: histograms of losses and scores, confusion matrices, means of single sites.

Decides the layout of the header; what a block is said in `loss_histogram.py`, what a row of a site in
`site_means.py`, what a histogram of scores in `score_histogram.py`. A confusion matrix tells how many records of
each class (row) were taken for which class (column). With more than 64 classes there is none: three of them would
be longer than everything else. Zeros stand where a site has no such records, so that the length of a header says
nothing about a site.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Field, Group, Header, Number
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec, block_fields
from fedfair.aggregation.requests import histogram_spec
from fedfair.aggregation.score_histogram import score_group
from fedfair.aggregation.site_means import ROW_FIELDS
from fedfair.plan.derived import published_sites, score_columns
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan

MAX_CLASSES = 64
"""With more classes an evaluation has no confusion matrices."""


def evaluation_layout(spec: HistogramSpec, classes: int, sites: int = 0, columns: int = 0) -> Header:
    """Return the layout of an evaluation header.

    Args:
        spec: the histogram of the plan.
        classes: how many there are.
        sites: of how many the plan publishes the means.
        columns: how many histograms of scores each split has.

    Returns:
        "splits", of `loss_histogram.block_fields`, (3,); "confusion", (3, classes, classes), without values where
        there are too many classes; "sites", of `site_means.ROW_FIELDS`, (sites, 3); "scores", of
        `score_histogram.score_group`, (3, columns).
    """
    return Header(
        Group("splits", block_fields(spec), (len(SPLITS),)),
        Field("confusion", Number.COUNT, (len(SPLITS), *matrix_shape(classes))),
        Group("sites", ROW_FIELDS, (sites, len(SPLITS))),
        score_group(columns),
    )


def planned_layout(plan: Plan, schema: FeatureSchema) -> Header:
    """Return the layout of an evaluation header under a plan."""
    sites, columns = len(published_sites(plan)), score_columns(plan, schema.classes)
    return evaluation_layout(histogram_spec(plan, schema), schema.classes, sites, columns)


def matrix_shape(classes: int) -> tuple[int, int]:
    """Return the shape of one split's confusion matrix; (0, 0) where there are too many classes."""
    return (classes, classes) if classes <= MAX_CLASSES else (0, 0)


def confusion_matrix(
    labels: NDArray[np.integer], predictions: NDArray[np.integer], classes: int
) -> NDArray[np.float64]:
    """Return how often each class (row) was taken for which (column): float64 array (classes, classes).

    Args:
        labels: whole numbers (n,) from 0 to classes - 1; n may be 0.
        predictions: likewise.
        classes: how many there are.
    """
    cells = np.bincount(labels.astype(np.int64) * classes + predictions, minlength=classes**2)
    return cells.reshape(classes, classes).astype(np.float64)
