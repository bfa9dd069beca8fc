"""What one site adds to statistics of columns: what was counted when its records were read, and a share of noise.

A site without records adds its share all the same: the promise of all others counts on it.
"""

from __future__ import annotations

from fedfair.aggregation.column_statistics import statistics_layout
from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.errors import LocalProtocolError
from fedfair.terms.at_sites import Remembered
from fedfair.training.site_statistics import Contribute, SiteParts, SiteStatistic, added
from fedfair.training.statistics import column_counts_of


def _at_site(parts: SiteParts) -> Contribute:
    records, protection = parts.records, parts.protection
    layout = statistics_layout(records.plan)

    def contribution(request: SumRequest, _model: GlobalModel, _remembered: Remembered) -> Contribution:
        """Return the header of `aggregation.column_statistics`, with this site's share of the noise.

        Raises:
            PrivacyError: the site cannot afford the release, or cannot write it down.
        """
        counted = column_counts_of(records.splits)
        own = layout.header.zeros() if counted is None else counted
        if layout.noise is None:
            return parts.header_only(own)
        if protection is None:
            raise LocalProtocolError("statistics under noise need entropy and a ledger")
        if len(records.splits.train):
            protection.record(layout.noise.release)
        seed = protection.entropy(request.purpose.value, request.attempt)
        return parts.header_only(own + layout.noise.share(len(own), seed))

    return contribution


SITE = SiteStatistic(
    _at_site,
    lambda sites, *_: added(
        statistics_layout(sites.plan).header.zeros() if counted is None else counted
        for counted in map(column_counts_of, sites.sites)
    ),
)
