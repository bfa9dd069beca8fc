"""What it takes to read a table of numbers: time, and peak memory beyond what was there before, for each reader.

    python benchmarks/read_tables.py [--rows 100000] [--columns 20] [--folder DIR] [--repeats 3] [--mapped]

Numbers with six decimals and a label of two classes are written once as CSV and as Parquet. Each reader then runs
in a process of its own, after one reading of ten rows, so that libraries are loaded. `fedfair` reads features and
labels as a site does; with --mapped it holds features in a file. `field by field` is what becomes of a file from
its first odd block on. Beside them pandas reads the same files into a frame. For ten million rows state
--rows 10000000 --repeats 1 --mapped.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from machine import report

SEED, BLOCK = 0, 1 << 17


def names(columns: int) -> list[str]:
    return [f"x{place}" for place in range(columns)]


def blocks(rows: int, columns: int) -> Iterator[Any]:
    """Yield a table of numbers and labels in frames."""
    import pandas as pd

    random = np.random.default_rng(SEED)
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        frame = pd.DataFrame(random.normal(size=(count, columns)).round(6), columns=names(columns))
        yield frame.assign(y=random.integers(0, 2, count))


def write(folder: Path, rows: int, columns: int) -> None:
    """Write the table as CSV and as Parquet, and its first ten rows too; what is there stays."""
    pa, csv, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.csv", "pyarrow.parquet"))
    for count in (10, rows):
        text, packed = paths(folder, count, columns)
        if text.exists() and packed.exists():
            continue
        tables = (pa.Table.from_pandas(frame, preserve_index=False) for frame in blocks(count, columns))
        first = next(tables)
        with csv.CSVWriter(text, first.schema) as lines, parquet.ParquetWriter(packed, first.schema) as groups:
            for table in itertools.chain((first,), tables):
                lines.write_table(table)
                groups.write_table(table)


def paths(folder: Path, rows: int, columns: int) -> tuple[Path, Path]:
    return folder / f"{rows}x{columns}.csv", folder / f"{rows}x{columns}.parquet"


def fedfair_reads(path: Path, rows: int, columns: int, folder: Path, *, mapped: bool, slow: bool = False) -> None:
    from fedfair.plan.csv_table import CsvData
    from fedfair.tables import plain_blocks
    from fedfair.tables.feature_storage import FeatureStorage
    from fedfair.tables.sources.table import read_csv

    def not_plain(*_: object) -> Iterator[Any]:
        raise plain_blocks.NotPlain

    if slow:
        vars(plain_blocks)["plain_blocks"] = not_plain
    spec = CsvData.model_validate({"label": "y", "numeric": names(columns)})
    read = read_csv(path, spec, None, (), FeatureStorage(folder, 0) if mapped else None)
    if len(read.dataset) != rows:
        raise SystemExit(f"read {len(read.dataset)} rows of {rows}")


def pandas_reads(path: Path, rows: int) -> None:
    import pandas as pd

    frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    if len(frame) != rows:
        raise SystemExit(f"read {len(frame)} rows of {rows}")


def readers(folder: Path, columns: int, *, mapped: bool) -> dict[str, Callable[[int], None]]:
    """Return every reader by its name, from the number of rows; another source is one more row here."""

    def text(rows: int) -> Path:
        return paths(folder, rows, columns)[0]

    def packed(rows: int) -> Path:
        return paths(folder, rows, columns)[1]

    return {
        "fedfair, CSV": lambda rows: fedfair_reads(text(rows), rows, columns, folder, mapped=mapped),
        "fedfair, CSV field by field": lambda rows: fedfair_reads(
            text(rows), rows, columns, folder, mapped=mapped, slow=True
        ),
        "fedfair, Parquet": lambda rows: fedfair_reads(packed(rows), rows, columns, folder, mapped=mapped),
        "pandas, CSV": lambda rows: pandas_reads(text(rows), rows),
        "pandas, Parquet": lambda rows: pandas_reads(packed(rows), rows),
    }


def peak() -> float:
    """Return the most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(read: Callable[[int], None], rows: int) -> dict[str, float]:
    """Return seconds and megabytes of one reading in this process, after a small one."""
    read(10)
    before, start, used = peak(), time.perf_counter(), time.process_time()
    read(rows)
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - used,
        "peak_mb": peak() - before,
    }


def alone(arguments: argparse.Namespace, name: str) -> dict[str, float]:
    """Return the figures of one reader, each run in a process of its own: medians, and the greatest peak."""
    command = [sys.executable, *sys.argv, "--folder", str(arguments.folder), "--only", name]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(arguments.repeats)
    ]
    return {
        "seconds": round(statistics.median(run["seconds"] for run in runs), 3),
        "cpu_seconds": round(statistics.median(run["cpu_seconds"] for run in runs), 3),
        "peak_mb": round(max(run["peak_mb"] for run in runs), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="keep the files here; by default they are temporary")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mapped", action="store_true", help="hold features in a file without a name")
    parser.add_argument("--readers", nargs="*", help="only these")
    parser.add_argument("--only", help="measure this reader in this process")
    arguments = parser.parse_args()
    if arguments.only:
        read = readers(arguments.folder, arguments.columns, mapped=arguments.mapped)[arguments.only]
        print(json.dumps(measured(read, arguments.rows)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        arguments.folder = arguments.folder or Path(temporary)
        write(arguments.folder, arguments.rows, arguments.columns)
        wanted = arguments.readers or list(readers(arguments.folder, arguments.columns, mapped=arguments.mapped))
        found = {name: alone(arguments, name) for name in wanted}
        sizes = [path.stat().st_size for path in paths(arguments.folder, arguments.rows, arguments.columns)]
    report(
        "read_tables",
        rows=arguments.rows,
        columns=arguments.columns,
        mapped=arguments.mapped,
        bytes={"csv": sizes[0], "parquet": sizes[1], "float64": arguments.rows * arguments.columns * 8},
        readers=found,
    )


if __name__ == "__main__":
    main()
