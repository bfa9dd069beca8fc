"""Sites whose records are in databases: one run over mutual TLS, and what the commands of a site say."""

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import duckdb
import numpy as np
import pandas as pd
import pytest
import yaml
from safetensors.numpy import load_file

from collaborator.data_history import compare_with_last_run, keep_summary
from collaborator.preparation import PreparedSite, find_site, read_records
from fedfair.cli.loopback import Workspace, prepare
from fedfair.plan.loading import load_plan
from fedfair.tables.source import load_federation
from tests.interop.federation_kit import Federation, play
from tests.interop.processes import Started
from tests.plans import NAMES, small_plan
from tests.postgres_server import PASSWORD, Postgres

TABLE = {
    "label": "died",
    "label_values": ["no", "yes"],
    "numeric": ["age", "dose"],
    "missing": "mean",
    "categorical": {"sex": ["F", "M"]},
}
QUERY = "SELECT age, dose, sex, died FROM {table} ORDER BY id"
ROUNDED = 6 * 3 * (3 * 128 / 2**31) / 192
"""Six masked sums of 3 sites with 192 records and weights of up to 128, in a ring of 32 bits at a clip of 1."""

NOW = datetime(2030, 5, 1, tzinfo=UTC)


def records(seed: int, count: int = 80) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    age = random.integers(20, 95, count).astype(float)
    age[random.random(count) < 0.1] = np.nan
    dose = random.normal(1.0, 0.4, count)
    died = np.where(np.nan_to_num(age, nan=50) / 60 + dose + random.normal(0, 0.5, count) > 2, "yes", "no")
    sex = np.where(random.random(count) < 0.5, "F", "M")
    return pd.DataFrame({"id": np.arange(count), "age": age, "dose": dose, "sex": sex, "died": died})


def federation(folder: Path) -> Workspace:
    """Make a federation whose sites read CSV files."""
    plan = small_plan(rounds=6, protection={"mode": "malicious", "most_records": 128})
    plan["task"] = {
        "data": {"csv": {**TABLE, "train_of": {name: f"{name}.csv" for name in NAMES}}},
        "test_fraction": 0.2,
        "standardize": "secure",
        "model": {"name": "linear", "init": "zeros"},
    }
    workspace = prepare(folder, plan)
    for seed, name in enumerate(NAMES):
        records(seed).drop(columns="id").to_csv(folder / f"{name}.csv", index=False)
        reads(workspace, name, {"train": f"{name}.csv"})
    return workspace


def reads(workspace: Workspace, name: str, data: object) -> None:
    file = workspace.folder / f"{name}.yaml"
    site = yaml.safe_load(file.read_text(encoding="utf-8"))
    file.write_text(yaml.safe_dump({**site, "data": data}), encoding="utf-8")


def on_postgres(postgres: Postgres, table: str, seed: int) -> dict[str, object]:
    """Put records into a table; return what a site's file says of them."""
    rows = ", ".join(
        f"({one.id}, {'NULL' if np.isnan(one.age) else one.age}, {one.dose!r}, '{one.sex}', '{one.died}')"
        for one in records(seed).itertuples()
    )
    postgres.execute(
        f"DROP TABLE IF EXISTS {table}",
        f"CREATE TABLE {table} (id integer, age double precision, dose double precision, sex text, died text)",
        f"INSERT INTO {table} VALUES {rows}",  # noqa: S608 - of this file alone
    )
    query = QUERY.format(table=table)
    return {"sql": {"url": postgres.url, "password_file": str(postgres.password_file), "query": query}}


def on_duckdb(folder: Path, seed: int) -> dict[str, object]:
    with duckdb.connect(str(folder / "own.duckdb")) as made:
        made.register("given", records(seed))
        made.execute("CREATE TABLE patients AS SELECT * FROM given ORDER BY random()")
    (folder / "cohort.sql").write_text(QUERY.format(table="patients"))
    return {"sql": {"url": "duckdb:///own.duckdb", "query_file": "cohort.sql"}}


async def _everybody(running: Federation) -> None:
    await asyncio.gather(*(running.take_part(name) for name in NAMES))


@pytest.mark.slow
def test_postgresql_duckdb_and_parquet_give_the_records_of_csv_files_to_the_bit_and_train_their_model(
    tmp_path: Path, postgres: Postgres
) -> None:
    workspace = federation(tmp_path / "files")
    copied = Workspace(tmp_path / "databases", NAMES)
    shutil.copytree(workspace.folder, copied.folder)
    reads(copied, "clinic-a", on_postgres(postgres, "patients_a", 0))
    reads(copied, "clinic-b", on_duckdb(copied.folder, 1))
    records(2).to_parquet(copied.folder / "own.parquet")
    reads(copied, "clinic-c", {"train": "own.parquet"})
    for name in NAMES:
        assert bits(prepared(copied, name)) == bits(prepared(workspace, name))
    trained = []
    for each in (workspace, copied):
        play(each, _everybody)
        trained.append(load_file(each.folder / "save" / "last.safetensors"))
    assert np.abs(trained[0]["output.weight"]).max() > 0.01
    for name, values in trained[0].items():
        np.testing.assert_allclose(trained[1][name], values, atol=ROUNDED)
    assert_nowhere(copied.folder)


def bits(site: PreparedSite) -> list[tuple[bytes, bytes]]:
    splits = read_records(site).splits
    parts = [part for part in (splits.train, splits.test) if part is not None]
    assert len(parts) == 2
    return [(part.features.tobytes(), part.labels.tobytes()) for part in parts]


def assert_nowhere(folder: Path) -> None:
    """Assert that no file of a federation holds the password, whatever its spelling."""
    spellings = [PASSWORD.encode(), quote(PASSWORD, safe="").encode()]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if any(spelling in path.read_bytes() for spelling in spellings)]


def prepared(workspace: Workspace, name: str) -> PreparedSite:
    return find_site(name, workspace.folder / f"{name}.yaml", workspace.plan, None)


def test_a_database_gives_a_site_what_the_simulation_gives_it(tmp_path: Path) -> None:
    workspace = federation(tmp_path)
    reads(workspace, "clinic-b", on_duckdb(tmp_path, 1))
    simulated = load_federation(load_plan(workspace.plan), tmp_path)
    own = read_records(prepared(workspace, "clinic-b")).splits
    expected = next(splits for name, splits in simulated.items() if name == "clinic-b")
    for part, other in ((own.train, expected.train), (own.test, expected.test)):
        assert part is not None
        assert other is not None
        assert part.features.tobytes() == other.features.tobytes()


def test_a_restart_says_that_the_records_or_their_order_changed(tmp_path: Path) -> None:
    workspace = federation(tmp_path)
    reads(workspace, "clinic-b", on_duckdb(tmp_path, 1))
    site = prepared(workspace, "clinic-b")

    def compared() -> str:
        return compare_with_last_run(site, read_records(site).profile, NOW).words

    keep_summary(site, read_records(site).profile, NOW)
    assert compared() == "nothing changed since the run of 2030-05-01"
    (tmp_path / "cohort.sql").write_text(QUERY.format(table="patients") + " DESC")
    assert compared() == "changed since the run of 2030-05-01: the records or their order changed"
    (tmp_path / "cohort.sql").write_text(QUERY.format(table="patients WHERE id > 2"))
    assert "records 80 -> 77" in compared()


def test_a_password_that_others_may_read_is_warned_of(tmp_path: Path) -> None:
    workspace = federation(tmp_path)
    (tmp_path / "password").write_text(PASSWORD)
    sql = {"url": "postgresql://reader@localhost/x", "password_file": "password", "query": "SELECT 1"}
    reads(workspace, "clinic-a", {"sql": sql})
    (tmp_path / "password").chmod(0o644)
    remedy = f"(mode 0644): chmod 600 {tmp_path}/password"
    assert prepared(workspace, "clinic-a").secret_warnings == (
        f"the secret of the database may be read by others on this machine {remedy}",
    )
    (tmp_path / "password").chmod(0o600)
    assert prepared(workspace, "clinic-a").secret_warnings == ()


@pytest.mark.slow
def test_the_commands_of_a_site_say_what_is_wrong_with_its_database_and_never_the_password(
    tmp_path: Path, postgres: Postgres, started: Started
) -> None:
    started.workspace = workspace = federation(tmp_path)
    on_postgres(postgres, "patients_check", 0)
    stored = postgres.url.replace("owner@", f"owner:{quote(PASSWORD, safe='')}@")
    (tmp_path / "url").write_text(stored)
    reads(workspace, "clinic-a", {"sql": {"url_file": "url", "query": "SELECT nope FROM patients_check"}})
    of_site = ("-n", "clinic-a", "-c", "clinic-a.yaml")
    for words in (("check", *of_site), ("start", *of_site, "--debug")):
        said = started.command("collaborator", *words).stdout
        assert 'column "nope" does not exist' in " ".join(said.split())
        assert PASSWORD not in said
        assert quote(PASSWORD, safe="") not in said
    (tmp_path / "url").unlink()
    assert_nowhere(tmp_path)
