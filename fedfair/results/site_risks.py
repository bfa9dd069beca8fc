"""The figures of single sites in a result: their means over each split, where it may tell of them. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from fedfair.aggregation.site_means import SplitMeans
from fedfair.fairness.record_losses import SiteLosses
from fedfair.results.frozen import given
from fedfair.results.risks import CollaboratorRisk, MeanRisk
from fedfair.run.training_run import RunResult

Sites: TypeAlias = dict[str, CollaboratorRisk | None]


def reported_sites(run: RunResult) -> Sites:
    """Return what the evaluation's sum tells of each site; null of one that was missing or has too few records."""
    return {name: site_risk(means, None) if means else None for name, means in run.site_means.items()}


def own_means(site: SiteLosses) -> dict[str, SplitMeans]:
    """Return the means of one site over each split, from its losses."""
    return {
        name: SplitMeans(
            len(split.values),
            float(split.values.mean()),
            None if split.correct is None else float(split.correct.mean()),
        )
        for name, split in site.items()
    }


def site_risk(site: Mapping[str, SplitMeans], untold: int | None) -> CollaboratorRisk:
    """Return the means of one site: of its training records, and under their names of the other splits.

    Args:
        site: by split, for the reported splits.
        untold: the number of training records where these are not.
    """
    others: dict[str, Any] = {
        name: MeanRisk(n=split.n, mean=split.mean, **given(accuracy=split.accuracy))
        for name, split in site.items()
        if name != "train"
    }
    train = site.get("train")
    if train is None:
        return CollaboratorRisk(n=untold, mean=None, accuracy=None, **others)
    return CollaboratorRisk(n=train.n, mean=train.mean, **given(accuracy=train.accuracy), **others)
