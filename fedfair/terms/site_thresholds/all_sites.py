"""The own thresholds of all collaborators at once, as one array; `SiteThresholds` has that of one.

All sites are in every sum here, so that one round counts all of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.errors import LocalProtocolError
from fedfair.plan.schema import Plan
from fedfair.terms.site_thresholds.state import ReportedThreshold, renewed_threshold

Members = NDArray[np.int64]
"""Numbers of collaborators."""


class PooledThresholds:
    """The thresholds of all sites; those of a round that is repeated are made again.

    Args:
        plan: a plan whose sites keep thresholds of their own.
        count: how many collaborators there are.
        classes: how many there are.
    """

    def __init__(self, plan: Plan, count: int, classes: int) -> None:
        self._plan, self._reported = plan, ReportedThreshold(plan, classes)
        self._round = 0
        self._own = self._renewed = np.zeros(count)

    def begin(self, request: SumRequest, model: GlobalModel) -> NDArray[np.float64]:
        """Bring the thresholds to what the run counts before a round; return them: float64 array (collaborators,).

        Raises:
            LocalProtocolError: the run does not count the last round of all sites.
        """
        counted = request.terms.get("variates")
        last = set() if counted is None else set(counted.rounds)
        if last != {int(request.round) - 1}:
            raise LocalProtocolError(
                f"round {request.round} counts {sorted(last)}, not the last round of all sites"
            )
        if self._round != int(request.round):
            self._own, self._round = self._renewed, int(request.round)
        if self._round == 1:
            self._own = np.full(len(self._own), model.threshold)
        self._renewed = self._own.copy()
        return self._own

    def adding(self, model: GlobalModel, group: Members, moved: NDArray[np.float64]) -> NDArray[np.float64]:
        """Keep what the thresholds of a group become; return what each tells of its own: float64 array (k,).

        Args:
            model: of the state that asks for the round.
            group: who.
            moved: float64 array (k,), what the local steps did to them.
        """
        shared, pairs = model.threshold, zip(self._own[group].tolist(), moved.tolist(), strict=True)
        told = np.array([self._reported(shared, start, change) for start, change in pairs])
        self._renewed[group] = [renewed_threshold(self._plan, shared, each) for each in told.tolist()]
        return told
