"""What one site adds to a sum of the references: their weighted changes, and their losses on unseen records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.errors import LocalProtocolError
from fedfair.terms.at_sites import Remembered
from fedfair.training.reference_training import reference_addend
from fedfair.training.site_statistics import AllSites, Contribute, SiteParts, SiteStatistic, added


def _at_site(parts: SiteParts) -> Contribute:
    records = parts.records

    def contribution(request: SumRequest, _model: GlobalModel, _remembered: Remembered) -> Contribution:
        """Return the header of `aggregation.reference`.

        Raises:
            LocalProtocolError: the references that it is about have not arrived.
        """
        place, references = (request.part, request.attempt), records.references
        if references is None:
            raise LocalProtocolError("a sum of the references is asked for, and no references have arrived")
        about = records.reference_setting, records.participant, records.placed["train"], references
        return parts.header_only(reference_addend(*about, place, records.model.flat))

    return contribution


def _at_all_sites(sites: AllSites, request: SumRequest, _model: GlobalModel) -> NDArray[np.float64]:
    place = request.part, request.attempt
    return added(
        reference_addend(setting, site, records["train"], references, place, like)
        for setting, site, records, references, like in sites.reference_parts()
    )


SITE = SiteStatistic(_at_site, _at_all_sites)
