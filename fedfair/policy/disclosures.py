"""The readable information that leaves a site under a plan, in kinds that its policy can allow or refuse.

A masked sum shows nothing but the sum. So what counts is what is known once the sums are open: sums over
all sites, or something about one site, one group, one record. `plan.algorithms` says it of every algorithm, the
table of statistics of every other sum, and this module of a whole plan. What plain sums show on top is the
term `allow_plain_sums`, what `site_means` publishes the term `publish_site_means`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedfair.plan.fields import Disclosure
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.statistics.table import Purpose

MEANING: Mapping[Disclosure, str] = {
    kind: words for purpose in Purpose for kind, words in purpose.statistic.meanings.items()
}
"""Every kind, and what it is."""

SUMS_ONLY: tuple[Disclosure, ...] = tuple(
    kind for kind in MEANING if kind not in {"group-losses", "site-losses", "site-updates", "records"}
)
"""Everything that deployments disclose; nothing of it is about one site.

A site allows `loss-quantiles`, `score-sums`, `survey-sums`, `reference-sums`, `slice-sums` and `slice-outcomes` by
name.
"""


def of_evaluation(plan: Plan) -> dict[Disclosure, str]:
    """Return the kinds that an evaluation under a plan discloses, each with what in the plan asks for it."""
    rows = ((purpose, purpose.statistic) for purpose in Purpose)
    return _disclosed(plan, (purpose for purpose, row in rows if row.is_on_demand and row.planned(plan)))


def of_run(plan: Plan) -> dict[Disclosure, str]:
    """Return the kinds that a whole run of a plan discloses, each with what in the plan asks for it."""
    return _disclosed(plan, schedule_of(plan).purposes)


def _disclosed(plan: Plan, purposes: Iterable[Purpose]) -> dict[Disclosure, str]:
    found: dict[Disclosure, str] = {}
    for purpose in purposes:
        row = purpose.statistic
        asked = row.asked_by(plan)
        found |= {disclosure: row.asked_more_by.get(disclosure, asked) for disclosure in row.discloses(plan)}
    return found
