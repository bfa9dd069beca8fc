"""The database in a site's own file: what may stand there, and that no password is repeated by anything."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
import yaml

from fedfair.errors import PlanError
from fedfair.policy.site_config import SiteConfig, load_site_config
from fedfair.policy.site_sql import holds_password, url_fault, with_absolute_file

SECRET = "hunter2-zebra"  # noqa: S105 - of nobody
URL = "postgresql://reader@db.example.org:5432/omop"


def loaded(folder: Path, **sql: object) -> SiteConfig:
    file = folder / "collaborator.yaml"
    file.write_text(yaml.safe_dump({"collaborator": "clinic-a", "data": {"sql": sql}}), encoding="utf-8")
    return load_site_config(file)


def test_relative_paths_start_from_the_folder_of_the_file(tmp_path: Path) -> None:
    sql = loaded(tmp_path, url="duckdb:///own/records.duckdb", query_file="cohort.sql").data.sql
    assert sql is not None
    assert (sql.url, sql.query_file) == (f"duckdb:///{tmp_path}/own/records.duckdb", str(tmp_path / "cohort.sql"))
    files = {"url_file": "secret/url", "password_file": "/run/pw"}
    sql = loaded(tmp_path, query="SELECT 1", **files).data.sql
    assert sql is not None
    assert (sql.url_file, sql.password_file) == (str(tmp_path / "secret/url"), "/run/pw")


@pytest.mark.parametrize(
    ("url", "placed"),
    [
        ("sqlite:///a.db", "sqlite:////srv/a.db"),
        ("sqlite:////a.db", "sqlite:////a.db"),
        ("duckdb:///a.duckdb?x=1", "duckdb:////srv/a.duckdb?x=1"),
        ("duckdb:///:memory:", "duckdb:///:memory:"),
        (URL, URL),
    ],
)
def test_only_the_file_of_a_database_is_a_path(url: str, placed: str) -> None:
    assert with_absolute_file(url, lambda path: str(Path("/srv") / path)) == placed


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://reader:{SECRET}@db.example.org/omop",
        f"postgresql://:{SECRET}@db.example.org/omop",
        f"postgresql://reader:{SECRET}@more@db.example.org/omop",
        f"postgresql://reader:a/{SECRET}@db.example.org/omop",
        f"postgresql://reader:a?{SECRET}@db.example.org/omop",
        f"postgresql://reader@db.example.org/omop?password={SECRET}",
        f"postgresql://reader@db.example.org/omop?sslpassword={SECRET}",
        f"mssql+pyodbc:///?odbc_connect=PWD%3D{SECRET}",
        f"duckdb:///md:omop?motherduck_token={SECRET}",
    ],
)
def test_a_password_in_the_url_is_refused_by_a_message_that_does_not_repeat_it(tmp_path: Path, url: str) -> None:
    assert holds_password(url)
    with pytest.raises(PlanError) as refused:
        loaded(tmp_path, url=url, query="SELECT 1")
    said = refused.value.diagnostics()
    assert "data.sql.url: holds a password, and this file is no place for one -> write it into a file" in said
    assert SECRET not in said
    assert SECRET not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "postgresql://reader:@db/omop",
        f"{URL}?passfile=/x&sslmode=require",
        "sqlite:////a:b@c.db",
        "postgresql:///x",
    ],
)
def test_a_url_without_a_password_is_taken(tmp_path: Path, url: str) -> None:
    assert not holds_password(url)
    assert url_fault(url) is None
    assert loaded(tmp_path, url=url, query="SELECT 1").data.sql is not None


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ({"url": URL}, "data.sql.query: is missing -> state query or query_file"),
        ({"query": "SELECT 1"}, "data.sql.url: is missing -> state url, url_file or url_env"),
        ({"url": URL, "url_env": "X", "query": "SELECT 1"}, "data.sql.url_env: is stated beside url"),
        ({"url": URL, "query": "SELECT 1", "query_file": "x.sql"}, "data.sql.query_file: is stated beside query"),
        ({"url": "db.example.org", "query": "SELECT 1"}, "data.sql.url: is not the URL of a database"),
        ({"url": "postgresql://u@h:x/d", "query": "SELECT 1"}, "data.sql.url: has a port that is no number"),
        ({"url": "postgresql://u@h:99999/d", "query": "SELECT 1"}, "data.sql.url: has a port that is no number"),
        ({"url": "postgresql://u:${PW}@h/d", "query": "SELECT 1"}, "holds a placeholder"),
        ({"url": "x" * 3000, "query": "SELECT 1"}, "has 3000 characters, at most 2000"),
        ({"url": URL, "query": "SELECT 1", "password": SECRET}, "data.sql.password: unknown key"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(tmp_path: Path, sql: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError) as refused:
        loaded(tmp_path, **sql)
    assert said in refused.value.diagnostics()
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_files_beside_a_database_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "collaborator.yaml"
    file.write_text(f"collaborator: a\ndata: {{train: a.csv, sql: {{url: '{URL}', query: SELECT 1}}}}\n")
    with pytest.raises(PlanError, match=r"data\.train: is stated beside sql -> keep the file or the database"):
        load_site_config(file)


def test_neither_url_nor_query_is_in_the_text_of_a_configuration(tmp_path: Path) -> None:
    assert "db.example.org" not in repr(loaded(tmp_path, url=URL, query="SELECT private"))
    assert "private" not in repr(loaded(tmp_path, url=URL, query="SELECT private"))
