"""What a site's ledger costs: a line on the disk before every release, a start, and a whole plan's forecast.

    python benchmarks/ledger.py [--folder DIR]

Times the ledger of a site in DIR, which should be on the disk that would hold it: the medians of recording one
release with a budget in an empty and in a long ledger, of reading a long ledger with its chain, and of saying what
a plan costs, once affordable and once not. The share of `fsync` is timed by itself on the same disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from machine import report

from collaborator.ledger import Ledger, RollbackGuard
from collaborator.privacy_budget import Holder, PrivacyBudget, forecast
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig
from fedfair.privacy.entries import LedgerEntry, Origin
from fedfair.privacy.planned_releases import training_release

RECORDS = 1000
LONG = 5000
REPEATS = 100


def plan() -> Plan:
    return Plan.model_validate(
        {
            "federation": {"name": "heart", "collaborators": ["clinic-a", "clinic-b", "clinic-c"]},
            "task": {"data": "breast-cancer", "model": {"name": "linear"}, "standardize": "none"},
            "training": {"rounds": 300, "batch_size": 64},
            "privacy": {"sample_level": {"noise_multiplier": 2.0}},
            "evaluation": {"every": 10},
        }
    )


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def synced(folder: Path) -> float:
    """Return the median of writing one page to a new file's end and waiting for the disk."""
    with (folder / "page").open("wb") as target:

        def write() -> None:
            target.write(bytes(4096))
            target.flush()
            os.fsync(target.fileno())

        return statistics.median(seconds(write) for _ in range(REPEATS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="on the disk that would hold the ledger")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        report("ledger", **measured(Path(name)))


def measured(folder: Path) -> dict[str, float | int]:
    of_plan = plan()
    origin = Origin("clinic-a", "heart", "sha256:" + "a" * 64, None)
    roomy, tight = (
        Holder(
            of_plan,
            SiteConfig.model_validate({"collaborator": "clinic-a", "budget": {"epsilon": most}}),
            origin,
            RECORDS,
        )
        for most in (50.0, 2.0)
    )
    path, release = folder / "ledger.sqlite", training_release(of_plan, RECORDS)
    account = PrivacyBudget(Ledger(path, RollbackGuard(folder / "seen")), roomy, lambda: datetime.now(UTC))
    short = [seconds(lambda: account.record(release)) for _ in range(REPEATS)]
    ledger, now = Ledger(path), datetime.now(UTC).isoformat()

    def fill() -> None:
        for _ in range(LONG):
            ledger.record(LedgerEntry(now, origin, release), lambda _: None)

    without_budget = seconds(fill) / LONG
    long = [seconds(lambda: account.record(release)) for _ in range(REPEATS)]
    return {
        "record_seconds_first": short[0],
        "record_seconds_empty_ledger": statistics.median(short),
        "record_seconds_long_ledger": statistics.median(long),
        "record_seconds_longest": max(short + long),
        "record_seconds_without_budget": without_budget,
        "fsync_seconds": synced(folder),
        "entries_of_long_ledger": LONG + 2 * REPEATS,
        "bytes_of_long_ledger": path.stat().st_size,
        "read_seconds_long_ledger": seconds(lambda: Ledger(path).look()),
        "forecast_seconds_affordable": seconds(lambda: forecast(roomy, ())),
        "forecast_seconds_not_affordable": seconds(lambda: forecast(tight, ())),
    }


if __name__ == "__main__":
    main()
