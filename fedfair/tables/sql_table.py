"""A site's records from its database: the queries of `data.sql`, read by the schema that the plan declares.

Decides the order in which things are refused (what is written, then the connection, then the query, then the
columns, then the values), and in which order records come: as the query asks with ORDER BY, otherwise in one that
depends on nothing but the records. Both queries see one state of the database, where it can give one. Features go
into the site's storage as they come, and are put into their order there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from fedfair.plan.csv_table import CsvData
from fedfair.policy.site_sql import SqlSection
from fedfair.tables.feature_coding import CsvRecords
from fedfair.tables.feature_storage import FeatureStorage
from fedfair.tables.few_records import unless_few
from fedfair.tables.row_order import digest_in_order, in_canonical_order, record_hashes
from fedfair.tables.site_form import SiteTable
from fedfair.tables.sql_connection import OpenDatabase, opened
from fedfair.tables.sql_query import running_query
from fedfair.tables.sql_text import asks_for_order, check_reads
from fedfair.tables.sql_url import database_address, read_query
from fedfair.tables.table_reader import read_records
from fedfair.tables.typed_values import TypedSource

TRAIN, TEST = "query", "test_query"
"""Keys of `data.sql` whose records are trained and tested on."""


@dataclass(frozen=True, slots=True)
class SqlRecords:
    """The records of one query.

    Attributes:
        records: as a file of them would be read.
        digest: of the records in their order, such as "sha256:...".
    """

    records: CsvRecords
    digest: str


def read_sql(
    section: SqlSection,
    table: SiteTable,
    classes: int | None,
    extra: Collection[str],
    environment: Mapping[str, str] = os.environ,
    storage: FeatureStorage | None = None,
    fewest: int = 0,
) -> dict[str, SqlRecords]:
    """Return the records of a site's database: of `TRAIN`, and of `TEST` where there is a query for them.

    Args:
        section: `data.sql` of the site's file, with absolute paths.
        table: the plan's description of the columns, and the names that the queries give them.
        classes: number of classes that the plan states, if any.
        extra: columns to keep raw beside those that the plan keeps.
        environment: the variables of the process.
        storage: where features go, to be `kept` there; None for memory, whatever there is of them.
        fewest: as of `DataPaths`.

    Raises:
        DataError: a secret is missing, the database or its records cannot be used, or there is no room for them;
            no message holds a password.
        UnreachableError: nobody answers at the address.
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
            stated_query = StatedQuery(f"data.sql.{key}", query)
            reading = partial(_read, database, stated_query, table.file, classes, table.in_file(extra), storage)
            read = unless_few(reading, fewest if table.plan.rows else 0)
            found[key] = _ordered(table.in_plan(read, classes), keeps_order=asks_for_order(query))
        return found


@dataclass(frozen=True, slots=True)
class StatedQuery:
    """A query.

    Attributes:
        key: where it is stated, for messages.
        text: one statement.
    """

    key: str
    text: str


def _read(
    database: OpenDatabase,
    query: StatedQuery,
    spec: CsvData,
    classes: int | None,
    extra: Collection[str],
    storage: FeatureStorage | None,
) -> CsvRecords:
    with running_query(database, query.text, query.key) as result:
        where = f"{query.key} on {database.address}"
        source = TypedSource(result.columns, result.blocks, where)
        return read_records(source, spec, classes, extra, where=where, storage=storage)


def _ordered(read: CsvRecords, *, keeps_order: bool) -> SqlRecords:
    hashes = record_hashes(read.dataset)
    if keeps_order:
        return SqlRecords(read, digest_in_order(hashes))
    dataset, hashes = in_canonical_order(read.dataset, hashes)
    return SqlRecords(replace(read, dataset=dataset), digest_in_order(hashes))
