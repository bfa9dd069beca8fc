"""What one site adds to a release audit: which of its records count, and the scores of each.

A side must be a draw of its own. Equal records of a site are on one side, and the records of a person are. So a
record that the site has twice does not count, on whichever sides its like are, and a person counts once, by one
record. Which records these are is a function of all the site's records, and of no draw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.audit_sums import (
    SIDES,
    AuditLayout,
    AuditQuestion,
    ScoredRecords,
    audit_header,
    audit_layout,
    calibrated_bins,
    loss_bins,
)
from fedfair.aggregation.loss_histogram import bounded_losses
from fedfair.aggregation.requests import FeatureScaling, histogram_spec
from fedfair.aggregation.slice_columns import FinePlaces
from fedfair.fairness.record_losses import SiteLosses
from fedfair.plan.derived import audited_splits
from fedfair.plan.schema import Plan
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.feature_storage import column_of
from fedfair.tables.holdout import record_digests

Unseen = Mapping[str, NDArray[np.float64]]
"""By split, the loss (n,) of each record under a reference that has not seen it; empty without references."""


def audit_addend(
    plan: Plan,
    splits: Splits,
    scaling: FeatureScaling | None,
    question: AuditQuestion,
    losses: SiteLosses,
    unseen: Unseen,
) -> NDArray[np.float64]:
    """Return what a site adds to an audit, as `audit_sums.audit_header`; zeros where it has no records.

    Args:
        plan: the plan.
        splits: the site's records, unscaled.
        scaling: of the features; None where the plan makes none.
        question: what is asked.
        losses: under the output model, of the splits that have records.
        unseen: of the same records.
    """
    schema = splits.train.schema
    layout, spec = audit_layout(plan, schema), histogram_spec(plan, schema)
    counted, linked = counted_records(splits)
    sides: dict[str, list[ScoredRecords]] = {}
    for side, names in zip(SIDES, (("train",), audited_splits(plan)), strict=True):
        sides[side] = []
        for name in names:
            dataset = _split(splits, name)
            if dataset is None or name not in losses:
                continue
            values, _ = bounded_losses(losses[name].values, spec)
            bins = {"loss": loss_bins(values, layout.loss_range)}
            if unseen:
                bins["calibrated"] = calibrated_bins(values, unseen[name], layout.loss_range)
            count = counted[name]
            cells = _slices(plan, layout, dataset, scaling, question)[count]
            scores = {attack: found[count] for attack, found in bins.items()}
            sides[side].append(ScoredRecords(scores, losses[name].labels[count], cells))
    persons = sum(len(part.labels) for parts in sides.values() for part in parts)
    return audit_header(layout, sides, persons if linked else 0)


def _slices(
    plan: Plan, layout: AuditLayout, dataset: Dataset, scaling: FeatureScaling | None, question: AuditQuestion
) -> NDArray[np.bool_]:
    """Return which records are in which of the slices that are asked for: (n, slices)."""
    if layout.sliced is None or not question.slices:
        return np.zeros((len(dataset), 0), bool)
    columns = FinePlaces(plan, layout.sliced.columns)
    places = columns.of(partial(column_of, dataset.features), len(dataset), scaling)
    return question.members(places, layout.sliced)


def counted_records(splits: Splits) -> tuple[dict[str, NDArray[np.bool_]], bool]:
    """Return by split which records (n,) count, and whether they are of persons whom another site may know."""
    held = {name: found for name in ("train", "validation", "test") if (found := _split(splits, name)) is not None}
    digests = {name: record_digests(dataset) for name, dataset in held.items()}
    column = splits.train.person_column
    if column is None:
        often = Counter(digest for each in digests.values() for digest in each)
        return {name: np.array([often[one] == 1 for one in each], bool) for name, each in digests.items()}, False
    counted = {name: np.zeros(len(each), bool) for name, each in digests.items()}
    first: dict[str, tuple[str, str, int]] = {}
    for name, dataset in held.items():
        for at, (person, digest) in enumerate(zip(dataset.columns[column], digests[name], strict=True)):
            own = (digest, name, at)
            first[str(person)] = min(first.get(str(person), own), own)
    for _, name, at in first.values():
        counted[name][at] = True
    return counted, True


def _split(splits: Splits, name: str) -> Dataset | None:
    found: Dataset | None = getattr(splits, name)
    return found
