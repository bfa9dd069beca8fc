"""What several algorithms ask a cohort for, in the form in which they use it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedfair.learning.cohort import Cohort
from fedfair.learning.exchange import GlobalModel
from fedfair.learning.simplex import Vector


def present(cohort: Cohort) -> list[int]:
    """Return the collaborators that have training records, in their order."""
    return [int(member) for member in np.flatnonzero(cohort.counts)]


def shares(cohort: Cohort, members: Sequence[int]) -> Vector:
    """Return the members' weights as shares of their sum (p): array (members,)."""
    weights: Vector = cohort.weights[members]
    return weights / float(weights.sum())


def mean_losses(cohort: Cohort, model: GlobalModel, members: Sequence[int]) -> Vector:
    """Return the mean training loss of each member, in nats (F): array (members,)."""
    found = cohort.losses(model)
    return np.array([found[member]["train"].values.mean() for member in members])
