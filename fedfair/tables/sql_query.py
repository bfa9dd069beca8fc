"""Runs one query and returns its result in blocks, from any database that SQLAlchemy knows.

Decides that never more than one block of a result is in memory as rows. It comes through a server-side cursor
where there is one, in binary from PostgreSQL, and as the columns that DuckDB has anyway. What the columns mean is
the plan's business.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfair.errors import DataError
from fedfair.tables.sql_connection import OpenDatabase
from fedfair.tables.sql_faults import DatabaseStep

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection

BLOCK_VALUES = 1 << 18
"""Values of a block, which as Python objects take about 8 MiB."""

MAX_BLOCK_ROWS = 1 << 16
DUCKDB_VECTOR = 2048
"""Rows of one vector of DuckDB, in which it counts blocks."""

EXACT = 2**53
"""Whole numbers below it are exact as 64-bit floats."""

BINARY_TYPES = (
    "bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bpchar", "date",
    "timestamp", "timestamptz", "uuid",
)  # fmt: skip
"""Types of PostgreSQL whose binary form psycopg reads; it would return others as bytes."""


EXACT_TYPES = ("int2", "int4", "float4", "float8")
"""Types of PostgreSQL whose every value is exact as a 64-bit float."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A query that runs.

    Attributes:
        columns: names of its columns, in order.
        fetch: returns the next block of so many rows, with the columns of these names; an empty one at the end.
        database: it runs there.
    """

    columns: tuple[str, ...]
    fetch: Callable[[int, Sequence[str]], pd.DataFrame]
    database: OpenDatabase

    def blocks(self, wanted: Collection[str]) -> Iterator[pd.DataFrame]:
        """Yield its rows block by block, once, while its database is open; only the wanted columns.

        Raises:
            DataError: the database ends the query; the message says why, without secrets.
        """
        names = [name for name in self.columns if name in wanted]
        size = max(1, min(MAX_BLOCK_ROWS, BLOCK_VALUES // len(self.columns)))
        while len(frame := self.database.call(DatabaseStep.READ, lambda: self.fetch(size, names))):
            yield frame


@contextmanager
def running_query(database: OpenDatabase, query: str, key: str) -> Iterator[QueryResult]:
    """Run a query, and end it at the end of the block, read or not.

    Args:
        database: it is open.
        query: one statement that reads.
        key: where it is stated, for the message.

    Raises:
        DataError: the database refuses it, or two of its columns have one name.
    """
    connection = database.connection
    fetching = _FETCHING.get((database.address.backend, connection.dialect.driver), _from_any)
    with ExitStack() as stack:
        columns, fetch = database.call(DatabaseStep.QUERY, lambda: fetching(connection, query, stack))
        if not columns:
            raise DataError(f"{key} returns no columns", "write one SELECT")
        twice = sorted({name for name in columns if columns.count(name) > 1})
        if twice:
            raise DataError(f"{key} returns two columns called '{twice[0]}'", "name one of them with AS")
        yield QueryResult(columns, fetch, database)


_Fetching = tuple[tuple[str, ...], Callable[[int, Sequence[str]], "pd.DataFrame"]]


def _from_any(connection: Connection, query: str, stack: ExitStack) -> _Fetching:
    result = stack.enter_context(closing(connection.exec_driver_sql(query)))
    return _rows(tuple(result.keys()) if result.returns_rows else (), result.fetchmany)


def _from_psycopg(connection: Connection, query: str, stack: ExitStack) -> _Fetching:
    from psycopg.pq import Format

    # SQLAlchemy would fetch a first row before the form of all rows could be chosen.
    driver: Any = connection.connection.driver_connection
    cursor = stack.enter_context(driver.cursor(name="fedfair"))
    cursor.execute(query)
    kinds = {name: driver.adapters.types[name].oid for name in BINARY_TYPES}
    codes = [column.type_code for column in cursor.description]
    if set(codes) <= set(kinds.values()):
        cursor.format = Format.BINARY
    exact = {kinds[name] for name in EXACT_TYPES}
    names = tuple(column.name for column in cursor.description)
    return _rows(names, cursor.fetchmany, {place for place, code in enumerate(codes) if code in exact})


def _from_duckdb(connection: Connection, query: str, stack: ExitStack) -> _Fetching:
    cursor: Any = stack.enter_context(closing(connection.connection.cursor()))
    cursor.execute(query)

    def fetch(size: int, names: Sequence[str]) -> pd.DataFrame:
        frame: pd.DataFrame = cursor.fetch_df_chunk(max(1, size // DUCKDB_VECTOR))
        return frame[list(names)]

    return tuple(str(column[0]) for column in cursor.description or ()), fetch


_FETCHING: Mapping[tuple[str, str], Callable[[Connection, str, ExitStack], _Fetching]] = MappingProxyType(
    {("duckdb", "duckdb_engine"): _from_duckdb, ("postgresql", "psycopg"): _from_psycopg}
)
"""By kind of database and driver; all others are read through SQLAlchemy."""


def _rows(
    columns: tuple[str, ...],
    fetchmany: Callable[[int], Sequence[Sequence[object]]],
    exact: Collection[int] = (),
) -> _Fetching:
    """Return how rows become columns.

    Args:
        columns: their names.
        fetchmany: returns the next rows.
        exact: places of columns that hold nothing but numbers which 64-bit floats hold exactly, or None.
    """

    def fetch(size: int, names: Sequence[str]) -> pd.DataFrame:
        import pandas as pd

        rows = fetchmany(size)
        places = {name: columns.index(name) for name in names}
        numbers = [name for name in names if places[name] in exact] if rows else []
        # One array of all numbers is made in a third of the time that an array for each column takes.
        taken = operator.itemgetter(*(places[name] for name in numbers)) if numbers else None
        block = None if taken is None else np.array(list(map(taken, rows)), np.float64).reshape(len(rows), -1)
        found: dict[str, object] = {}
        for name in names:
            if block is not None and name in numbers:
                found[name] = block[:, numbers.index(name)]
            else:
                found[name] = column_of([row[places[name]] for row in rows])
        return pd.DataFrame(found)

    return columns, fetch


def column_of(values: Sequence[object]) -> pd.Series[Any]:
    """Return what a driver gave for a column, None where a value is missing: as numbers where it is numbers."""
    import pandas as pd

    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {float}:
        return pd.Series(np.array(values, np.float64))
    if kinds == {int}:
        present = [value for value in values if value is not None]
        whole = np.array(present, np.object_)
        if max(abs(whole.max()), abs(whole.min())) < EXACT:
            exact = np.int64 if len(present) == len(values) else np.float64
            return pd.Series(np.array(values, exact))
    return pd.Series(values, dtype=object)
