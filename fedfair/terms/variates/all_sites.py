"""The control variates of all collaborators at once, as rows of one array; `SiteVariates` has those of one.

All sites are in every sum here, so that one round counts all of them.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.aggregation.requests import SumRequest
from fedfair.errors import LocalProtocolError
from fedfair.plan.schema import Plan
from fedfair.terms.drift import Drift
from fedfair.terms.kept import CountedVariates
from fedfair.terms.variates.state import Pace

Members = NDArray[np.int64]
"""Numbers of collaborators."""


class PooledVariates:
    """The variates of all sites; those of a round that is repeated are made again.

    Args:
        plan: a plan with control variates.
        count: how many collaborators there are.
        dimension: of the model, every entry of which is trained.
    """

    def __init__(self, plan: Plan, count: int, dimension: int) -> None:
        self._plan = plan
        self._round, self._loss_unit = 0, 1.0
        self._own = np.zeros((count, dimension + 1))
        self._renewed = self._own

    def begin(self, request: SumRequest) -> CountedVariates:
        """Bring the variates to what the run counts before a round; return that.

        Raises:
            LocalProtocolError: the run does not count the last round of all sites.
        """
        counted = request.terms.get("variates")
        last = set(counted.rounds) if isinstance(counted, CountedVariates) else set()
        if not isinstance(counted, CountedVariates) or last != {int(request.round) - 1}:
            raise LocalProtocolError(
                f"round {request.round} counts {sorted(last)}, not the last round of all sites"
            )
        self._loss_unit = request.loss_unit
        if self._round != int(request.round):
            self._own, self._round = self._renewed, int(request.round)
        self._renewed = self._own.copy()
        return counted

    def drift(self, counted: CountedVariates, group: Members, like: Tensor) -> Drift:
        """Return what corrects the steps of a group, on the device and in the width of `like`."""
        mean = counted.mean
        rows = np.append(mean.vector, mean.threshold) - self._own[group]
        moved = torch.from_numpy(rows).to(like)
        return Drift(moved[:, :-1], moved[:, -1:])

    def adding(
        self, counted: CountedVariates, group: Members, changes: Tensor, thresholds: NDArray[np.float64]
    ) -> None:
        """Keep what the variates of a group become, once the sum counts its changes.

        Args:
            counted: as `begin` returned it.
            group: who.
            changes: tensor (k, d), as they are added, not weighted.
            thresholds: array (k,), the same of the thresholds.
        """
        mean, pace = counted.mean, Pace.of_round(self._plan, self._round, self._loss_unit)
        rows = self._own[group] - np.append(mean.vector, mean.threshold)
        rows[:, :-1] -= changes.double().cpu().numpy() / pace.model
        if pace.threshold is not None:
            rows[:, -1] -= thresholds / pace.threshold
        self._renewed[group] = rows

    def new_weight(self, weights: NDArray[np.float64]) -> float:
        """Return the weight of those whom this round counts for the first time."""
        return float(weights.sum()) if self._round == 1 else 0.0
