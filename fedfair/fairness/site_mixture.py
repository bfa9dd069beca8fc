"""Carries population bounds over to sites in other proportions than those of the evaluated records.

Let Q be the population that mixes the sites' people in the proportions q_k = n_k / n of the evaluated records, and
P the one that mixes the same people in the proportions w_k that somebody declares. Let a group have at least the
share rho of P, and let r be the largest w_k / q_k. The mean of X over the group is

    E_P[X 1(group)] / P(group) = E_Q[X d],   d = (w_k / q_k) 1(group) / P(group)

where k is a person's site. The density d has the mean 1 under Q and is at most r / rho. The largest mean of X over
all such densities is CVaR of Q at the size rho / r (Rockafellar and Uryasev 2000, in its dual form). So a bound
for Q at the size rho / r is a bound for P at the size rho. It is reached where the worst group of P is at the
site with the largest ratio, and loose elsewhere: what is known is one histogram of all sites, not one of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedfair.errors import DataError

_ROUNDING = 1.0 + 2.0**-40
"""Far more than the sum of the weights and the quotients can lose."""


def largest_ratio(weights: Mapping[str, float], records: Mapping[str, int], total: int) -> float:
    """Return r, the largest quotient of a site's declared share and its share of the records; at least 1.

    Args:
        weights: by site, positive and finite, of any sum; a site that is not named counts nothing.
        records: evaluated records by site.
        total: evaluated records of all sites, those that are not named included.

    Raises:
        DataError: a site has a weight, but no evaluated records that are known.
    """
    whole = math.fsum(weights.values())
    unknown = [site for site in weights if not records.get(site)]
    if unknown:
        raise DataError(
            f"the weights name {', '.join(unknown)}, of whose evaluated records no number is known",
            "evaluate more of their records, or leave their weights out",
        )
    return max(1.0, max(weight / whole * total / records[site] for site, weight in weights.items()) * _ROUNDING)
