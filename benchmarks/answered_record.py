"""What it costs a site to write down what it has answered: after one sum, and after very many.

    python benchmarks/answered_record.py [--folder DIR] [--sums 1 1000 20000 100000] [--measured 1000]

A site admits as many masked training sums as stated, one for each round. The rows of the earlier ones are put into
its real file in blocks, those of the last are admitted one by one. Reported at each age are the median and mean of
one sum, all waiting for the disk included; the longest; the bytes of the file; the memory of the open record; and
how long a start takes.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
import tracemalloc
from pathlib import Path

from machine import report

from collaborator.site_history import ANSWERED, RequestRecord
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.policy.decision import SiteRules
from fedfair.policy.request_limits import Admitted, RequestLimits
from fedfair.policy.site_config import SitePolicy
from fedfair.statistics.table import Purpose
from fedfair.store.table_file import TableFile

NAMES = ["clinic-a", "clinic-b", "clinic-c"]
PLAN = Plan.model_validate(
    {
        "federation": {"name": "heart", "collaborators": NAMES},
        "task": {"data": "breast-cancer", "partition": {"scheme": "random"}, "model": {"name": "linear"}},
        "objective": {"name": "rcvar", "measure": "loss", "worst_group_size": 0.3, "tradeoff": 0.1},
        "training": {"algorithm": "fedsrcvar", "rounds": 5},
        "secure_aggregation": {"mode": "malicious"},
    }
)
BLOCK = 1000


def question(number: int) -> AggregationRequest:
    state = hashlib.sha256(number.to_bytes(8)).digest()
    return AggregationRequest("a" * 32, False, Purpose.TRAINING, number, None, state, state, (1, 2, 3))


SCHEMA = FeatureSchema((30,), 2, tuple(range(30)))


class Newest:
    """The rows of a file, and newer ones that are not written yet."""

    def __init__(self, table: TableFile) -> None:
        self.table = table
        self.rows: dict[bytes, bytes] = {}

    def get(self, key: bytes, /) -> bytes | None:
        return self.rows[key] if key in self.rows else self.table.get(key)


def fill(path: Path, sums: int) -> None:
    """Put what is remembered of so many sums into the file, a block in each transaction."""
    newest = Newest(TableFile(path, ANSWERED))
    limits = RequestLimits(newest, PLAN, SitePolicy(), "clinic-a")
    for number in range(1, sums + 1):
        said = limits.decide(question(number))
        if isinstance(said, Admitted):
            newest.rows.update(said.rows)
        if number % BLOCK == 0 or number == sums:
            newest.table.write(newest.rows.items())
            newest.rows.clear()
    newest.table.close()


def measured(folder: Path, sums: int, more: int) -> dict[str, float]:
    path = folder / "site.answered"
    fill(path, sums)
    tracemalloc.start()
    began = time.perf_counter()
    record = RequestRecord(path, SiteRules(PLAN, SCHEMA, SitePolicy(), "clinic-a", 1000))
    started = time.perf_counter() - began
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    times = []
    for number in range(sums + 1, sums + 1 + more):
        began = time.perf_counter()
        said = record.admit(question(number))
        times.append(time.perf_counter() - began)
        if said != 1:
            raise SystemExit(f"sum {number} was not admitted: {said}")
    record.close()
    return {
        "median_ms": 1e3 * statistics.median(times),
        "mean_ms": 1e3 * statistics.mean(times),
        "longest_ms": 1e3 * max(times),
        "file_bytes": path.stat().st_size,
        "memory_bytes": memory,
        "start_ms": 1e3 * started,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="on the disk that would hold the site's state")
    parser.add_argument("--sums", type=int, nargs="+", default=[1, 1000, 20_000, 100_000])
    parser.add_argument("--measured", type=int, default=1000)
    options = parser.parse_args()
    found: dict[str, float | int] = {}
    for sums in options.sums:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            for what, value in measured(Path(name), sums, options.measured).items():
                found[f"after_{sums}_{what}"] = round(value, 3)
    report("answered_record", **found)


if __name__ == "__main__":
    main()
