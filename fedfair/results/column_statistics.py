"""Statistics of columns in a result, and the result of a run that makes nothing else.

Decides which numbers are reported. Without noise none that rests on fewer records than the plan's
`statistics.min_group`; where counts add up to a reported number, the least of the others are null too, until those
that are null are of enough records together. Under noise nobody knows on how many records a number rests: it is
reported where its own estimate is beyond min_group by what the noise exceeds with a chance of 1 % at most. So a
number of too few records is reported with that chance. What is null is hidden from readers of the result. The
opened sum itself is known to every site and to the aggregator, and noise alone protects records there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from fedfair.aggregation.column_statistics import Estimate, StatisticsSummary
from fedfair.errors import LocalProtocolError
from fedfair.plan.schema import Plan
from fedfair.plan.statistics_section import StatisticsSection
from fedfair.privacy.shared_noise import SharedNoise, multiplier_epsilon
from fedfair.privacy.statement import SampleLevelFacts, sample_level_sentence
from fedfair.results.costs import Basis, SumCost, traffic_summary
from fedfair.results.document import FORMAT, ResultDocument
from fedfair.results.parts import Timing
from fedfair.results.statistics_fields import StatisticRow, StatisticsFields
from fedfair.results.survey import reported_together
from fedfair.results.writing import Setting, plan_in_words, protection_of
from fedfair.version import __version__

CHANCE = 0.01
"""Of a number that rests on too few records, to be reported under noise."""

NO_ALGORITHM = "none"

_SIMULATED = (
    "this is a simulation, whose noise follows from the plan's seed and protects nobody; a deployment of this "
    "plan would state: "
)
_EXACT = "no noise was added: every number is exact, and no epsilon covers the records"


def statistics_result(
    plan: Plan,
    plan_digest: str,
    found: StatisticsSummary,
    setting: Setting,
    *,
    seconds: float | None,
    costs: Sequence[SumCost] | None,
) -> ResultDocument:
    """Return the result of a run of statistics.

    Args:
        plan: the plan that was run.
        plan_digest: its digest, "sha256:" and 64 hex digits.
        found: what its sum says.
        setting: simulation or deployment.
        seconds: how long the run took; None where that is not known.
        costs: what every sum cost; None where that is not known.
    """
    basis = Basis.COMPUTED if setting is Setting.SIMULATION else Basis.MEASURED
    return ResultDocument(
        format=FORMAT,
        setting=setting.value,
        plan_digest=plan_digest,
        plan=plan_in_words(plan),
        algorithm=NO_ALGORITHM,
        rounds=0,
        threshold=0.0,
        train=None,
        test=None,
        secure_aggregation=protection_of(plan, setting),
        timing=None if seconds is None else Timing(seconds=seconds, rounds_per_second=None, rounds=None),
        traffic=None if costs is None else traffic_summary(costs, basis),
        versions={"fedfair": __version__},
        statistics=statistics_fields(plan, found, setting),
    )


def statistics_fields(plan: Plan, found: StatisticsSummary, setting: Setting) -> StatisticsFields:
    """Return what a result tells of statistics.

    Args:
        plan: which asked for them.
        found: what their sum says.
        setting: of the run.

    Raises:
        LocalProtocolError: the plan asks for none.
    """
    stated, noise = plan.statistics, found.layout.noise
    if stated is None:
        raise LocalProtocolError("this plan asks for no statistics of columns")
    if noise is None:
        rows = tuple(_exact_rows(found.estimates, stated.min_group))
        return StatisticsFields(by=stated.by, min_group=stated.min_group, statement=_EXACT, rows=rows)
    least = stated.min_group + noise.reach(found.members, CHANCE)
    preface = _SIMULATED if setting is Setting.SIMULATION else ""
    return StatisticsFields(
        by=stated.by,
        min_group=stated.min_group,
        statement=preface + noise_statement(stated, noise),
        rows=tuple(_row(each, shown=each.records >= least) for each in found.estimates),
        least_reported=least,
        noise_deviation=noise.deviation(found.members),
        epsilon=stated.epsilon,
        delta=stated.delta,
        honest_shares=noise.shares,
    )


def noise_statement(stated: StatisticsSection, noise: SharedNoise) -> str:
    """Return what the noise of one sum promises to the records of every site."""
    release = noise.release
    spent = multiplier_epsilon(release.noise_multiplier, stated.delta)
    facts = SampleLevelFacts("any one collaborator", (release,), spent, stated.delta, "RDP")
    return f"{sample_level_sentence(facts)} It holds where {noise.shares} honest shares of noise are in the sum."


def _exact_rows(estimates: Sequence[Estimate], fewest: int) -> Iterator[StatisticRow]:
    for (_, _, statistic), run in groupby(estimates, lambda each: (each.group, each.column, each.statistic)):
        held = list(run)
        if statistic == "count":
            told = reported_together([round(each.records) for each in held], fewest)
            yield from (_row(each, shown=count is not None) for each, count in zip(held, told, strict=True))
        else:
            yield from (_row(each, shown=each.records >= fewest) for each in held)


def _row(found: Estimate, *, shown: bool) -> StatisticRow:
    value = found.value if shown else None
    if value is not None and found.statistic != "mean":
        value = float(round(value))
    error = None if value is None else found.error
    return StatisticRow(
        column=found.column,
        group=found.group,
        statistic=found.statistic,
        cell=found.cell,
        value=value,
        error=error,
    )
