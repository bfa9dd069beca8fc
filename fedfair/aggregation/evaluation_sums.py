"""Everything that an evaluation sums: histograms of losses and scores, confusion matrices, means of single sites.

Decides the layout of the header; what a block is said in `loss_histogram.py`, what a row of a site in
`site_means.py`, what a histogram of scores in `score_histogram.py`. A confusion matrix tells how many records of
each class (row) were taken for which class (column). With more than 64 classes there is none: three of them would
be longer than everything else. Zeros stand where a site has no such records, so that the length of a header says
nothing about a site.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Bits, Field, Group, Header, Number, one_of
from fedfair.aggregation.loss_histogram import SPLITS, HistogramSpec, block_fields
from fedfair.aggregation.loss_metrics import FIGURE_BITS, figure_count
from fedfair.aggregation.reference_check import check_group
from fedfair.aggregation.requests import histogram_spec
from fedfair.aggregation.score_histogram import score_group
from fedfair.aggregation.site_means import row_fields
from fedfair.plan.derived import (
    measures_excess,
    predicts_classes,
    protects_records,
    published_sites,
    score_columns,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan

MAX_CLASSES = 64
"""With more classes an evaluation has no confusion matrices."""


@lru_cache(maxsize=8)
def evaluation_layout(
    spec: HistogramSpec,
    classes: int,
    sites: int = 0,
    columns: int = 0,
    figures: int = 0,
    *,
    excess: bool = False,
) -> Header:
    """Return the layout of an evaluation header.

    Args:
        spec: the histogram of the plan.
        classes: how many there are; 0 where records are not classified.
        sites: of how many the plan publishes the means.
        columns: how many histograms of scores each split has.
        figures: how many sums of `loss_metrics.py` each split has.
        excess: whether the excess over references is summed as losses are.

    Returns:
        "splits", of `loss_histogram.block_fields`, (3,); "confusion", (3, classes, classes), without values where
        there are too many classes; "sites", of `site_means.row_fields`, (sites, 3); "scores", of
        `score_histogram.score_group`, (3, columns); "figures", (3, figures); "excess", of `block_fields` without
        classes, (3,), or (0,) where none is summed; "checked", of `reference_check.check_group`, likewise, where
        records are classified.
    """
    return Header(
        Group("splits", block_fields(spec), (len(SPLITS),)),
        Field("confusion", Number.COUNT, (len(SPLITS), *matrix_shape(classes)), lone=one_of(max(classes, 1) ** 2)),
        Group("sites", row_fields(spec), (sites, len(SPLITS))),
        score_group(columns),
        Field("figures", Number.REAL, (len(SPLITS), figures), lone=Bits(FIGURE_BITS, each=True)),
        Group("excess", block_fields(excess_spec(spec)), (len(SPLITS) * excess,)),
        check_group(checked=excess and classes > 0),
    )


def excess_spec(spec: HistogramSpec) -> HistogramSpec:
    """Return the histogram of the excess: that of the losses, in which nothing is classified."""
    return replace(spec, has_classes=False)


def planned_layout(plan: Plan, schema: FeatureSchema) -> Header:
    """Return the layout of an evaluation header under a plan."""
    sites, columns = len(published_sites(plan)), score_columns(plan, schema.classes)
    spec, figures = histogram_spec(plan, schema), planned_figures(plan, schema)
    excess = measures_excess(plan)
    return evaluation_layout(spec, confused_classes(plan, schema), sites, columns, figures, excess=excess)


def planned_figures(plan: Plan, schema: FeatureSchema) -> int:
    """Return how many sums of `loss_metrics.py` a plan's evaluations have; noise for records covers none."""
    return 0 if protects_records(plan) else figure_count(plan.task.loss, schema)


def confused_classes(plan: Plan, schema: FeatureSchema) -> int:
    """Return how many classes a confusion matrix tells apart; 0 where a record's answer is no class."""
    return schema.classes if predicts_classes(plan) else 0


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
