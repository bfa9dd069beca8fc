"""Records from databases: a real PostgreSQL that the tests start, DuckDB and SQLite, each against a CSV file."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import traceback
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import duckdb
import numpy as np
import pytest

from fedfair.errors import DataError, FedfairError, MissingExtraError, UnreachableError
from fedfair.extras import install_command
from fedfair.plan.csv_table import CsvData
from fedfair.policy.site_sql import SqlSection
from fedfair.tables import feature_storage, sql_table
from fedfair.tables.feature_storage import FeatureStorage, storage_of
from fedfair.tables.site_form import site_table
from fedfair.tables.sources.table import read_csv
from fedfair.tables.sql_connection import DatabaseStep, database_address, opened
from fedfair.tables.sql_table import read_sql, running_query
from fedfair.tables.table_reader import CsvRecords
from tests.imports import REPOSITORY
from tests.patience import PATIENCE
from tests.postgres_server import PASSWORD, Postgres

SPEC = CsvData.model_validate(
    {
        "label": "died", "label_values": ["no", "yes"], "numeric": ["age", "dose"], "missing": "mean",
        "categorical": {"sex": ["F", "M"], "smokes": [0, 1]}, "keep": ["ward"],
    }
)  # fmt: skip
COUNT = 500
QUERY = "SELECT age, dose, sex, smokes, died, ward FROM patients"
ORDERED = f"{QUERY} ORDER BY id"


def rows() -> list[tuple[object, ...]]:
    """Return records with numbers that have no short decimal form, missing ones, and equal ones."""
    random = np.random.default_rng(5)
    found: list[tuple[object, ...]] = []
    for number in range(COUNT):
        age = None if number % 17 == 0 else int(random.integers(18, 99))
        dose = None if number % 23 == 0 else float(random.normal(1.3, 0.7))
        sex = (None, "F", "M", "X")[int(random.integers(0, 4))]
        found.append((number, age, dose, sex, bool(number % 3), ("no", "yes")[number % 2], f"ward {number % 4}"))
    return [*found, *((COUNT + index, *row[1:]) for index, row in enumerate(found[:5]))]


TABLE = "(id integer, age integer, dose double precision, sex text, smokes boolean, died text, ward text)"


def csv_file(folder: Path, order: Callable[[int], int] = lambda place: place) -> Path:
    path, every = folder / "patients.csv", rows()
    lines = ["age,dose,sex,smokes,died,ward"]
    for place in range(len(every)):
        _, age, dose, sex, smokes, died, ward = every[order(place)]
        texts = ("" if value is None else str(value) for value in (age, dose, sex, int(bool(smokes)), died, ward))
        lines.append(",".join(texts))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SqlSection]:
    """Return the address of the same table in two databases that are files."""
    folder = tmp_path_factory.mktemp("databases")
    with duckdb.connect(str(folder / "a.duckdb")) as made:
        made.execute(f"CREATE TABLE patients {TABLE}")
        made.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?, ?, ?)", rows())
    with sqlite3.connect(folder / "a.sqlite") as lite:
        lite.execute(f"CREATE TABLE patients {TABLE}")
        lite.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?, ?, ?)", rows())
    lite.close()
    return {name: SqlSection(url=f"{name}:///{folder}/a.{name}", query=ORDERED) for name in ("duckdb", "sqlite")}


@pytest.fixture(scope="module")
def on_postgres(postgres: Postgres) -> SqlSection:
    """Return the address of the same table in PostgreSQL."""
    values = ", ".join(
        "(" + ", ".join("NULL" if value is None else repr(value) for value in row) + ")" for row in rows()
    )
    filled = f"INSERT INTO patients VALUES {values}"  # noqa: S608 - of numbers and words of this file
    postgres.execute("DROP TABLE IF EXISTS patients", f"CREATE TABLE patients {TABLE}", filled)
    return SqlSection(url=postgres.url, password_file=str(postgres.password_file), query=ORDERED)


@pytest.fixture(params=["duckdb", "sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, databases: dict[str, SqlSection]) -> SqlSection:
    if request.param == "postgresql":
        return request.getfixturevalue("on_postgres")  # type: ignore[no-any-return]
    return databases[request.param]


def asking(section: SqlSection, query: str) -> SqlSection:
    return section.model_copy(update={"query": query})


def read(section: SqlSection, spec: CsvData = SPEC, environment: Mapping[str, str] | None = None) -> CsvRecords:
    return read_sql(section, site_table(spec, None), 2, (), environment or {})["query"]


def assert_same(one: CsvRecords, other: CsvRecords) -> None:
    """Compare to the bit; NaN equals NaN."""
    assert one.dataset.features.tobytes() == other.dataset.features.tobytes()
    np.testing.assert_array_equal(one.dataset.labels, other.dataset.labels)
    assert one.dataset.schema == other.dataset.schema
    assert one.columns == other.columns
    assert one.dataset.columns["ward"].tolist() == other.dataset.columns["ward"].tolist()


def refused(call: Callable[[], object], kind: type[FedfairError] = DataError) -> str:
    """Return what is said to a person, after looking for the password wherever a program could find it."""
    with pytest.raises(kind) as found:
        call()
    fault = found.value
    assert fault.__context__ is None
    assert fault.__cause__ is None
    everything = "".join(traceback.format_exception(fault)) + repr(fault) + fault.diagnostics()
    for secret in (PASSWORD, quote(PASSWORD, safe=""), "zebra"):
        assert secret not in everything
    assert "\n" not in fault.message
    return fault.diagnostics()


def test_an_order_is_the_query_s_own_or_one_that_no_database_changes(database: SqlSection, tmp_path: Path) -> None:
    assert_same(read(database), read_csv(csv_file(tmp_path), SPEC, 2, ()))
    first = read(asking(database, QUERY))
    for order in ("age, dose DESC", "random()"):
        # In parentheses an order is none of the result.
        shuffled = f"SELECT * FROM ({QUERY} ORDER BY {order}) AS shuffled"  # noqa: S608 - of this file alone
        other = read(asking(database, shuffled))
        assert_same(other, first)
        assert other.digest == first.digest
    assert read(database).digest != first.digest


def test_no_database_has_another_order(databases: dict[str, SqlSection], on_postgres: SqlSection) -> None:
    found = [read(asking(each, QUERY)) for each in (*databases.values(), on_postgres)]
    assert len({one.digest for one in found}) == 1
    assert_same(found[0], found[2])


@pytest.mark.parametrize("query", [ORDERED, QUERY])
def test_records_in_the_room_are_those_in_memory_in_one_order(
    database: SqlSection, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_storage, "BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(feature_storage, "BLOCKS_AT_ONCE", 2)
    expected = read(asking(database, query))
    both = asking(database, query).model_copy(update={"test_query": f"{QUERY} WHERE id < 20"})
    own = FeatureStorage(tmp_path, most_in_memory=0)
    found = read_sql(both, site_table(SPEC, None), 2, (), {}, own)
    assert_same(found["query"], expected)
    assert found["query"].digest == expected.digest
    assert [storage_of(one.dataset.features) for one in found.values()] == [own, own]


@pytest.mark.parametrize("order", [" ORDER BY id", ""])
def test_of_many_records_few_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    monkeypatch.setattr(feature_storage, "BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(sql_table, "BLOCK_VALUES", 1 << 15)
    columns = [f"x{place}" for place in range(40)]
    values = ", ".join(f"hash(id + {place}) / 1e19 AS {name}" for place, name in enumerate(columns))
    query = f"SELECT {values}, id % 2 AS died FROM range(20000) AS r(id){order}"  # noqa: S608 - of this test
    section = SqlSection(url="duckdb:///:memory:", query=query)
    spec = CsvData.model_validate({"label": "died", "numeric": columns})
    few = asking(section, query.replace("20000", "10"))  # whatever is imported is imported before
    read_sql(few, site_table(spec, None), 2, (), {})
    tracemalloc.start()
    try:
        disk = FeatureStorage(tmp_path, most_in_memory=0)
        found = read_sql(section, site_table(spec, None), 2, (), {}, disk)["query"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < found.dataset.features.nbytes / 2


def test_queries_of_their_own_digests_and_texts_with_signs(database: SqlSection) -> None:
    assert read(database).digest == read(database).digest
    assert read(asking(database, f"{QUERY} ORDER BY id DESC")).digest != read(database).digest
    changed = ORDERED.replace("dose", "CASE WHEN id = 7 THEN dose + 1e-12 ELSE dose END AS dose")
    assert read(asking(database, changed)).digest != read(database).digest
    both = database.model_copy(update={"test_query": f"{QUERY} WHERE id < 20 ORDER BY id"})
    found = read_sql(both, site_table(SPEC, None), 2, (), {})
    assert [len(found[key].dataset) for key in ("query", "test_query")] == [COUNT + 5, 20]
    query = f"{QUERY} WHERE ward LIKE 'ward%' AND ward <> ':x %s ? ; --' /* ; */ ORDER BY id; -- the end"
    assert len(read(asking(database, query)).dataset) == COUNT + 5


def test_types_of_postgresql_mean_what_their_text_means(postgres: Postgres, on_postgres: SqlSection) -> None:
    postgres.execute(
        "DROP TYPE IF EXISTS tint CASCADE",
        "CREATE TYPE tint AS ENUM ('red', 'blue')",
        "DROP TABLE IF EXISTS kinds",
        "CREATE TABLE kinds (n numeric, small smallint, big bigint, code char(5), day date, tint tint, y integer)",
        "INSERT INTO kinds VALUES (1.50, 3, 9007199254740993, 'ab', '2024-02-29', 'red', 1), "
        "(NULL, NULL, NULL, NULL, NULL, 'blue', 0), (0.1, -1, 5, 'cd', '2024-03-01', NULL, 1)",
    )
    spec = CsvData.model_validate(
        {
            "label": "y", "numeric": ["n", "small"], "missing": "mean",
            "categorical": {"code": ["ab", "cd"], "tint": ["red", "blue"], "day": ["2024-02-29"]}, "keep": ["big"],
        }
    )  # fmt: skip
    found = read(asking(on_postgres, "SELECT * FROM kinds ORDER BY big"), spec).dataset
    np.testing.assert_array_equal(found.features[:, :2], [[0.1, -1], [1.5, 3], [np.nan, np.nan]])
    coded = found.features[:, 2:].tolist()
    assert coded == [[0, 1, 0, 0, 0, 1, 0, 1], [1, 0, 0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 1, 0, 0, 1]]
    assert found.columns["big"].tolist() == ["5", "9007199254740993", ""]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM nowhere", "nowhere"),
        ("SELECT nope FROM patients", "nope"),
        (f"{QUERY} WHERE 1 = 0", "has no records"),
        (QUERY.replace("dose", "dose AS dosis"), "has no column 'dose' (did you mean 'dosis'?)"),
        (QUERY.replace("age,", "age, age,"), "returns two columns called 'age'"),
        ("DELETE FROM patients", "data.sql.query begins with DELETE; only a query that reads is run"),
        ("SELECT 1; DROP TABLE patients", "data.sql.query holds more than one statement"),
        ("-- nothing", "data.sql.query holds no statement"),
        (QUERY.replace("age,", "sex AS age,"), "column 'age': not a finite number in"),
        ("SELECT age, FROM FROM patients", "refuses the query"),
    ],
)
def test_a_query_that_cannot_be_used_is_told_in_one_line(database: SqlSection, query: str, said: str) -> None:
    with pytest.raises(DataError) as found:
        read(asking(database, query))
    assert said in found.value.diagnostics()
    assert PASSWORD not in "".join(traceback.format_exception(found.value))


@pytest.mark.parametrize("column", ["ARRAY[1, 2]", "'{\"a\": 1}'::json", "decode('00', 'hex')"])
def test_a_column_that_is_nested_or_binary_is_refused_by_its_name(on_postgres: SqlSection, column: str) -> None:
    with pytest.raises(DataError, match=r"column 'age' holds (lists|records|bytes)"):
        read(asking(on_postgres, QUERY.replace("age,", f"{column} AS age,")))


def test_nothing_can_be_written_and_no_row_is_lost(database: SqlSection) -> None:
    address = database_address(database, {})
    with opened(address) as opened_there:
        frames = []
        with running_query(opened_there, "SELECT id, age FROM patients ORDER BY id", "query") as result:
            while len(frame := result.fetch(100, ["id"])):
                frames.append(frame)
    assert [number for frame in frames for number in frame["id"]] == list(range(COUNT + 5))
    # DuckDB counts in vectors of 2048 rows.
    assert len(frames) == (1 if address.backend == "duckdb" else 6)
    address, writing = database_address(database, {}), "UPDATE patients SET age = 1 RETURNING age"
    with (
        opened(address) as opened_there,
        pytest.raises(DataError, match=r"refuses the query|ended while"),
        running_query(opened_there, writing, "query") as result,
    ):
        list(result.blocks(["age"]))
    assert len(read(asking(database, f"{QUERY} WHERE age = 1 OR id = 1")).dataset) == 1


def test_a_function_that_writes_is_refused_by_the_transaction(on_postgres: SqlSection, postgres: Postgres) -> None:
    postgres.execute(
        "CREATE OR REPLACE FUNCTION emptied() RETURNS integer LANGUAGE sql AS 'DELETE FROM patients; SELECT 1'"
    )
    said = refused(lambda: read(asking(on_postgres, QUERY.replace("age,", "emptied() AS age,"))))
    assert "cannot execute DELETE in a read-only transaction" in said
    assert said.endswith("write one SELECT that changes nothing")


def test_a_connection_that_is_lost_while_records_are_read_is_one_clear_fault_and_logs_nothing(
    on_postgres: SqlSection, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    address = database_address(on_postgres, {})

    def lost() -> None:
        with opened(address) as there, running_query(there, ORDERED, "query") as result:
            result.fetch(100, ["age"])
            postgres.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fedfair'"
            )
            there.call(DatabaseStep.READ, lambda: result.fetch(100, ["age"]))

    with pytest.raises(DataError, match="ended while its records were read: terminating connection") as found:
        lost()
    assert PASSWORD not in "".join(traceback.format_exception(found.value))
    assert caplog.records == []
    assert len(read(on_postgres).dataset) == COUNT + 5


def test_a_wrong_password_is_told_without_it(on_postgres: SqlSection, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("zebra\n")
    said = refused(lambda: read(on_postgres.model_copy(update={"password_file": str(wrong)})))
    assert "refuses the login" in said
    assert 'password authentication failed for user "owner"' in said
    said = refused(lambda: read(on_postgres.model_copy(update={"password_file": None})))
    assert "no password supplied" in said


def test_a_password_comes_from_the_environment_or_a_file(on_postgres: SqlSection, tmp_path: Path) -> None:
    named = on_postgres.model_copy(update={"password_file": None, "password_env": "DB_PASSWORD"})
    expected = read(on_postgres).digest
    assert read(named, environment={"DB_PASSWORD": PASSWORD}).digest == expected
    url = str(on_postgres.url).replace("owner@", f"owner:{quote(PASSWORD, safe='')}@")
    (tmp_path / "url").write_text(f"{url}\n")
    in_file = on_postgres.model_copy(
        update={"url": None, "url_file": str(tmp_path / "url"), "password_file": None}
    )
    assert read(in_file).digest == expected
    in_variable = on_postgres.model_copy(update={"url": None, "url_env": "DB_URL", "password_file": None})
    assert read(in_variable, environment={"DB_URL": url}).digest == expected
    address = database_address(in_file, {})
    for text in (repr(address), str(address), address.censored(f"tried {url} with {PASSWORD}")):
        assert PASSWORD not in text
        assert quote(PASSWORD, safe="") not in text
    assert "environment has no variable DB_PASSWORD" in refused(lambda: read(named))
    said = refused(lambda: read(asking(in_file, "SELECT nope FROM patients")))
    assert 'column "nope" does not exist' in said


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://owner:zebra@more@127.0.0.1/x", "has more than one @"),
        ("postgresql://owner:zebra@127.0.0.1:zebra/x", "has a port that is no number"),
        ("zebra", "is not the URL of a database"),
        ("postgres://owner:zebra@127.0.0.1/x", "did you mean 'postgresql'"),
        ("duckdb:///zebra.duckdb", None),
    ],
)
def test_a_url_from_the_environment_that_is_none_is_not_repeated(url: str, said: str | None) -> None:
    section = SqlSection(url_env="DB_URL", query=QUERY)
    assert (said or "the path of the database is relative") in refused(
        lambda: read(section, environment={"DB_URL": url})
    )


def test_an_address_where_nobody_answers_is_told(on_postgres: SqlSection) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://owner@127.0.0.1:{taken.getsockname()[1]}/postgres"
        said = refused(lambda: read(on_postgres.model_copy(update={"url": url})), UnreachableError)
    assert "cannot be reached" in said
    assert "Connection refused" in said
    assert said.endswith("check host and port in the URL, and that the network lets it through")
    nowhere = on_postgres.model_copy(update={"url": "postgresql://owner@nobody.invalid/x"})
    assert "nobody.invalid" in refused(lambda: read(nowhere), UnreachableError)


def test_a_database_that_is_not_there_is_told(on_postgres: SqlSection, tmp_path: Path) -> None:
    other = str(on_postgres.url).replace("/postgres", "/elsewhere")
    said = refused(lambda: read(on_postgres.model_copy(update={"url": other})))
    assert 'database "elsewhere" does not exist' in said
    for kind in ("sqlite", "duckdb"):
        section = SqlSection(url=f"{kind}:///{tmp_path}/none.db", query=QUERY)
        assert "there is no such file" in refused(lambda section=section: read(section))  # type: ignore[misc]
        (tmp_path / "text.db").write_text("this is no database, whatever its name says\n" * 100)
        section = SqlSection(url=f"{kind}:///{tmp_path}/text.db", query=QUERY)
        assert "the file is of another kind" in refused(lambda section=section: read(section))  # type: ignore[misc]


def test_a_file_that_another_program_writes_is_told(tmp_path: Path) -> None:
    path = tmp_path / "busy.duckdb"
    script = (
        "import duckdb, sys; kept = duckdb.connect(sys.argv[1]); kept.execute('CREATE TABLE t (a INTEGER)');"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        said = refused(lambda: read(SqlSection(url=f"duckdb:///{path}", query=QUERY)))
        writer.kill()
    assert "another program has it open for writing" in said


@pytest.mark.parametrize(
    ("url", "absent", "said"),
    [
        ("postgresql://owner@127.0.0.1/x", "psycopg", install_command("sql")),
        ("duckdb:///:memory:", "duckdb_engine", install_command("sql")),
        ("duckdb:///:memory:", "sqlalchemy", install_command("sql")),
        ("mysql+pymysql://owner@127.0.0.1/x", "pymysql", "pip install pymysql"),
    ],
)
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, url: str, absent: str, said: str) -> None:
    if absent == "duckdb_engine":
        from sqlalchemy.dialects import registry

        monkeypatch.setattr(registry, "impls", {})
        monkeypatch.setattr(registry, "auto_fn", None)
    for name in [name for name in sys.modules if name.partition(".")[0] == absent]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtraError) as found:
        read(SqlSection(url=url, query=QUERY))
    assert found.value.message == f"this needs {absent}, which is not installed: {said}"


WAITING = {
    "postgresql": "SELECT pg_sleep(1000) AS age, 1 AS x",
    "duckdb": "SELECT sum(sin(a.range * b.range)) AS age, 1 AS x FROM range(1000000) a, range(1000000) b",
    "sqlite": (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT sum(x) AS age, 1 AS x FROM n"
    ),
}
READER = """
import json, os, signal, sys, threading
from fedfair.tables.site_form import site_table
from fedfair.tables.sql_table import read_sql
from fedfair.plan.csv_table import CsvData
from fedfair.policy.site_sql import SqlSection
table = CsvData(label="age", numeric=("x",))
def read(url, query, variable):
    section = SqlSection(url=url, query=query, password_env=variable)
    return read_sql(section, site_table(table, None), 2, ())
for url, query, variable in json.loads(sys.argv[1]):
    read(url, "SELECT 1 AS age, 2 AS x", variable)
    # By then the query runs; an earlier signal would end the reading as well.
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        read(url, query, variable)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_ends_a_query_that_takes_long(databases: dict[str, SqlSection], on_postgres: SqlSection) -> None:
    asked = [
        (str(section.url), WAITING[str(section.url).partition(":")[0]], "PW" if section.password_file else None)
        for section in (*databases.values(), on_postgres)
    ]
    environment = {**os.environ, "PW": PASSWORD}
    done = subprocess.run(
        [sys.executable, "-c", READER, json.dumps(asked)], capture_output=True, text=True, check=False,
        timeout=PATIENCE, cwd=REPOSITORY, env=environment,
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n" * 3, "", 0)
