"""`collaborator check` shows the site's own columns: real processes, a real file, a narrow terminal."""

import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from collaborator.data_history import DataComparison, compare_with_last_run, keep_summary, summary_path
from collaborator.preflight import check_site
from collaborator.preparation import PreparedSite, find_site, read_records
from fedfair.cli.loopback import Workspace, prepare
from fedfair.wire.calling import Address
from tests.fork_server import ENVIRONMENT
from tests.interop.processes import Started
from tests.plans import small_plan

TABLE = {
    "label": "died",
    "label_values": ["no", "yes"],
    "numeric": ["age"],
    "missing": "mean",
    "categorical": {"marital": ["married", "single"]},
}
ROWS = [
    "age,marital,died",
    *(f"{40 + row},{'married' if row % 2 else 'single'},no" for row in range(30)),
    "9,single,yes",
]
NOW = datetime(2030, 5, 1, tzinfo=UTC)
CHECK = ("collaborator", "check", "-n", "clinic-a", "-c", "clinic-a.yaml")


def federation(folder: Path) -> Workspace:
    plan = small_plan(rounds=1)
    plan["task"] = {"data": {"csv": TABLE}, "standardize": "secure", "model": {"name": "linear", "init": "zeros"}}
    workspace = prepare(folder, plan)
    for name in workspace.collaborators:
        file = folder / f"{name}.yaml"
        site = yaml.safe_load(file.read_text(encoding="utf-8"))
        file.write_text(yaml.safe_dump({**site, "data": {"train": f"{name}.csv"}}), encoding="utf-8")
        records(folder, name, ROWS)
    return workspace


def records(folder: Path, name: str, rows: list[str]) -> None:
    (folder / f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


@pytest.mark.slow
def test_a_file_with_every_value_in_another_case_is_shown_with_both_spellings(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    started.workspace = federation(tmp_path)
    header, *rows = ROWS
    records(
        tmp_path,
        "clinic-a",
        [header, *(row.replace("married", "Married").replace("single", "SINGLE") for row in rows)],
    )
    monkeypatch.setitem(ENVIRONMENT, "COLUMNS", "40")
    shown = started.command(*CHECK).stdout
    assert "31 training records" in shown
    assert "labels: no 97%, yes 3%\n" in shown
    assert "column marital: other 100%; 'SINGLE' differs only in case from 'single'; 'Married'" in shown
    assert "column age" not in shown
    items = json.loads(started.command(*CHECK, "--json").stdout)["items"]
    profiles = {item["name"]: item["profile"] for item in items if "profile" in item}
    assert list(profiles) == ["data"]
    assert profiles["data"]["splits"] == {"train": 31}
    assert profiles["data"]["labels"] == {"no": 30, "yes": 1}
    assert profiles["data"]["columns"] == [
        {"name": "age", "records": 31, "missing": 0, "other": 0, "case_variants": []},
        {
            "name": "marital",
            "records": 31,
            "missing": 0,
            "other": 31,
            "case_variants": [
                {"found": "SINGLE", "named": "single", "records": 16},
                {"found": "Married", "named": "married", "records": 15},
            ],
        },
    ]


def noted(site: PreparedSite, now: datetime = NOW) -> DataComparison:
    return compare_with_last_run(site, read_records(site).profile, now)


def test_a_check_says_what_changed_since_the_last_start(tmp_path: Path) -> None:
    workspace = federation(tmp_path)
    site = find_site("clinic-a", tmp_path / "clinic-a.yaml", workspace.plan, None)
    assert noted(site).words == ""
    keep_summary(site, read_records(site).profile, NOW)
    assert stat.S_IMODE(summary_path(site).stat().st_mode) == 0o600
    assert noted(site).words == "nothing changed since the run of 2030-05-01"
    records(
        tmp_path, "clinic-a", [ROWS[0], *(f",{row.split(',', 1)[1]}" for row in ROWS[1:4]), *ROWS[4:26], ROWS[-1]]
    )
    assert noted(site).words == (
        "changed since the run of 2030-05-01: records 31 -> 26; column age: missing 0% -> 12%; the file changed"
    )


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b'{"format": "another/1"}', b"[" * 100_000])
def test_a_summary_that_is_spoiled_is_said_to_be_so_and_stops_nothing(tmp_path: Path, content: bytes) -> None:
    workspace = federation(tmp_path)
    site = find_site("clinic-a", tmp_path / "clinic-a.yaml", workspace.plan, None)
    site.state.mkdir()
    summary_path(site).write_bytes(content)
    assert "cannot be compared with" in noted(site).words
    data = next(
        item for item in check_site(site, lambda: Address("localhost", 1), tmp_path / "logs") if item.profile
    )
    assert data.passed
    summary_path(site).unlink()
    summary_path(site).mkdir()
    assert "Is a directory" in noted(site).words


@pytest.mark.slow
def test_a_start_writes_the_summary_that_the_next_check_compares_with(tmp_path: Path, started: Started) -> None:
    started.workspace = federation(tmp_path)
    words = ("-n", "clinic-a", "-c", "clinic-a.yaml", "-a", "localhost:1", "--give-up-after", "0")
    assert started.command("collaborator", "start", *words).returncode == 3
    records(tmp_path, "clinic-a", ROWS[:-2])
    items = json.loads(started.command(*CHECK, "--json").stdout)["items"]
    compared = {item["name"]: item["last_run"] for item in items if "last_run" in item}
    assert list(compared) == ["data"]
    assert compared["data"]["changes"] == [
        "records 31 -> 29",
        "label no 97% -> 100%",
        "label yes 3% -> 0%",
        "the file changed",
    ]
