"""What one site adds to a round of training: its weight, and its weighted changes."""

from __future__ import annotations

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.terms.at_sites import Remembered
from fedfair.training.site_statistics import Contribute, SiteParts, SiteStatistic


def _at_site(parts: SiteParts) -> Contribute:
    def contribution(request: SumRequest, model: GlobalModel, remembered: Remembered) -> Contribution:
        return parts.rounds.contribution(model, request.round, request.attempt, remembered)

    return contribution


SITE = SiteStatistic(_at_site)
