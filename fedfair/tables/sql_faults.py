"""One clear line for each way in which a database fails.

Decides what is said and what is to be done, from the words of the driver: the address without its password, what
the database said without secrets, and never the query. An exception of a driver holds all three, so it is not even
the cause of the fault that is raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from fedfair.errors import DataError, FedfairError, MissingExtraError, UnreachableError
from fedfair.tables.sql_url import FILE_DATABASES, DatabaseAddress, cut_off, missing_driver

Found = TypeVar("Found")


class DatabaseStep(Enum):
    """The step that failed, in the words of its message."""

    CONNECT = "cannot be opened"
    QUERY = "refuses the query"
    READ = "ended while its records were read"


_LOCKED = "another program has it open for writing: end that program, or read a copy of the file"
_TOOL = "try the query in the database's own tool, as the same user"

_LOGIN = re.compile(
    r"authentication failed|password supplied|access denied|login failed"
    r"|role .* (does not exist|is not permitted)",
    re.IGNORECASE,
)
_REMEDIES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), remedy)
    for pattern, remedy in (
        (r"set lock|is locked|already open", _LOCKED),
        (r"database .* does not exist|unknown database", "check the name of the database in the URL"),
        (r"pg_hba|ssl|certificate", "ask whoever runs the database how this machine may connect"),
        (r"not a database|not a valid duckdb", "check the path in the URL: the file is of another kind"),
        (r"permission denied|insufficient.privilege", "let this user read it: GRANT SELECT ON ... TO ..."),
        (r"read.?only|cannot execute \w+ in", "write one SELECT that changes nothing"),
        (r"does not exist|no such|not found|unknown column", "check the names of tables and columns in the query"),
        (r"timeout|canceling statement", "ask for a longer time limit, or make the query cheaper"),
    )
)


def guarded(address: DatabaseAddress, step: DatabaseStep, call: Callable[[], Found]) -> Found:
    """Return what a call to a driver returns.

    Raises:
        DataError: it failed; the message says why, without secrets.
        UnreachableError: nobody answers at the address.
        MissingExtraError: the driver is not installed.
    """
    return cut_off(lambda: _called(address, step, call))


def _called(address: DatabaseAddress, step: DatabaseStep, call: Callable[[], Found]) -> Found:
    try:
        return call()
    except FedfairError:
        raise
    except Exception as error:  # noqa: BLE001 - each driver has exceptions of its own
        raise _fault(address, step, error) from None


def _fault(address: DatabaseAddress, step: DatabaseStep, error: Exception) -> FedfairError:
    if isinstance(error, ModuleNotFoundError):
        return MissingExtraError(missing_driver((error.name or "its driver").partition(".")[0]))
    if type(error).__name__ == "NoSuchModuleError":
        return _unknown_kind(address)
    words = address.told(_words_of(error))
    remedy = next((remedy for pattern, remedy in _REMEDIES if pattern.search(words)), "")
    if _LOGIN.search(words):
        return DataError(
            f"{address} refuses the login: {words}", "check the user in the URL and the password in password_file"
        )
    if step is not DatabaseStep.CONNECT:
        return DataError(f"{address} {step.value}: {words}", remedy or _TOOL)
    if remedy or address.backend in FILE_DATABASES:
        return DataError(f"{address} {step.value}: {words}", remedy or "check the path in the URL")
    return UnreachableError(
        f"{address} cannot be reached: {words}",
        "check host and port in the URL, and that the network lets it through",
    )


def _unknown_kind(address: DatabaseAddress) -> FedfairError:
    name = address.url.drivername
    if name.startswith("duckdb"):
        return MissingExtraError(missing_driver("duckdb_engine"))
    meant = " (did you mean 'postgresql'?)" if address.backend in {"postgres", "pg", "psql"} else ""
    return DataError(
        f"no installed library knows databases of the kind '{name}'{meant}",
        "write postgresql, duckdb or sqlite before ://, or install a dialect of SQLAlchemy for it",
    )


def _words_of(error: Exception) -> str:
    """Return what a database said: SQLAlchemy's exception adds the query to that of the driver inside it."""
    said = getattr(error, "orig", None) or error
    diagnosis = getattr(said, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    if primary:
        hint = getattr(diagnosis, "message_hint", None)
        return f"{primary} ({hint})" if hint else str(primary)
    return str(said) or type(said).__name__
