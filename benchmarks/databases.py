"""Reading a site's records from PostgreSQL and DuckDB: time and peak memory, beside `pandas.read_sql`.

A table of 19 numbers and a label is made on a PostgreSQL of its own and in a DuckDB file. A process of its own
reads it each way; its memory is the peak (VmHWM, Linux) beyond what it had once its libraries were imported. Ours
ends in features, labels and profile, in a canonical order where the query has no ORDER BY; pandas ends in a frame.
Of several readings the quickest counts. Processor seconds are those of the reading process alone.

    python benchmarks/databases.py [--rows 100000] [--repeat 3]

10,000,000 rows take some minutes and 6 GB of disk; `pandas.read_sql` is left out above 1,000,000 rows unless
`--pandas` asks for it, because it needs many times the memory of the result.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from machine import report  # noqa: E402 - after the path of our own modules

NUMBERS = [f"x{place}" for place in range(19)]
ORDERED = f"SELECT {', '.join(NUMBERS)}, died FROM records ORDER BY id"  # noqa: S608 - of this file alone
PLAIN = ORDERED.removesuffix(" ORDER BY id")
MANY = 1_000_000
PASSWORD = "DATABASE_PASSWORD"  # noqa: S105 - the name of a variable


def peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def forget_peak() -> None:
    """Begin to count the peak from here on."""
    Path("/proc/self/clear_refs").write_text("5")


def read_ours(url: str, query: str) -> int:
    from fedfair.plan.csv_table import CsvData
    from fedfair.policy.site_sql import SqlSection
    from fedfair.tables.site_form import site_table
    from fedfair.tables.sql_table import read_sql

    table = CsvData(label="died", numeric=tuple(NUMBERS))
    section = SqlSection(url=url, query=query, password_env=PASSWORD if url.startswith("postgresql") else None)
    return len(read_sql(section, site_table(table, None), 2, (), os.environ)["query"].dataset)


def read_pandas(url: str, query: str) -> int:
    import pandas as pd
    from sqlalchemy import create_engine, make_url

    address = make_url(url)
    if url.startswith("postgresql"):
        address = address.set(drivername="postgresql+psycopg", password=os.environ[PASSWORD])
    with create_engine(address).connect() as connection:
        return len(pd.read_sql_query(query, connection))


def measure(how: str, url: str, query: str) -> None:
    """Read once, and print seconds and bytes."""
    read = {"fedfair": read_ours, "pandas": read_pandas}[how]
    # Whatever is imported, compiled or connected the first time is done before.
    read(url, f"{query} LIMIT 10")
    forget_peak()
    before, start, used = peak_bytes(), time.perf_counter(), time.process_time()
    count = read(url, query)
    seconds, processor = time.perf_counter() - start, time.process_time() - used
    print(json.dumps({"rows": count, "seconds": seconds, "processor": processor, "bytes": peak_bytes() - before}))


def measured(how: str, url: str, query: str, environment: dict[str, str], repeat: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", how, url, query]
    runs = [
        json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
        for _ in range(repeat)
    ]
    return {
        "seconds": round(min(run["seconds"] for run in runs), 2),
        "processor_seconds": round(min(run["processor"] for run in runs), 2),
        "megabytes": round(max(run["bytes"] for run in runs) / 1e6),
        "times_of_float64": round(max(run["bytes"] for run in runs) / (8 * 20 * runs[0]["rows"]), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Read records from databases.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--pandas", action="store_true", help="read by pandas.read_sql too, however many rows")
    parser.add_argument("--measure", nargs=3, metavar=("HOW", "URL", "QUERY"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        measure(*asked.measure)
        return
    import duckdb

    from tests.postgres_server import PASSWORD as SECRET
    from tests.postgres_server import running_postgres

    figures: dict[str, dict[str, Any]] = {}
    values = ", ".join(f"sin(g * {place + 1}.0) AS {name}" for place, name in enumerate(NUMBERS))
    environment = {**os.environ, PASSWORD: SECRET, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder, running_postgres() as server:
        file = Path(folder) / "records.duckdb"
        made = f"SELECT g AS id, {values}, g % 2 AS died FROM"
        with duckdb.connect(str(file)) as database:
            database.execute(f"CREATE TABLE records AS {made} range(1, {asked.rows + 1}) AS r(g)")
        server.execute(f"CREATE TABLE records AS {made} generate_series(1, {asked.rows}) AS g", "ANALYZE records")
        for kind, url in (("postgresql", server.url), ("duckdb", f"duckdb:///{file}")):
            for name, query in (("ordered", ORDERED), ("without an order", PLAIN)):
                figures[f"{kind}, {name}"] = measured("fedfair", url, query, environment, asked.repeat)
            if asked.rows <= MANY or asked.pandas:
                figures[f"{kind}, pandas.read_sql"] = measured("pandas", url, PLAIN, environment, asked.repeat)
    report("databases", rows=asked.rows, columns=20, figures=figures)


if __name__ == "__main__":
    main()
