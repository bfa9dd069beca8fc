"""Parameters that sites keep to themselves: which of them the state counts.

Site k makes the steps of a round at (theta, kappa_k): the shared part as it was broadcast, its own as it was after
the last round that counted it. Only the change of theta is in the sum. The state holds the last round that counted
each site, so that a sum that is lost, repeated or opened without a site leaves its own part as it was. Evaluations
are of (theta, kappa_k) too. Sources: Arivazhagan et al. 2019; Li et al. 2021. No torch: the aggregator imports it.
"""

from __future__ import annotations

from fedfair.plan.derived import keeps_parameters
from fedfair.terms.kept import SitesCounted
from fedfair.terms.term import TermSetting

applies = keeps_parameters


class KeptParametersRule(SitesCounted):
    """The counting of one plan whose sites keep a part of the model."""

    is_read_in_every_sum = True


def rule(setting: TermSetting) -> KeptParametersRule:
    """Return the counting of a plan whose sites keep a part of the model."""
    return KeptParametersRule(setting.plan)
