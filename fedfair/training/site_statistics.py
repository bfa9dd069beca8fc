"""What one site adds to the sums of a statistic, and what all sites add at once where one process has all records.

Each statistic brings both in `site.py` of its room in `fedfair.statistics`, which is found by the name of the
room: the table of statistics may not import torch.
"""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.contribution import Contribution
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.errors import LocalProtocolError
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.record_losses import Losses, SiteLosses
from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.statistics.table import Purpose, room_of
from fedfair.tables.dataset import Splits
from fedfair.terms.at_sites import Remembered
from fedfair.training.dp_sgd import RecordProtection
from fedfair.training.local_records import LocalRecords
from fedfair.training.local_rounds import LocalRounds
from fedfair.training.reference_training import ReferenceParts


@dataclass(frozen=True, slots=True)
class SiteParts:
    """Everything of one site that its statistics are made from.

    Attributes:
        records: with the model.
        rounds: of training.
        protection: what the records are protected with; None where the plan asks for no differential privacy.
    """

    records: LocalRecords
    rounds: LocalRounds
    protection: RecordProtection | None

    def header_only(self, header: NDArray[np.float64], replaced: int = 0) -> Contribution:
        """Return the contribution to a sum that has no body."""
        return Contribution(header, np.zeros(0, self.records.model.layout.dtype), replaced)


Contribute = Callable[[SumRequest, GlobalModel, Remembered], Contribution]
"""Returns what one site adds, from the request, the broadcast model, and what the terms remember."""


class AllSites(Protocol):
    """All sites in one process: what a statistic needs to compute the sum of their headers at once.

    Attributes:
        plan: the plan.
        names: who they are.
        sites: the records of each, unscaled.
        objective: in the unit of the present scaling.
        scaling: of the features; None where they are not scaled.
    """

    plan: Plan
    names: tuple[ParticipantId, ...]
    sites: tuple[Splits, ...]
    objective: Objective
    scaling: FeatureScaling | None

    def reference_parts(self) -> Iterable[ReferenceParts]:
        """Return of each site what sums about references are computed from."""

    def pooled_losses(self, model: GlobalModel) -> dict[str, Losses]:
        """Return the losses of the records of all sites together, by split."""

    def losses(self, model: GlobalModel, splits: Collection[str]) -> Sequence[SiteLosses]:
        """Return the losses of each site, for those of the splits that have records."""

    def evaluated(self, losses: dict[str, Losses]) -> Sequence[SiteLosses]:
        """Keep the pooled losses of an evaluation; return each site's own."""


@dataclass(frozen=True, slots=True)
class SiteStatistic:
    """What a room brings in `site.py`.

    Attributes:
        at_site: returns what one site adds, from its parts.
        at_all_sites: returns the header that all sites add together; None where a sum has a body.
    """

    at_site: Callable[[SiteParts], Contribute]
    at_all_sites: Callable[[AllSites, SumRequest, GlobalModel], NDArray[np.float64]] | None = None


def site_statistic(purpose: Purpose) -> SiteStatistic:
    """Return what the room of a statistic brings for sites."""
    found = importlib.import_module(f"{room_of(purpose)}.site").SITE
    if not isinstance(found, SiteStatistic):
        raise LocalProtocolError(f"{room_of(purpose)}.site.SITE is no SiteStatistic")
    return found


def added(headers: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the sum of headers, one after the other as sites would add them."""
    return functools.reduce(operator.add, headers)
