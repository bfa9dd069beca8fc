"""What one site adds to a survey: the header that was made when its records were read."""

from __future__ import annotations

from fedfair.training.site_statistics import SiteStatistic, added
from fedfair.training.statistics import survey_header_of

SITE = SiteStatistic(
    lambda parts: lambda *_: parts.header_only(survey_header_of(parts.records.splits)),
    lambda sites, *_: added(map(survey_header_of, sites.sites)),
)
