"""From a site's `data.sql` to the address of its database, with its password kept out of every text.

Decides where URL and password come from (a file, the environment), what a person is shown of the address, and what
is removed from the words of a driver before anybody reads them. `sql_connection.py` connects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, quote_plus

from fedfair.errors import DataError, FedfairError, MissingExtraError
from fedfair.extras import missing_extra
from fedfair.policy.site_sql import URL_REMEDY, SqlSection, is_secret_option, url_fault, with_absolute_file

if TYPE_CHECKING:
    from sqlalchemy import URL

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

    def told(self, words: str) -> str:
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
    url = cut_off(lambda: _parsed(text))
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
    try:
        from sqlalchemy import make_url
    except ModuleNotFoundError as error:
        raise MissingExtraError(missing_driver("sqlalchemy")) from error
    try:
        url = make_url(text)
    except Exception:  # noqa: BLE001 - whatever it raises may repeat a part of a password
        raise DataError("data.sql: the URL is not that of a database", URL_REMEDY) from None
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def cut_off(call: Callable[[], Found]) -> Found:
    """Return what a call returns; a fault that it raises no longer leads to the exception behind it.

    That one is of a library and may hold a password. Tracebacks and trackers of errors show it, even where a fault
    is raised `from None`.
    """
    try:
        return call()
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
