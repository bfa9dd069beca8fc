"""What one site adds to a step of an exact evaluation: counts and sums of its losses by their keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.quantile_query import exact_header
from fedfair.aggregation.requests import GlobalModel, SumRequest, vector_sha256
from fedfair.errors import LocalProtocolError
from fedfair.fairness.record_losses import SiteLosses
from fedfair.plan.derived import reported_group_sizes
from fedfair.terms.at_sites import Remembered
from fedfair.training.site_statistics import AllSites, Contribute, SiteParts, SiteStatistic


def _at_site(parts: SiteParts) -> Contribute:
    records, groups = parts.records, len(reported_group_sizes(parts.records.plan))
    known: dict[tuple[int, bytes], tuple[SiteLosses, int]] = {}

    def contribution(request: SumRequest, model: GlobalModel, _remembered: Remembered) -> Contribution:
        """Return the header of `aggregation.quantile_query`.

        All steps must be about the very same numbers, which a device need not compute twice in the same way.

        Raises:
            LocalProtocolError: these records are protected, and an exact evaluation carries no noise.
        """
        if parts.protection is not None:
            raise LocalProtocolError("an exact evaluation of protected records carries no noise")
        subject = records.scalings, vector_sha256(model.vector)
        if subject not in known:
            known.clear()
            known[subject] = records.summable_losses(model)
        found, replaced = known[subject]
        values = {name: losses.values for name, losses in found.items()}
        return parts.header_only(exact_header(values, request.asked, groups), replaced)

    return contribution


def _at_all_sites(sites: AllSites, request: SumRequest, model: GlobalModel) -> NDArray[np.float64]:
    losses = {name: found.values for name, found in sites.pooled_losses(model).items()}
    return exact_header(losses, request.asked, len(reported_group_sizes(sites.plan)))


SITE = SiteStatistic(_at_site, _at_all_sites)
