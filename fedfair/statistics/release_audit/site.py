"""What one site adds to a release audit: counts of its records by the scores of the attacks."""

from __future__ import annotations

from itertools import starmap

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.audit_sums import AuditQuestion, audit_layout
from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.errors import LocalProtocolError
from fedfair.plan.derived import audited_splits, measures_excess
from fedfair.terms.at_sites import Remembered
from fedfair.training.audited_records import Unseen, audit_addend
from fedfair.training.reference_training import unseen_losses
from fedfair.training.site_statistics import AllSites, Contribute, SiteParts, SiteStatistic, added


def _at_site(parts: SiteParts) -> Contribute:
    records, plan = parts.records, parts.records.plan
    layout, splits = audit_layout(plan, records.splits.train.schema), ("train", *audited_splits(plan))

    def contribution(request: SumRequest, model: GlobalModel, _remembered: Remembered) -> Contribution:
        """Return the header of `aggregation.audit_sums`.

        Raises:
            LocalProtocolError: these records are protected, and an audit carries no noise.
        """
        if parts.protection is not None:
            raise LocalProtocolError("a release audit of protected records carries no noise")
        question = AuditQuestion.of(request.asked, layout)
        found, replaced = records.summable_losses(model, splits)
        unseen = records.unseen_losses() if measures_excess(plan) else {}
        header = audit_addend(plan, records.splits, records.scaling, question, found, unseen)
        return parts.header_only(header, replaced)

    return contribution


def _at_all_sites(sites: AllSites, request: SumRequest, model: GlobalModel) -> NDArray[np.float64]:
    """Return the sum of what each site adds."""
    plan = sites.plan
    question = AuditQuestion.of(request.asked, audit_layout(plan, sites.sites[0].train.schema))
    losses = sites.losses(model, ("train", *audited_splits(plan)))
    nothing: list[Unseen] = [{} for _ in sites.names]
    unseen = starmap(unseen_losses, sites.reference_parts()) if measures_excess(plan) else nothing
    each = zip(sites.sites, losses, unseen, strict=True)
    return added(audit_addend(plan, own, sites.scaling, question, found, theirs) for own, found, theirs in each)


SITE = SiteStatistic(_at_site, _at_all_sites)
