"""The database of a site: `data: {sql: {...}}` of `collaborator.yaml`.

Decides what may be written there, and that no password is: it comes from a file or the environment, so that the
site's file may be shown, copied and kept under version control. Nothing here connects to a database or needs a
library for one; `fedfair.tables.sql_connection` makes an address of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from fedfair.plan.fields import Fault, Section, Text, refuse

MAX_QUERY = 50_000
"""Characters of a query; a site's own file has at most 64 KiB."""

MAX_URL = 2000
"""Characters of a URL."""

OWN_FILE = "write it into a file that only this user can read (chmod 600), and name it under password_file"

PLACEHOLDER_REMEDY = "use password_env or url_env, which name a variable of the environment"
URL_REMEDY = "write it like postgresql://USER@HOST:5432/DATABASE, duckdb:///FILE or sqlite:///FILE"

MAX_PORT = 65535

_URL = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*)://(?P<rest>.*)", re.DOTALL)
_FILE_URL = re.compile(r"(?P<start>(?:sqlite|duckdb)(?:\+\w+)?:///)(?P<path>[^?]*)(?P<end>.*)", re.DOTALL)
_PORT = re.compile(r":([^\]:]*)$")
_PASSWORD = re.compile(r"[^:/]*:[^@]+@")
"""A password, as SQLAlchemy finds it: all between the first colon and the next @, a path and options included."""
_SECRET_KEY = re.compile(r"pass|pwd|secret|token|credential|odbc_connect", re.IGNORECASE)
_NOT_SECRET = frozenset({"passfile"})
_MEMORY = (":memory:", "md:", "file:")
"""Beginnings of a database that is no path."""

Query = Annotated[str, Field(min_length=1, max_length=MAX_QUERY)]


class SqlSection(Section):
    """The database that holds this site's records, and the query that reads them."""

    # A URL may hold a password by mistake, which no message and no repr may repeat.
    url: str | None = Field(default=None, repr=False)
    """the database as a URL without a password, such as postgresql://reader@db.example.org/omop,
    duckdb:///records.duckdb or sqlite:///records.sqlite; any dialect of SQLAlchemy"""
    url_file: Text | None = None
    """file that holds the URL, which may have a password; a path"""
    url_env: Text | None = None
    """environment variable that holds the URL, which may have a password"""
    password_file: Text | None = None
    """file that holds the password alone; a path"""
    password_env: Text | None = None
    """environment variable that holds the password; a file is safer"""
    query: Query | None = Field(default=None, repr=False)
    """one SELECT: a column for each one that the plan names, and a row for each record"""
    query_file: Text | None = None
    """file that holds the query; a path"""
    test_query: Query | None = Field(default=None, repr=False)
    """the same for test records of their own; null: there are none"""
    test_query_file: Text | None = None
    """file that holds the query of them; a path"""

    @model_validator(mode="after")
    def _check(self) -> SqlSection:
        refuse(self, self._faults())
        return self

    def _faults(self) -> Iterator[Fault]:
        yield from self._choice_faults(("url", "url_file", "url_env"), needed=True)
        yield from self._choice_faults(("password_file", "password_env"), needed=False)
        yield from self._choice_faults(("query", "query_file"), needed=True)
        yield from self._choice_faults(("test_query", "test_query_file"), needed=False)
        if self.url is not None:
            yield from self._url_faults(self.url)

    def _url_faults(self, url: str) -> Iterator[Fault]:
        if "${" in url or "{{" in url:
            yield Fault(("url",), "holds a placeholder, and nothing is put in its place", PLACEHOLDER_REMEDY)
        elif holds_password(url):
            yield Fault(("url",), "holds a password, and this file is no place for one", OWN_FILE)
        elif (fault := url_fault(url)) is not None:
            yield Fault(("url",), *fault)

    def _choice_faults(self, names: tuple[str, ...], *, needed: bool) -> Iterator[Fault]:
        stated = [name for name in names if getattr(self, name) is not None]
        if len(stated) > 1:
            yield Fault((stated[1],), f"is stated beside {stated[0]}", "keep one of them")
        if needed and not stated:
            yield Fault((names[0],), "is missing", f"state {', '.join(names[:-1])} or {names[-1]}")

    def placed(self, absolute: Callable[[str | None], str | None]) -> SqlSection:
        """Return the same with its relative paths made absolute, that of a database in a file among them."""
        names = ("url_file", "password_file", "query_file", "test_query_file")
        paths = {name: absolute(getattr(self, name)) for name in names}
        url = None if self.url is None else with_absolute_file(self.url, lambda path: str(absolute(path)))
        return self.model_copy(update={**paths, "url": url})

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """The files that only this site's user should read."""
        return tuple(Path(path) for path in (self.url_file, self.password_file) if path is not None)


def url_fault(url: str) -> tuple[str, str] | None:
    """Return what is wrong with a URL, and what to do about it, in words that repeat nothing of it."""
    if len(url) > MAX_URL:
        return f"has {len(url)} characters, at most {MAX_URL}", URL_REMEDY
    found = _URL.fullmatch(url)
    if found is None or not url.isprintable():
        return "is not the URL of a database", URL_REMEDY
    authority = _authority_of(found["rest"])
    if authority.count("@") > 1:
        return (
            "has more than one @ before the host",
            "write @ in a user or password as %40, or give the password alone under password_file",
        )
    port = _PORT.search(authority.rpartition("@")[2])
    if port is not None and not (port[1].isascii() and port[1].isdecimal() and 0 < int(port[1]) <= MAX_PORT):
        return f"has a port that is no number from 1 to {MAX_PORT}", URL_REMEDY
    return None


def holds_password(url: str) -> bool:
    """Return whether a URL holds a password: after its user, or as one of its options."""
    found = _URL.fullmatch(url)
    rest = url if found is None else found["rest"]
    user, at, _ = _authority_of(rest).rpartition("@")
    if (at and user.partition(":")[2]) or _PASSWORD.match(rest):
        return True
    options = (option.partition("=")[0] for option in rest.partition("?")[2].split("&"))
    return any(is_secret_option(name) for name in options)


def is_secret_option(name: str) -> bool:
    """Return whether an option of a URL holds a secret, by its name."""
    return _SECRET_KEY.search(name) is not None and name.lower() not in _NOT_SECRET


def with_absolute_file(url: str, absolute: Callable[[str], str]) -> str:
    """Return the URL of a database in a file with an absolute path; any other URL as it is."""
    found = _FILE_URL.fullmatch(url)
    if found is None or not found["path"] or found["path"].startswith(_MEMORY):
        return url
    return f"{found['start']}{absolute(found['path'])}{found['end']}"


def _authority_of(rest: str) -> str:
    """Return user, password, host and port of a URL: all up to the path, which follows the last @ before it."""
    if rest.startswith("/"):
        return ""
    # A password may hold an unescaped slash, as long as an @ ends it.
    head, at, tail = rest.partition("?")[0].rpartition("@")
    return f"{head}{at}{tail.partition('/')[0]}"
