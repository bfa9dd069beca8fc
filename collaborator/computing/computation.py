"""Where a site computes, as the rest of the service sees it: in its own process, or in another one.

Nothing on this side of it holds a record; the service knows how many there are, and what they look like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from collaborator.privacy_budget import PrivacyBudget
from fedfair.news.event import News
from fedfair.tables.profile import DataProfile
from fedfair.tables.site_survey import SiteSurvey
from fedfair.tables.source import SiteRecords
from fedfair.training.across_devices import DeviceGroup
from fedfair.training.binding import PlanBinding
from fedfair.training.site_task import SiteTask


@dataclass(frozen=True, slots=True)
class KnownRecords:
    """What the service knows of its site's records.

    Attributes:
        training: how many there are to train on.
        held: how many there are, over all splits.
        profile: what they look like.
        withheld: in words for the operator, which do not take part, and why.
        survey: this site's part of the plan's survey; None where it has none.
        owners: by split, keyed hash of whose each record is, int64 (n,); empty where nothing says so.
    """

    training: int
    held: int
    profile: DataProfile
    withheld: tuple[str, ...] = ()
    survey: SiteSurvey | None = None
    owners: Mapping[str, NDArray[np.int64]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, found: SiteRecords) -> KnownRecords:
        """Return it of records that are in this process."""
        splits = found.splits
        held = len(splits.train), splits.records
        return cls(*held, found.profile, found.withheld, splits.survey, splits.owners)


class Computation(Protocol):
    """What computes for one site under one plan."""

    @property
    def words(self) -> tuple[str, ...]:
        """Return where it computes, and every protection that is missing there; known once the plan is bound."""

    def binding(self) -> PlanBinding:
        """Return what the plan is bound to; code of the plan may run. Raises FedfairError."""

    def records(self) -> KnownRecords:
        """Read the records. Raises FedfairError."""

    def task(self, binding: PlanBinding, account: PrivacyBudget | None) -> tuple[SiteTask, DeviceGroup | None]:
        """Put records and model together, after `binding` and `records`.

        Args:
            binding: of the plan.
            account: the site's privacy budget; None where it keeps none, or checks.

        Raises:
            FedfairError: they do not fit together, or do not fit the plan.
        """

    def take_notices(self) -> list[News]:
        """Return what there is to say to the operator, once."""

    def close(self) -> None:
        """End it; a computation that is under way fails."""
