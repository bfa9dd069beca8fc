"""Opens a site's database, so that it can only be read.

Decides where URL and password come from (a file, the environment), what a person is shown of the address, how each
kind of database is asked to be read only (PostgreSQL by a transaction, DuckDB and SQLite by a file that is opened
so), and what is said and to be done where one fails. A message has the address without its password, what the
database said without secrets, and never the query. An exception of a driver holds all three, so it is not even the
cause of the fault that is raised. Nothing is ever committed, whatever a database makes of a query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, quote_plus

from fedfair.errors import DataError, FedfairError, MissingExtraError, UnreachableError
from fedfair.extras import is_installed, missing_extra
from fedfair.policy.site_sql import URL_REMEDY, SqlSection, is_secret_option, url_fault, with_absolute_file

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection

Found = TypeVar("Found")

FILE_DATABASES = ("sqlite", "duckdb")
"""Databases that are a file of this machine."""

HIDDEN = "***"
MAX_WORDS = 300
"""Characters of a driver's words that a message repeats."""

MAX_CONTENT = 100_000
"""Characters of a file that holds a URL, a password or a query."""

_QUERY_LINES = ("LINE ", "[SQL", "[parameters", "DETAIL", "CONTEXT")
"""Beginnings of lines that repeat a part of the query, or a record."""

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

AGAIN_SECONDS = 0.05
"""After this time a query is interrupted again that had not begun when it was interrupted."""

CONNECT_SECONDS = 10
"""How long an address may take to answer, where its URL states no time."""

IN_MEMORY = (None, "", ":memory:")


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address of a database; its text never holds a password.

    Attributes:
        place: scheme, user, host and database, for messages.
        url: what SQLAlchemy connects to, password included.
        secrets: every spelling of a secret that a driver's words may hold, the longest first.
    """

    place: str
    url: URL = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def backend(self) -> str:
        """The kind of the database, such as "postgresql"."""
        return self.url.get_backend_name()

    def __str__(self) -> str:
        return self.place

    def censored(self, words: str) -> str:
        """Return a driver's words as one line of a readable length, without secrets and without the query."""
        for secret in self.secrets:
            words = words.replace(secret, HIDDEN)
        lines = [line.strip() for line in words.strip().splitlines()]
        if len(lines) > 1 and "attempts failed" in lines[0]:
            # One line for each address of a host; they fail for the same reason.
            lines = lines[-1:]
        end = next((place for place, line in enumerate(lines) if not line or line.startswith(_QUERY_LINES)), None)
        line = " ".join(lines[:end]) or "no reason is given"
        return line if len(line) <= MAX_WORDS else f"{line[:MAX_WORDS]}..."


def database_address(section: SqlSection, environment: Mapping[str, str]) -> DatabaseAddress:
    """Return where a site's database is.

    Args:
        section: `data.sql` of the site's file, with absolute paths.
        environment: the variables of the process.

    Raises:
        DataError: a file or a variable is missing or empty, or the URL is none; no message repeats the URL.
    """
    text = _url(section, environment)
    with cut_off():
        url = _parsed(text)
    password = _password(section, environment)
    if password is not None:
        if url.get_backend_name() in FILE_DATABASES:
            fault = f"data.sql: {url.get_backend_name()} has no passwords"
            raise DataError(fault, "omit password_file and password_env")
        url = url.set(password=password)
    return DatabaseAddress(_place(url), url, tuple(_secrets(text, url)))


def read_query(key: str, text: str | None, file: str | None) -> str:
    """Return a query that is stated, or the content of the file that holds it.

    Args:
        key: of `data.sql`, for the message.
        text: the query; None where a file holds it.
        file: its absolute path; None where the query is stated.

    Raises:
        DataError: the file cannot be read or is empty.
    """
    return text or _content(Path(file or ""), f"data.sql.{key}_file")


def _url(section: SqlSection, environment: Mapping[str, str]) -> str:
    if section.url is not None:
        return section.url
    if section.url_file is not None:
        key = "data.sql.url_file"
        path = Path(section.url_file)
        # A relative file of a database starts from the folder of the file that names it.
        stated = _content(path, key)
        url = with_absolute_file(stated, lambda name: str(path.parent / Path(name).expanduser()))
    else:
        key = "data.sql.url_env"
        url = stated = _variable(section.url_env or "", key, environment)
        if with_absolute_file(stated, lambda name: name if Path(name).is_absolute() else f"/{name}") != stated:
            raise DataError(f"{key}: the path of the database is relative", "write it with an absolute path")
    fault = url_fault(url)
    if fault is not None:
        raise DataError(f"{key}: {fault[0]}", fault[1])
    return url


def _password(section: SqlSection, environment: Mapping[str, str]) -> str | None:
    if section.password_file is not None:
        return _content(Path(section.password_file), "data.sql.password_file")
    if section.password_env is not None:
        return _variable(section.password_env, "data.sql.password_env", environment)
    return None


def _content(path: Path, key: str) -> str:
    """Return the text of a file without the end of its last line."""
    try:
        text = path.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except OSError as error:
        raise DataError(f"{key}: {path} cannot be read: {error.strerror}", "check the path") from error
    except UnicodeDecodeError:
        text = ""
    if not text.strip() or len(text) > MAX_CONTENT:
        raise DataError(f"{key}: {path} is empty, too long or no text", "write one text in UTF-8 into it")
    return text


def _variable(name: str, key: str, environment: Mapping[str, str]) -> str:
    text = environment.get(name, "")
    if not text:
        raise DataError(f"{key}: the environment has no variable {name}, or it is empty", f"set {name}")
    return text


def _parsed(text: str) -> URL:
    """Return a URL as SQLAlchemy reads it; PostgreSQL is reached through psycopg unless the URL says otherwise."""
    if not is_installed("sqlalchemy"):
        raise MissingExtraError(missing_driver("sqlalchemy"))
    from sqlalchemy import make_url

    try:
        url = make_url(text)
    except Exception:  # noqa: BLE001 - whatever it raises may repeat a part of a password
        raise DataError("data.sql: the URL is not that of a database", URL_REMEDY) from None
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


@contextmanager
def cut_off() -> Iterator[None]:
    """Let a fault that is raised within no longer lead to the exception behind it.

    That one is of a library and may hold a password. Tracebacks and trackers of errors show it, even where a fault
    is raised `from None`.
    """
    try:
        yield
    except FedfairError as fault:
        fault.__cause__ = fault.__context__ = None
        raise


def missing_driver(library: str) -> str:
    """Return in one line that a library of a database is not installed, and how to install it."""
    absent = ModuleNotFoundError(name=library)
    return missing_extra(absent) or f"this needs {library}, which is not installed: pip install {library}"


def _place(url: URL) -> str:
    """Return a URL without password and options."""
    user = f"{url.username}@" if url.username else ""
    host = f"[{url.host}]" if ":" in (url.host or "") else url.host or ""
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()}://{user}{host}{port}/{url.database or ''}"


def _secrets(text: str, url: URL) -> Iterator[str]:
    given = [url.password, *(value for name, value in url.query.items() if is_secret_option(name))]
    plain = [str(part) for one in given for part in ((one,) if isinstance(one, str) else one or ())]
    found = {text} if plain else set()
    for secret in plain:
        found |= {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]}
    yield from sorted((each for each in found if each), key=len, reverse=True)


class DatabaseStep(Enum):
    """The step that failed, in the words of its message."""

    CONNECT = "cannot be opened"
    QUERY = "refuses the query"
    READ = "ended while its records were read"


def guarded(address: DatabaseAddress, step: DatabaseStep, call: Callable[[], Found]) -> Found:
    """Return what a call to a driver returns.

    Raises:
        DataError: it failed; the message says why, without secrets.
        UnreachableError: nothing answers at the address.
        MissingExtraError: the driver is not installed.
    """
    with cut_off():
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
    words = address.censored(_words_of(error))
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
        # Their drivers see no signal while they compute. A thread computes, and this one waits for both. It looks
        # up now and then: the system may give a signal to any thread, and only this one can act on it.
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            try:
                while not future.done():
                    wait((future,), AGAIN_SECONDS)
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
        UnreachableError: nothing answers at its address.
        MissingExtraError: its driver is not installed.
    """
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    url, arguments = _read_only(address)
    options: dict[str, Any] = {"stream_results": True, "no_parameters": True}
    if address.backend == "postgresql":
        # One state for both queries, whoever writes meanwhile.
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    engine = guarded(
        address,
        DatabaseStep.CONNECT,
        lambda: create_engine(url, poolclass=NullPool, hide_parameters=True, connect_args=dict(arguments)),
    )
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
