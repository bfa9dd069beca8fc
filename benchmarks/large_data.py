"""Records that are larger than memory: peak memory and step time, mapped from a file and held in memory.

N x 20 numbers of 64 bits in an array file are read, divided over three sites and trained on as `fedfair simulate`
does, and as one site does; and by one site from a CSV file too. Each is in a process of its own. Memory is what a
process has beyond its imports, by /proc/self/status every 5 ms (Linux). `own` is RssAnon, which only this process
can use. `resident` is VmRSS, with the mapped pages of files, which the kernel may drop. The bound is twice the
float32 bytes. Images of bytes are compared with the same images as float32.

Usage: python benchmarks/large_data.py [--records 10000000] [--images 20000] [--folder DIR] [--only CASE ...]
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import numpy as np
import pandas as pd
import torch
from machine import report

from fedfair.aggregation.feature_scaling import scaling_from_sums
from fedfair.aggregation.requests import GlobalModel
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import SiteConfig
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.feature_storage import MAX_IN_MEMORY, FeatureStorage
from fedfair.tables.pixels import feature_values
from fedfair.tables.source import load_federation, read_site_records
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from tests.contributions import evaluation_of, standardisation_of

COLUMNS, SITES = 20, ("site-a", "site-b", "site-c")
WHOLE, BLOCK = 10_000_000, 100_000
LOADER = """
import numpy as np

def records(folder):
    return np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy", mmap_mode="r")
"""
CSV_TASK = {"data": {"csv": {"label": "y", "numeric": "all"}}}
STEPS, ROUNDS, BATCH = 200, 6, 256
CASES = ("simulate mapped", "simulate memory", "site mapped", "site memory", "csv mapped", "steps", "images")
FOREVER = 1 << 60


class Watched:
    """The peaks of this process while a block runs, in bytes beyond those at its start."""

    def __enter__(self) -> Self:
        gc.collect()
        self._start, self.own, self.resident = sizes(), 0, 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            own, resident = sizes()
            self.own, self.resident = (
                max(self.own, own - self._start[0]),
                max(self.resident, resident - self._start[1]),
            )


def sizes() -> tuple[int, int]:
    """Return RssAnon and VmRSS of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {
        line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines if line.startswith(("Rss", "VmRSS"))
    }
    return found["RssAnon"], found["VmRSS"]


def write_table(folder: Path, records: int) -> None:
    """Write features, labels and the loader that maps them; nothing of it takes memory to speak of."""
    draws = np.random.default_rng(0)
    features = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float64, (records, COLUMNS))
    labels = np.lib.format.open_memmap(folder / "y.npy", "w+", np.int64, (records,))
    for start in range(0, records, BLOCK):
        rows = slice(start, min(start + BLOCK, records))
        values = draws.normal(3.0, 2.0, (rows.stop - start, COLUMNS))
        features[rows] = values
        labels[rows] = values[:, 0] + values[:, 1] + draws.normal(size=len(values)) > 6
    (folder / "large_table.py").write_text(LOADER)


def write_csv(folder: Path) -> None:
    """Write the same table as a CSV file, with four decimals, where it is not there yet."""
    path = folder / "table.csv"
    if path.exists():
        return
    features, labels = np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy", mmap_mode="r")
    names = [f"x{place}" for place in range(COLUMNS)]
    with path.open("w", encoding="utf-8", newline="") as file:
        for start in range(0, len(features), BLOCK):
            block = pd.DataFrame(features[start : start + BLOCK], columns=names)
            block["y"] = labels[start : start + BLOCK]
            block.to_csv(file, index=False, header=not start, float_format="%.4f")


def room_in(folder: Path, in_memory: bool) -> FeatureStorage:
    """Return room for the table; of a smaller table less stays in memory, so that its figures scale."""
    share = min(1.0, len(np.load(folder / "y.npy", mmap_mode="r")) / WHOLE)
    return FeatureStorage(folder, FOREVER if in_memory else round(MAX_IN_MEMORY * share))


def plan_of(sites: tuple[str, ...], **task: object) -> Plan:
    """Return the plan of the table."""
    stated = {
        "federation": {"name": "large", "collaborators": list(sites)},
        "task": {
            "data": "large_table:records",
            "input_shape": [COLUMNS],
            "classes": 2,
            "test_fraction": 0.2,
            "standardize": "secure",
            "model": {"name": "linear"},
            **task,
        },
        "objective": {"measure": "loss"},
        "training": {"rounds": ROUNDS, "local_steps": STEPS, "batch_size": BATCH},
        "evaluation": {"every": ROUNDS},
    }
    return Plan.model_validate(stated)


def simulated(folder: Path, in_memory: bool) -> dict[str, object]:
    """Read and train as `fedfair simulate` does; with float64 in memory where that is asked."""
    plan = plan_of(SITES, partition={"scheme": "random"})
    storage = room_in(folder, in_memory)
    began = time.perf_counter()
    with Watched() as peaks:
        sites = load_federation(plan, folder, storage)
        read = time.perf_counter()
        outcome = simulate_sites(plan, sites, folder)
    return {
        "read_s": round(read - began, 1),
        "train_s": round(time.perf_counter() - read, 1),
        "own_peak_mb": round(peaks.own / 1e6),
        "resident_peak_mb": round(peaks.resident / 1e6),
        "threshold": outcome.model.threshold,
    }


def from_csv(folder: Path, in_memory: bool) -> dict[str, object]:
    """Read a CSV file, sum, evaluate and train as one site does."""
    return at_a_site(folder, in_memory, CSV_TASK)


def at_a_site(
    folder: Path, in_memory: bool, task: Mapping[str, object] = MappingProxyType({})
) -> dict[str, object]:
    """Read, sum, evaluate and train as one site does."""
    with Watched() as peaks:
        began = time.perf_counter()
        client, start = site_of(folder, in_memory, task)
        read = time.perf_counter()
        evaluation_of(client, start)
        for number in range(1, 4):
            client.rounds.contribution(start, RoundNumber(number), 1)
        evaluation_of(client, start)
    return {
        "read_s": round(read - began, 1),
        "train_s": round(time.perf_counter() - read, 1),
        "own_peak_mb": round(peaks.own / 1e6),
        "resident_peak_mb": round(peaks.resident / 1e6),
    }


def site_of(
    folder: Path, in_memory: bool, task: Mapping[str, object] = MappingProxyType({})
) -> tuple[TrainingClient, GlobalModel]:
    """Return a site with the records of a table, standardised."""
    plan, name = plan_of(SITES[:1], **task), ParticipantId(SITES[0])
    data = {"train": "table.csv"} if task else {"root": "."}
    site = SiteConfig.model_validate({"collaborator": name, "data": data})
    storage = room_in(folder, in_memory)
    splits = read_site_records(plan, site, name, folder, storage=storage).splits
    model = flat_model(plan, splits.train.schema, torch.device("cpu"), folder)
    client = TrainingClient(plan, name, splits, model)
    sums = standardisation_of(client).header
    client.apply_scaling(scaling_from_sums(sums, splits.train.schema.units))
    return client, GlobalModel(model.vector(), 1.0)


def steps_of(folder: Path, _: bool) -> dict[str, object]:
    """Return the time of a step with records in memory and in files, in turn in one process."""
    held = {"memory": site_of(folder, True), "mapped": site_of(folder, False)}
    steps: dict[str, list[float]] = {name: [] for name in held}
    for number in range(1, 2 * ROUNDS + 1):
        for name, (client, start) in held.items():
            began = time.perf_counter()
            client.rounds.contribution(start, RoundNumber(number), 1)
            steps[name].append((time.perf_counter() - began) / STEPS)
    later = {name: times[ROUNDS:] for name, times in steps.items()}
    ratios = [one / other for one, other in zip(later["mapped"], later["memory"], strict=True)]
    return {
        **{f"{name}_us": round(1e6 * statistics.median(times), 1) for name, times in later.items()},
        **{f"{name}_fastest_us": round(1e6 * min(times), 1) for name, times in later.items()},
        "first_round_us": {name: round(1e6 * times[0], 1) for name, times in steps.items()},
        "mapped_over_memory": round(statistics.median(ratios), 3),
    }


def images_of(count: int) -> dict[str, object]:
    """Return bytes and the time of a step on images of 3 x 64 x 64, batches of 64, an MLP of 64; in turn."""
    draws = np.random.default_rng(0)
    pixels = draws.integers(0, 256, (count, 3, 64, 64), np.uint8)
    schema, labels = FeatureSchema((3, 64, 64), 2), (np.arange(len(pixels)) % 2).astype(np.int64)
    stated = {
        "federation": {"name": "images", "collaborators": ["site-a"]},
        "task": {"data": "digits", "model": {"name": "mlp", "hidden": [64]}, "standardize": "none"},
        "training": {"rounds": 1, "local_steps": 20, "batch_size": 64},
    }
    plan, name = Plan.model_validate(stated), ParticipantId("site-a")
    model = flat_model(plan, schema, torch.device("cpu"), Path())
    start = GlobalModel(model.vector(), 1.0)
    held = {"uint8": pixels, "float32": feature_values(pixels)}
    clients = {
        kind: TrainingClient(plan, name, Splits(Dataset(values, labels, schema)), model)
        for kind, values in held.items()
    }
    steps: dict[str, list[float]] = {kind: [] for kind in held}
    for number in range(1, 4 * ROUNDS + 1):
        for kind, client in clients.items():
            began = time.perf_counter()
            client.rounds.contribution(start, RoundNumber(number), 1)
            steps[kind].append((time.perf_counter() - began) / 20)
    ratios = [one / other for one, other in zip(steps["uint8"], steps["float32"], strict=True)]
    return {
        **{f"{kind}_bytes_of_celeba": 162_770 * values[0].nbytes for kind, values in held.items()},
        **{f"{kind}_step_us": round(1e6 * statistics.median(times)) for kind, times in steps.items()},
        **{f"{kind}_fastest_us": round(1e6 * min(times)) for kind, times in steps.items()},
        "uint8_over_float32": round(statistics.median(ratios), 3),
    }


def child(*words: str) -> dict[str, object]:
    """Return what a case prints that runs in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--case", *words], check=True, capture_output=True, text=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def main() -> None:
    """Run all cases, or the one that is named."""
    parser = argparse.ArgumentParser(description="Memory and step time of large data.")
    parser.add_argument("--records", type=int, default=WHOLE)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where there is room for the table and its files")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="such as: 'simulate mapped' 'csv mapped' steps")
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case:
        kind, folder, held = asked.case
        cases = {"simulate": simulated, "site": at_a_site, "csv": from_csv, "steps": steps_of}
        print(
            json.dumps(images_of(int(held)) if kind == "images" else cases[kind](Path(folder), held == "memory"))
        )
        return
    wanted = asked.only or CASES
    found = {}
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        write_table(Path(folder), asked.records)
        for case in wanted:
            kind, held = (*case.split(), "both")[:2]
            if kind == "csv":
                write_csv(Path(folder))
            found[case] = child(kind, folder, str(asked.images) if kind == "images" else held)
    bound = 2 * 4 * asked.records * COLUMNS
    report("large_data", records=asked.records, columns=COLUMNS, bound_mb=bound / 1e6, **found)


if __name__ == "__main__":
    main()
