"""An observer that keeps the status of a site's part in a run, for those who watch it over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from collaborator.notices import Notice
from collaborator.observer import Measure
from collaborator.preparation import Readiness
from collaborator.status_fold import SiteNews, fold_site
from fedfair.ids import AGGREGATOR
from fedfair.watching.run_status import RunStatus, over


def site_status(ready: Readiness, now: datetime) -> RunStatus:
    """Return the status of a site that is about to connect."""
    site = ready.site
    return RunStatus(
        role="collaborator",
        name=site.participant,
        federation=site.plan.federation.name,
        rounds_total=site.plan.training.rounds,
        worst_group_size=site.plan.objective.worst_group_size,
        loss_unit=site.plan.task.loss.unit,
        sites=(AGGREGATOR,),
        started=now,
        awaited={AGGREGATOR: now},
        certificate_ends=site.identity().certificate.not_valid_after_utc,
    )


class SiteStatusObserver:
    """Keeps the status.

    Args:
        status: at the beginning.
        clock: the time, with a time zone.

    Attributes:
        status: the present one.
    """

    def __init__(self, status: RunStatus, clock: Callable[[], datetime]) -> None:
        self.status = status
        self._clock = clock

    def noticed(self, notice: Notice) -> None:
        """Fold it in."""
        self._take(notice)

    def measured(self, measure: Measure) -> None:
        """Fold it in."""
        self._take(measure)

    def close(self) -> None:
        """Note that this site's part is over."""
        self.status = over(self.status, self._clock())

    def _take(self, news: SiteNews) -> None:
        self.status = fold_site(self.status, news, self._clock())
