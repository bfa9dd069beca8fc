"""A site's records from its database: the queries of `data.sql`, read by the schema that the plan declares.

Decides the order in which things are refused (what is written, then the connection, then the query, then the
columns, then the values), and in which order records come: as the query asks with ORDER BY, otherwise in one that
depends on nothing but the records. A query is read for what it says of itself: whether it is one statement that
reads, where the database has the last word, and whether it asks for an order outside of all parentheses. Never
more than one block of a result is in memory as rows. It comes through a server-side cursor where there is one, in
binary from PostgreSQL, and as the columns that DuckDB has anyway. Both queries see one state of the database,
where it can give one. Features go into the site's storage as they come, and are put into their order there.
"""

from __future__ import annotations

import itertools
import operator
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfair.errors import DataError
from fedfair.policy.site_sql import SqlSection
from fedfair.tables.feature_storage import FeatureStorage
from fedfair.tables.number_texts import EXACT
from fedfair.tables.row_order import digest_in_order, in_canonical_order, record_hashes
from fedfair.tables.site_form import SiteTable
from fedfair.tables.sql_connection import DatabaseStep, OpenDatabase, database_address, opened, read_query
from fedfair.tables.table_reader import CsvRecords, read_records
from fedfair.tables.text_table import refuse_twice
from fedfair.tables.typed_values import TypedSource
from fedfair.withdrawal.owners import RecordOwners

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection

READING = ("select", "with", "values", "table", "from")
"""First words of a statement that reads; DuckDB begins with FROM too."""

_TOKEN = re.compile(
    r"""
      (?P<passed> --[^\n]* | /\* .*? \*/ | \s+ )
    | (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \$(?P<tag>\w*)\$ .*? \$(?P=tag)\$ )
    | (?P<word> [^\W\d]\w* )
    | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)

BLOCK_VALUES = 1 << 18
"""Values of a block, which as Python objects take about 8 MiB."""

MAX_BLOCK_ROWS = 1 << 16
DUCKDB_VECTOR = 2048
"""Rows of one vector of DuckDB, in which it counts blocks."""

BINARY_TYPES = (
    "bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar", "bpchar", "date",
    "timestamp", "timestamptz", "uuid",
)  # fmt: skip
"""Types of PostgreSQL whose binary form psycopg reads; it would return others as bytes."""

EXACT_TYPES = ("int2", "int4", "float4", "float8")
"""Types of PostgreSQL whose every value is exact as a 64-bit float."""

_Fetching = tuple[tuple[str, ...], Callable[[int, Sequence[str]], "pd.DataFrame"]]

TRAIN, TEST = "query", "test_query"
"""Keys of `data.sql` whose records are trained and tested on."""


def check_reads(query: str, key: str) -> None:
    """Raise a DataError unless a query is one statement that reads.

    Args:
        query: its text.
        key: where it is stated, for the message.
    """
    words = [word for word, _ in _tokens(query)]
    while words and words[-1] == ";":
        words.pop()
    if ";" in words:
        raise DataError(f"{key} holds more than one statement", "keep the one SELECT")
    first = next((word for word in words if word != "("), "")
    if first not in READING:
        found = f"begins with {first.upper()}" if first.isalpha() else "holds no statement"
        raise DataError(f"{key} {found}; only a query that reads is run", "write one SELECT")


def asks_for_order(query: str) -> bool:
    """Return whether the outermost statement has an ORDER BY."""
    words = [word for word, depth in _tokens(query) if depth == 0]
    return ("order", "by") in itertools.pairwise(words)


def _tokens(query: str) -> Iterator[tuple[str, int]]:
    """Yield words in lower case and single marks, each with the number of parentheses around it."""
    depth = 0
    for token in _TOKEN.finditer(query):
        text = token["word"] or token["mark"]
        if not text:
            continue
        depth -= text == ")" and depth > 0
        yield text.lower(), depth
        depth += text == "("


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
        refuse_twice(f"{key} returns", columns, "name one of them with AS")
        yield QueryResult(columns, fetch, database)


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
        found: dict[str, object] = {
            name: column_of([row[place] for row in rows]) for name, place in places.items() if name not in numbers
        }
        if numbers:
            # One array of all numbers is made in a third of the time that an array for each column takes.
            taken = operator.itemgetter(*(places[name] for name in numbers))
            block = np.array(list(map(taken, rows)), np.float64).reshape(len(rows), -1)
            found |= {name: block[:, column] for column, name in enumerate(numbers)}
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


def read_sql(
    section: SqlSection,
    table: SiteTable,
    classes: int | None,
    extra: Collection[str],
    environment: Mapping[str, str] = os.environ,
    storage: FeatureStorage | None = None,
    fewest: int = 0,
    owners: RecordOwners | None = None,
) -> dict[str, CsvRecords]:
    """Return the records of a site's database: of `TRAIN`, and of `TEST` where a query asks for them.

    Args:
        section: `data.sql` of the site's file, with absolute paths.
        table: the plan's description of the columns, and the names that the queries give them.
        classes: number of classes that the plan states, if any.
        extra: columns to keep raw beside those that the plan keeps.
        environment: the variables of the process.
        storage: where features go, to be `kept` there; None for memory, whatever there is of them.
        fewest: as of `DataPaths`.
        owners: as of `DataPaths`.

    Raises:
        DataError: a secret is missing, the database or its records cannot be used, or there is no room for them;
            no message holds a password.
        UnreachableError: nothing answers at the address.
        MissingExtraError: a library for this kind of database is not installed.
    """
    stated = {TRAIN: (section.query, section.query_file), TEST: (section.test_query, section.test_query_file)}
    queries = {key: read_query(key, *query) for key, query in stated.items() if query != (None, None)}
    for key, query in queries.items():
        check_reads(query, f"data.sql.{key}")
    address = database_address(section, environment)
    with opened(address) as database:
        found = {}
        for key, query in queries.items():
            where = f"data.sql.{key} on {address}"
            with running_query(database, query, f"data.sql.{key}") as result:
                source = TypedSource(result.columns, result.blocks, where)
                read = read_records(
                    source,
                    table.file,
                    classes,
                    table.in_file(extra),
                    where=where,
                    storage=storage,
                    fewest=fewest,
                    owners=owners,
                )
            found[key] = _ordered(table.in_plan(read, classes), keeps_order=asks_for_order(query))
        return found


def _ordered(read: CsvRecords, *, keeps_order: bool) -> CsvRecords:
    hashes = record_hashes(read.dataset)
    if not keeps_order:
        dataset, hashes = in_canonical_order(read.dataset, hashes)
        read = replace(read, dataset=dataset)
    return replace(read, digest=digest_in_order(hashes))
