"""The example of three OMOP databases: one query in three databases, and its README's commands as written."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from by_the_readme import run
from fedfair.plan.loading import load_plan
from fedfair.plan.sources import CsvSource
from fedfair.policy.site_config import load_site_config
from fedfair.policy.site_sql import SqlSection
from fedfair.tables.site_form import site_table
from fedfair.tables.sql_table import read_sql
from fedfair.tables.table_reader import CsvRecords
from tests.conftest import REPOSITORY
from tests.fork_server import commands
from tests.postgres_server import Postgres

EXAMPLE = REPOSITORY / "examples" / "omop"
HOSPITALS = ("north", "south", "coast")
ROW = re.compile(r"^\| (FedAvg|FedSRCVaR) \| (.*) \|$", re.MULTILINE)

# Printed to three digits; see tests/test_heart_example.py for what another machine and masks may change.
NEAR = 1e-2


def made(name: str, target: str) -> str:
    """Make the records of a hospital; return what is printed."""
    command = [sys.executable, str(EXAMPLE / "make_records.py"), name, "--to", target]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def read(section: dict[str, str]) -> CsvRecords:
    source = load_plan(EXAMPLE / "plan.yaml").task.data
    assert isinstance(source, CsvSource)
    stated = SqlSection.model_validate({"query_file": str(EXAMPLE / "cohort.sql"), **section})
    return read_sql(stated, site_table(source.csv, None), None, (), {})["query"]


def test_the_query_gives_the_same_records_in_every_database(tmp_path: Path, postgres: Postgres) -> None:
    urls = {}
    for kind in ("sqlite", "duckdb"):
        made("coast", f"{kind}:{tmp_path}/omop.{kind}")
        urls[kind] = {"url": f"{kind}:///{tmp_path}/omop.{kind}"}
    postgres.execute(
        "DROP TABLE IF EXISTS person, condition_occurrence, measurement",
        # As psql sends them: all at once.
        made("coast", "postgresql"),
    )
    urls["postgresql"] = {"url": postgres.url, "password_file": str(postgres.password_file)}
    found = {kind: read(section) for kind, section in urls.items()}
    assert len({one.digest for one in found.values()}) == 1
    assert len({one.dataset.features.tobytes() for one in found.values()}) == 1
    assert len(found["sqlite"].dataset) > 800


def test_the_sites_of_the_example_read_databases_of_their_own() -> None:
    plan = load_plan(EXAMPLE / "plan.yaml")
    assert plan.federation.collaborators == HOSPITALS
    for name in HOSPITALS:
        site = load_site_config(EXAMPLE / name / "collaborator.yaml")
        assert site.collaborator == name
        assert site.data.sql is not None
        assert site.data.sql.query_file == str(EXAMPLE / name / "cohort.sql")
        assert "password" not in yaml.safe_load((EXAMPLE / name / "collaborator.yaml").read_text())["data"]["sql"]


@pytest.mark.slow
def test_three_hospitals_with_databases_get_the_figures_of_the_example(tmp_path: Path) -> None:
    lead = run(EXAMPLE / "README.md", tmp_path, {"FEDFAIR": str(REPOSITORY), **commands(tmp_path)})["lead"]
    deployed, average = (json.loads((lead / f"{name}.json").read_text()) for name in ("result", "fedavg"))
    risks, groups = _rows((EXAMPLE / "README.md").read_text())
    for name, result in (("FedAvg", average), ("FedSRCVaR", deployed)):
        test, (mean, *worst, accuracy) = result["test"], risks[name]
        assert test["mean"] == pytest.approx(mean, abs=NEAR)
        assert [test["by_group_size"][size]["worst"] for size in ("0.1", "0.3", "0.5")] == pytest.approx(
            worst, abs=NEAR
        )
        assert 100 * test["accuracy"] == pytest.approx(accuracy, abs=0.5)
    assert (average["verdict"]["state"], deployed["verdict"]["state"]) == ("fine", "fine")
    printed = dict(ROW.findall((lead / "groups.txt").read_text()))
    for name, cells in printed.items():
        assert [float(cell) for cell in cells.split(" | ")] == pytest.approx(groups[name], abs=NEAR)
    men, women = groups["FedSRCVaR"][1:3]
    assert women - men < 0.7 * (groups["FedAvg"][2] - groups["FedAvg"][1])


def _rows(readme: str) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the two tables of the README: risks, and losses of groups."""
    rows = [
        (name, [float(cell.removesuffix(" %")) for cell in cells.split(" | ")])
        for name, cells in ROW.findall(readme)
    ]
    return dict(rows[:2]), dict(rows[2:])
