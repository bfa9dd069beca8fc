"""What one site adds to an evaluation: the header of `aggregation.evaluation_sums` over its own losses.

Zeros stand for a split without records. Where the plan publishes the means of every site, a site's row follows
among the others' zeros.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.evaluation_sums import confused_classes, planned_layout
from fedfair.aggregation.requests import GlobalModel, SumRequest, histogram_spec
from fedfair.plan.derived import published_sites
from fedfair.privacy.planned_releases import sample_level_of
from fedfair.privacy.releases import GaussianRelease
from fedfair.terms.at_sites import Remembered
from fedfair.training.dp_statistics import noised_evaluation_header
from fedfair.training.site_statistics import AllSites, Contribute, SiteParts, SiteStatistic
from fedfair.training.statistics import evaluation_header, fill_row


def _at_site(parts: SiteParts) -> Contribute:
    records, protection, plan = parts.records, parts.protection, parts.records.plan
    schema, histogram, published = records.splits.train.schema, records.histogram, published_sites(plan)

    def contribution(request: SumRequest, model: GlobalModel, _remembered: Remembered) -> Contribution:
        losses, replaced = records.evaluated(model)
        about = (losses, records.objective, model.threshold)
        if protection is not None:
            noise = sample_level_of(plan).evaluation_noise_multiplier
            if losses:
                protection.record(GaussianRelease("evaluation", noise, 1.0, 1))
            draws = protection.draws("evaluation", int(request.round), request.attempt)
            classes = confused_classes(plan, schema)
            return parts.header_only(noised_evaluation_header(*about, histogram, classes, noise, draws))
        layout = planned_layout(plan, schema)
        header = evaluation_header(*about, plan.task.loss, histogram, layout)
        if records.participant in published:
            row = layout.read(header)["sites"][published.index(records.participant)]
            fill_row(row, losses, histogram, plan.evaluation.min_group)
        return parts.header_only(header, replaced)

    return contribution


def _at_all_sites(sites: AllSites, _request: SumRequest, model: GlobalModel) -> NDArray[np.float64]:
    """Return the blocks of all records together, which are the sums of the sites' blocks."""
    plan, schema, losses = sites.plan, sites.sites[0].train.schema, sites.pooled_losses(model)
    by_site, histogram, published = sites.evaluated(losses), histogram_spec(plan, schema), published_sites(plan)
    held = {name: found for name, found in losses.items() if len(found.values)}
    layout = planned_layout(plan, schema)
    header = evaluation_header(held, sites.objective, model.threshold, plan.task.loss, histogram, layout)
    if published:
        rows = layout.read(header)["sites"]
        for name, site in zip(sites.names, by_site, strict=True):
            fill_row(rows[published.index(name)], site, histogram, plan.evaluation.min_group)
    return header


SITE = SiteStatistic(_at_site, _at_all_sites)
