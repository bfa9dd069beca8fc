"""Checks what one site may still release under one plan: its ledger, its budget and its policy.

Decides what a plan costs before anything is sent, and writes down each release while it may still be withheld. The
file is `ledger.py`'s, the arithmetic `fedfair.privacy.budget`'s. A ledger is about one body of people: whatever is
in it adds up, unless the site gives data sets names (`data.name`), by which it promises that nobody is in two of
them. What was released without a name may be anybody's and adds up with everything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from collaborator.ledger import Ledger
from fedfair.aggregation.column_statistics import statistics_noise
from fedfair.errors import PrivacyError
from fedfair.plan.derived import earlier_plans
from fedfair.plan.derived import trains as trains_model
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.budget import Budget, Limit, largest, remaining
from fedfair.privacy.entries import LedgerEntry, Origin, Written
from fedfair.privacy.planned_releases import planned_releases, training_release
from fedfair.privacy.releases import GaussianRelease, Unprotected
from fedfair.statistics.table import Purpose

_LOOK = "`fedfair privacy show` tells where it went"


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a privacy budget, and the plan that it is charged for.

    Attributes:
        plan: the plan.
        config: the site's own file, with budget, policy and the name of its data set.
        origin: who releases, of whom.
        records: training records of this site.
    """

    plan: Plan
    config: SiteConfig
    origin: Origin
    records: int


class PrivacyBudget:
    """The privacy budget of one site under one plan; one thread uses it at a time.

    Args:
        ledger: where releases are written down.
        holder: for whom.
        clock: returns an aware time.

    Attributes:
        forecast: in words, what the plan will cost this site and what that leaves.

    Raises:
        PrivacyError: the ledger cannot be used, or the site cannot afford to begin.
    """

    def __init__(self, ledger: Ledger, holder: Holder, clock: Callable[[], datetime]) -> None:
        self._ledger = ledger
        self._origin = holder.origin
        self._clock = clock
        self._unprotected: set[str] = set()
        entries = ledger.look()
        self._limits = limits_of(holder, entries)
        self.forecast = forecast(holder, entries)

    def record(self, release: Written) -> None:
        """Write a release down, before its noise is drawn.

        Raises:
            PrivacyError: the site cannot afford it, or it cannot be written; it must not happen.
        """

        def permit(fresh: Sequence[LedgerEntry]) -> None:
            _count(self._limits, fresh)
            for limit in self._limits:
                limit.check(release)

        entry = LedgerEntry(self._clock().isoformat(timespec="seconds"), self._origin, release)
        self._ledger.record(entry, permit)
        _count(self._limits, (entry,))

    def record_unprotected(self, purpose: Purpose) -> None:
        """Write down that this site is about to add to a sum without noise for its records.

        Raises:
            PrivacyError: it has a budget, or it cannot be written; it must not add anything.
        """
        release = purpose.statistic.release
        if release not in self._unprotected:
            # One line for a run says all that will ever be said of it.
            self.record(Unprotected(release))
            self._unprotected.add(release)


def limits_of(holder: Holder, entries: Sequence[LedgerEntry]) -> tuple[Limit, ...]:
    """Return what bounds this site's releases under the plan, with what was spent already."""
    limits = tuple(_limits(holder.plan, holder.config, holder.origin))
    _count(limits, entries)
    return limits


def _limits(plan: Plan, config: SiteConfig, own: Origin) -> Iterator[Limit]:
    if config.budget is not None:
        budget = Budget(config.budget.epsilon, config.budget.delta)
        whose = "this site" if own.data_set is None else f"the data set {own.data_set!r}"
        remedy = f"{_LOOK}; raise `budget` in collaborator.yaml if those whose records these are would agree"
        yield Limit(f"the budget of {whose}", budget, functools.partial(_may_share, own), remedy)
    asked, most = plan.privacy.sample_level, config.policy.max_epsilon
    if most is not None:
        stated = asked or plan.statistics
        budget = Budget(most) if stated is None else Budget(most, stated.delta)
        remedy = f"{_LOOK}; raise policy.max_epsilon in collaborator.yaml if you agree"
        same = functools.partial(_same_plan, own, earlier_plans(plan))
        yield Limit("policy.max_epsilon of this site", budget, same, remedy)


def _may_share(own: Origin, other: Origin) -> bool:
    return own.may_share_records(other)


def _same_plan(own: Origin, earlier: Collection[str], other: Origin) -> bool:
    """Return whether a release was made under this plan, or under one whose run it continues."""
    return other.plan_digest == own.plan_digest or other.plan_digest in earlier


def _count(limits: Sequence[Limit], entries: Sequence[LedgerEntry]) -> None:
    for limit in limits:
        for entry in entries:
            limit.count(entry)


# ------------------------------------------------------------------ before anything is sent


def forecast(holder: Holder, entries: Sequence[LedgerEntry]) -> tuple[str, ...]:
    """Return in words what a plan will cost a site whose ledger holds these entries, and what that leaves.

    Raises:
        PrivacyError: the site cannot afford to begin.
    """
    return tuple(_forecast(holder, limits_of(holder, entries), entries))


def _forecast(holder: Holder, limits: Sequence[Limit], entries: Sequence[LedgerEntry]) -> Iterator[str]:
    plan, asked = holder.plan, holder.plan.privacy.sample_level
    if plan.statistics is not None and plan.statistics.epsilon is not None:
        yield from _statistics_forecast(holder, limits, entries)
        return
    if asked is None:
        for limit in limits:
            limit.check(Unprotected("training" if trains_model(plan) else "statistics"))
        yield "this plan adds no noise for single records, and the ledger notes that no epsilon covers them"
        return
    trains = "training" in holder.config.policy.purposes
    rounds = plan.training.rounds if trains else 0
    records = holder.records if trains else 0
    cost = epsilon(planned_releases(plan, records, rounds), asked.delta)
    what = f"{rounds} rounds" if trains else "an evaluation"
    yield f"{what} of this plan cost epsilon {cost:.4g} at delta {asked.delta:g}, if no sum is repeated"
    _check_cost(holder, cost)
    first = training_release(plan, records) if records else planned_releases(plan, 0, 0)[0]
    released = [entry.release for entry in entries if _same_plan(holder.origin, earlier_plans(plan), entry.origin)]
    spent = [release for release in released if isinstance(release, GaussianRelease)]
    for limit in limits:
        limit.check(first)

        def affords(done: int, limit: Limit = limit) -> bool:
            return limit.affords(remaining(planned_releases(plan, records, done), spent))

        done = largest(affords, rounds)
        if done == rounds:
            yield limit.words(remaining(planned_releases(plan, records, rounds), spent))
        else:
            yield f"{limit.words()}; it ends in round {done + 1} of {rounds}, and this site will withdraw then"


def _statistics_forecast(holder: Holder, limits: Sequence[Limit], entries: Sequence[LedgerEntry]) -> Iterator[str]:
    """Yield what statistics cost; a study of them may follow on any other, so that a budget must bound them all.

    Raises:
        PrivacyError: the site states no budget, or cannot afford the sum.
    """
    noise, stated = statistics_noise(holder.plan), holder.plan.statistics
    if noise is None or stated is None:
        return
    who, release = holder.origin.participant, noise.release
    if holder.config.budget is None:
        raise PrivacyError(
            f"the policy of {who} refuses this plan: what statistics cost adds up over all plans, and no budget "
            "bounds it",
            "state budget: {epsilon: ..., delta: ...} in collaborator.yaml",
        )
    cost = epsilon((release,), stated.delta)
    yield f"the statistics cost epsilon {cost:.4g} at delta {stated.delta:g}, and again for each repeated sum"
    _check_cost(holder, cost)
    if any(_same_plan(holder.origin, (), entry.origin) for entry in entries):
        return  # Its sum was answered: a start that hears how it ended must not be refused.
    for limit in limits:
        limit.check(release)
        yield limit.words((release,))


def _check_cost(holder: Holder, cost: float) -> None:
    most = holder.config.policy.max_epsilon
    if most is not None and cost > most:
        raise PrivacyError(
            f"the policy of {holder.origin.participant} refuses this plan: it costs this site epsilon {cost:.4g}, "
            f"policy.max_epsilon is {most:g}",
            "have the plan make fewer sums or add more noise, or raise policy.max_epsilon in collaborator.yaml "
            "if you agree",
        )
