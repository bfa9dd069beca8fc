"""The metrics of a run for Prometheus, made of its status and of nothing else.

Names and units follow the conventions of Prometheus: base units, `_total` for counters, timestamps instead of
ages. `COUNTERS` and `GAUGES` are all that there is; a test holds them to what `result.json` and the notes say.
Counters reset when the process restarts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from fedfair.version import __version__
from fedfair.watching.run_status import RunStatus, WatchedState, up_to

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "fedfair_"

Series: TypeAlias = Mapping[tuple[str, ...], float]
"""The values of one metric by those of its labels."""


@dataclass(frozen=True, slots=True)
class MetricKind:
    """One metric: the words for its readers, and the names of its labels."""

    help: str
    labels: tuple[str, ...] = ()


COUNTERS: Mapping[str, MetricKind] = {
    "sums": MetricKind("Sums that were opened, or answered by this site.", ("purpose",)),
    "sum_seconds": MetricKind(
        "Seconds from asking for a sum to its total, or to this site's answer.", ("purpose",)
    ),
    "lost_sums": MetricKind("Attempts at a sum that had no total.", ("purpose",)),
    "unawaited_answers": MetricKind("Sites that a sum continued without.", ("purpose",)),
    "left_behind_answers": MetricKind(
        "Answers of this site that sums did not wait for, though it was connected.", ("site",)
    ),
    "refusals": MetricKind(
        "Refusals: at the aggregator by what was refused; at a site, sums that it takes no part in.", ("kind",)
    ),
    "received_bytes": MetricKind("Bytes of frames that arrived here, by the sum they belong to.", ("purpose",)),
    "sent_bytes": MetricKind("Bytes of frames that left here, by the sum they belong to.", ("purpose",)),
    "phase_seconds": MetricKind(
        "Seconds of the run by phase; waiting is the time without a sum.", ("purpose", "phase")
    ),
    "notices": MetricKind("Sentences to the operator, by kind.", ("event",)),
}
"""Counters that folds raise, by their names without prefix and suffix."""

GAUGES: Mapping[str, MetricKind] = {
    "run_info": MetricKind(
        "What is watched; always 1.", ("role", "name", "federation", "run_id", "version", "loss_unit")
    ),
    "run_state": MetricKind("1 for the state in which the run is, 0 for the others.", ("state",)),
    "planned_rounds": MetricKind("Training rounds of the plan."),
    "planned_sites": MetricKind("Sites of the plan; at a site, the aggregator alone."),
    "connected_sites": MetricKind("Sites that are connected."),
    "awaited_sites": MetricKind("Sites whose answer or coming is awaited now."),
    "site_connected": MetricKind("1 where this site is connected, 0 where it is not.", ("site",)),
    "site_answer_seconds": MetricKind("Seconds that this site took for its last contribution.", ("site",)),
    "median_answer_seconds": MetricKind("Median of the seconds that sites took for the last sum."),
    "site_left_behind": MetricKind("1 where sums continue without this connected site, 0 otherwise.", ("site",)),
    "awaited_deadline_timestamp_seconds": MetricKind("When the present waiting ends, in seconds since 1970."),
    "last_round_timestamp_seconds": MetricKind(
        "When the last round ended, in seconds since 1970; its age is time() less this."
    ),
    "certificate_expiry_timestamp_seconds": MetricKind(
        "When the certificate of this side ends, in seconds since 1970."
    ),
    "process_start_timestamp_seconds": MetricKind("When this process began, in seconds since 1970."),
    "loss": MetricKind(
        "Loss of the last evaluation over all sites together, in the unit that run_info names.", ("split", "group")
    ),
    "accuracy_ratio": MetricKind("Share of all sites' records that are classified rightly.", ("split",)),
}  # fmt: skip
"""Gauges, by their names without prefix."""

DERIVED: Mapping[str, MetricKind] = {
    "rounds": MetricKind("Training rounds that are done, over all starts of the run."),
    "site_awaited_seconds": MetricKind("Seconds for which this site was waited for, by phase.", ("site", "phase")),
}
"""Counters that follow from other fields of a status."""


def metrics_text(status: RunStatus, now: datetime) -> bytes:
    """Return the metrics in the text format of Prometheus.

    Args:
        status: the status.
        now: the time, with a time zone.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(up_to(status, now)))
    return generate_latest(registry)


class _Snapshot(Collector):
    """One status, as the library collects it."""

    def __init__(self, status: RunStatus) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield every metric; one that has no value has no line."""
        status = self._status
        for name, kind in COUNTERS.items():
            yield _family(name, kind, status.totals.get(name, {}), CounterMetricFamily)
        yield _family("rounds", DERIVED["rounds"], {(): float(status.rounds_done)}, CounterMetricFamily)
        awaited: Series = {
            (site, phase): seconds
            for site, phases in status.awaited_seconds.items()
            for phase, seconds in phases.items()
        }
        yield _family("site_awaited_seconds", DERIVED["site_awaited_seconds"], awaited, CounterMetricFamily)
        for name, values in _gauges(status).items():
            yield _family(name, GAUGES[name], values, GaugeMetricFamily)


def _family(
    name: str, kind: MetricKind, values: Series, made: type[CounterMetricFamily | GaugeMetricFamily]
) -> Metric:
    family = made(PREFIX + name, kind.help, labels=kind.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _gauges(status: RunStatus) -> Mapping[str, Series]:
    about = (status.role, status.name, status.federation, status.run_id, __version__, status.loss_unit)
    times = {
        "awaited_deadline_timestamp_seconds": status.until,
        "last_round_timestamp_seconds": status.round_ends[-1] if status.round_ends else None,
        "certificate_expiry_timestamp_seconds": status.certificate_ends,
        "process_start_timestamp_seconds": status.started,
    }
    present, median = frozenset(status.connected), status.median_answer_seconds
    splits = {} if status.evaluation is None else status.evaluation.splits
    losses: Series = {
        (name, group): value
        for name, split in splits.items()
        for group, value in (("everybody", split.mean), ("worst", split.worst))
        if value is not None
    }
    accuracies: Series = {(name,): split.accuracy for name, split in splits.items() if split.accuracy is not None}
    return {
        "run_info": {about: 1.0},
        "run_state": {(state.value,): float(state is status.state) for state in WatchedState},
        "planned_rounds": {(): float(status.rounds_total)},
        "planned_sites": {(): float(len(status.sites))},
        "connected_sites": {(): float(len(status.connected))},
        "awaited_sites": {(): float(len(status.awaited))},
        "site_connected": {(name,): float(name in present) for name in status.sites},
        "site_answer_seconds": {(name,): seconds for name, seconds in status.answer_seconds.items()},
        "median_answer_seconds": {} if median is None else {(): median},
        "site_left_behind": {(name,): float(name in status.behind) for name in status.sites},
        **{name: {} if at is None else {(): at.timestamp()} for name, at in times.items()},
        "loss": losses,
        "accuracy_ratio": accuracies,
    }
