"""What one site adds to a standardisation: the moments of the numeric columns of its training records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.aggregation.target_scaling import summed_units
from fedfair.errors import LocalProtocolError
from fedfair.privacy.planned_releases import sample_level_of
from fedfair.privacy.releases import GaussianRelease
from fedfair.terms.at_sites import Remembered
from fedfair.training.dp_statistics import noised_column_sums
from fedfair.training.site_statistics import AllSites, Contribute, SiteParts, SiteStatistic, added
from fedfair.training.statistics import standardisation_header, summed_columns


def _at_site(parts: SiteParts) -> Contribute:
    records, protection = parts.records, parts.protection

    def contribution(request: SumRequest, _model: GlobalModel, _remembered: Remembered) -> Contribution:
        """Return the header of `aggregation.feature_moments`.

        Raises:
            LocalProtocolError: the plan does not standardise, and so has not declared what scale noise needs.
        """
        if not records.standardises:
            raise LocalProtocolError("this plan does not standardise, so its columns are never summed")
        train, loss = records.splits.train, records.plan.task.loss
        if protection is None or not len(train):
            return parts.header_only(standardisation_header(train, loss))
        noise = sample_level_of(records.plan).standardisation_noise_multiplier
        protection.record(GaussianRelease("standardisation", noise, 1.0, 1))
        draws = protection.draws("standardisation", request.attempt)
        columns, units = summed_columns(train, loss), summed_units(loss, train.schema)
        return parts.header_only(noised_column_sums(columns, len(train), units, noise, draws))

    return contribution


def _at_all_sites(sites: AllSites, _request: SumRequest, _model: GlobalModel) -> NDArray[np.float64]:
    return added(standardisation_header(site.train, sites.plan.task.loss) for site in sites.sites)


SITE = SiteStatistic(_at_site, _at_all_sites)
