"""Opens a site's database, so that it can only be read.

Decides how each kind of database is asked for that: PostgreSQL by a transaction that is read only, DuckDB and
SQLite by a file that is opened so. Nothing is ever committed, whatever a database makes of a query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedfair.errors import DataError
from fedfair.tables.sql_faults import DatabaseStep, guarded
from fedfair.tables.sql_url import FILE_DATABASES, DatabaseAddress

if TYPE_CHECKING:
    from sqlalchemy import Connection

Found = TypeVar("Found")

AGAIN_SECONDS = 0.05
"""After this time a query is interrupted again that had not begun when it was interrupted."""

CONNECT_SECONDS = 10
"""How long an address may take to answer, where its URL states no time."""

IN_MEMORY = (None, "", ":memory:")


@dataclass(frozen=True, slots=True)
class OpenDatabase:
    """A database that is open for reading.

    Attributes:
        address: where it is.
        connection: to it.
    """

    address: DatabaseAddress
    connection: Connection

    def call(self, step: DatabaseStep, work: Callable[[], Found]) -> Found:
        """Return what a call to the driver returns; Ctrl-C ends it, however long it would take.

        Raises:
            DataError: it failed; the message says why, without secrets.
        """
        driver: Any = self.connection.connection.driver_connection
        if self.address.backend not in FILE_DATABASES:
            return guarded(self.address, step, work)
        # Their drivers see no signal while they compute. A thread computes, and this one waits for both.
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            try:
                return guarded(self.address, step, future.result)
            except BaseException:
                while not future.done():
                    driver.interrupt()
                    wait((future,), AGAIN_SECONDS)
                raise


@contextmanager
def opened(address: DatabaseAddress) -> Iterator[OpenDatabase]:
    """Open a database for reading; nothing is ever committed.

    Raises:
        DataError: it cannot be opened, or refuses the login.
        UnreachableError: nobody answers at its address.
        MissingExtraError: its driver is not installed.
    """
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    url, arguments = _read_only(address)
    engine = guarded(
        address,
        DatabaseStep.CONNECT,
        lambda: create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=dict(arguments)),
    )
    options = _options(address.backend)
    connection = guarded(address, DatabaseStep.CONNECT, lambda: engine.connect().execution_options(**options))
    try:
        yield OpenDatabase(address, connection)
    except BaseException:
        # Otherwise it is rolled back, and where it was lost, a traceback of that is logged.
        connection.invalidate()
        raise
    finally:
        connection.close()
        engine.dispose()


def _read_only(address: DatabaseAddress) -> tuple[Any, Mapping[str, object]]:
    """Return URL and arguments of a connection that cannot write, where that can be asked for."""
    url = address.url
    match address.backend:
        case "postgresql":
            stated = {name.lower() for name in url.query}
            wanted = {"connect_timeout": CONNECT_SECONDS, "application_name": "fedfair"}
            return url, {name: value for name, value in wanted.items() if name not in stated}
        case "duckdb":
            if url.database in IN_MEMORY:
                return url, {}
            if not str(url.database).startswith("md:"):
                _check_file(address)
            return url, {"read_only": True}
        case "sqlite":
            if url.database in IN_MEMORY or str(url.database).startswith("file:"):
                raise DataError(f"{address} names no file", "write it like sqlite:////srv/data/records.sqlite")
            _check_file(address)
            place = Path(str(url.database)).absolute().as_uri()
            return url.set(database=place, query={"mode": "ro", "uri": "true"}), {"check_same_thread": False}
    return url, {}


def _check_file(address: DatabaseAddress) -> None:
    if not Path(str(address.url.database)).is_file():
        raise DataError(f"{address}: there is no such file", "check the path; it starts from collaborator.yaml")


def _options(backend: str) -> dict[str, Any]:
    """Return what holds for every statement: rows in blocks, and no `%` or `:` that stands for a parameter."""
    options: dict[str, Any] = {"stream_results": True, "no_parameters": True}
    if backend == "postgresql":
        # One state for both queries, whoever writes meanwhile.
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    return options
