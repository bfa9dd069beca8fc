"""The commands of the README and of the tutorial, run as they are written, on as many "hosts" as they name."""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from by_the_readme import commands_of, run
from fedfair.cli.commands import app
from fedfair.plan.loading import load_plan
from tests.conftest import REPOSITORY
from tests.fork_server import commands

README = REPOSITORY / "README.md"
TUTORIAL = REPOSITORY / "docs" / "start" / "deployment.md"
CHANGED_PLAN = REPOSITORY / "docs" / "how-to" / "change-a-plan.md"
OWN_DATA = REPOSITORY / "docs" / "how-to" / "own-data.md"
PAGES = [
    README, REPOSITORY / "SECURITY.md",
    *(page for page in sorted((REPOSITORY / "docs").rglob("*.md")) if "results" not in page.parts),
]  # fmt: skip
EVIDENCE = re.compile(r"`((?:tests|benchmarks|examples|fedfair|aggregator|collaborator)/[\w/.*-]+)`")
FORMAT = re.compile(r"fedfair/[a-z-]+/\d+")


@pytest.mark.slow
def test_the_study_of_the_readme_works_as_written(tmp_path: Path) -> None:
    study = run(README, tmp_path, commands(tmp_path), hosts={"laptop"})["laptop"]
    result = json.loads((study / "result.json").read_text())
    assert result["train"]["by_group_size"]["0.3"]["worst"] < result["uniform_floor"]
    assert (study / "report.html").is_file()
    assert (study / "save" / "evaluation.json").is_file()


SITES = ("clinic-a", "clinic-b", "clinic-c")
MOST_OF_A_SITE, MOST_OF_THE_LEAD = 3, 6
FEWER = 30
"""Rounds of a plan that would have 100: after these, too, the worst served do better than by a guess."""


def test_a_first_deployment_with_three_sites_takes_few_commands() -> None:
    counts = Counter(host for host, command in commands_of(README) for _ in re.findall(r"\bfedfair ", command))
    assert {host for host in counts if host != "laptop"} == {"lead", *SITES}
    assert all(counts[site] <= MOST_OF_A_SITE for site in SITES), counts
    assert counts["lead"] <= MOST_OF_THE_LEAD, counts


@pytest.mark.slow
def test_the_deployment_of_the_readme_works_as_written(tmp_path: Path) -> None:
    folders = run(README, tmp_path, commands(tmp_path), hosts={"lead", *SITES}, rounds=FEWER)
    result = json.loads((folders["lead"] / "result.json").read_text())
    assert result["train"]["by_group_size"]["0.3"]["worst"] < result["uniform_floor"]
    assert (folders["lead"] / "report.html").is_file()
    for site in SITES:
        assert (folders[site] / "heart" / "egress" / f"{site}.jsonl").is_file()
        assert {path.name for path in folders[site].rglob("*.key")} == {"signing.key", "tls.key"}


@pytest.mark.slow
def test_the_page_on_changed_plans_works_as_written(tmp_path: Path) -> None:
    folders = run(CHANGED_PLAN, tmp_path, commands(tmp_path))
    for site in ("clinic-a", "clinic-b"):
        folder = tmp_path / site / "heart"
        assert load_plan(folder / "plan" / "plan.yaml").training.rounds == 60
        assert (folder / "approvals" / f"{site}.json").is_file()
        assert len(list((folder / "approvals" / "void").iterdir())) == 1
    approved = {json.loads(path.read_text())["plan_digest"] for path in tmp_path.glob("*/heart/approvals/*.json")}
    assert len(approved) == 1
    assert folders["lead"] == tmp_path / "lead" / "heart"


@pytest.mark.slow
def test_the_deployment_of_the_tutorial_works_as_written(tmp_path: Path) -> None:
    lead = run(TUTORIAL, tmp_path, commands(tmp_path), rounds=FEWER)["lead"]
    result = json.loads((lead / "result.json").read_text())
    assert result["format"] == "fedfair/result/1"
    assert result["train"]["by_group_size"]["0.3"]["worst"] < result["uniform_floor"]
    # The clinic's record fits the mirror, or the command would have failed; and the lead has nobody's own record.
    assert (lead.parent.parent / "clinic-a" / "heart" / "egress" / "clinic-a.jsonl").is_file()
    assert not (lead / "egress").exists()
    certificate = json.loads((lead / "certificate.json").read_text())
    assert (certificate["split"], certificate["n"]) == ("test", result["test"]["n"])
    stated = {statement["group_size"]: statement["sample"] for statement in certificate["statements"]}
    told = {size: risk for size, risk in result["test"]["by_group_size"].items() if risk["worst"] is not None}
    assert {*map(float, told)} | {1.0} == {*stated}
    for size, risk in told.items():
        low, high = stated[float(size)]
        assert low <= risk["bound"][1]
        assert risk["bound"][0] <= high  # Both intervals hold the truth, so they meet.


def test_the_whole_plan_of_the_page_on_data_is_a_plan(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", OWN_DATA.read_text(), re.DOTALL)
    (tmp_path / "plan.yaml").write_text(next(block for block in blocks if "a whole one" in block))
    assert load_plan(tmp_path / "plan.yaml").training.rounds == 300


def test_every_command_of_the_pages_exists() -> None:
    # Only what stands in code, as a command or in backticks.
    text = "\n".join(page.read_text() for page in PAGES)
    code = "\n".join(re.findall(r"^```(?:console|sh)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    command = r"fedfair ([a-z]+(?: [a-z]+)?)(?=[ `\n])"
    groups = {*re.findall(rf"`{command}", text), *re.findall(rf"(?:\$ |^){command}", code, re.MULTILINE)}
    assert len(groups) > 20
    for group in sorted(groups):
        outcome = CliRunner().invoke(app, [*group.split(), "--help"])
        assert outcome.exit_code == 0, f"fedfair {group}: {outcome.output}"


def test_every_target_of_make_that_a_page_names_is_one() -> None:
    rules = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"(?:\$ |`)make ([a-z]+)", page.read_text())) <= rules, page


def test_the_whole_check_calls_only_what_the_readme_names() -> None:
    called = re.findall(r"^make ([a-z]+)$", (REPOSITORY / ".ci" / "run").read_text(), re.MULTILINE)
    assert called
    assert set(called) <= set(re.findall(r"(?:\$ |`)make ([a-z]+)", README.read_text()))


def test_every_file_that_a_page_names_as_evidence_is_there() -> None:
    for page in PAGES:
        named = [name for name in EVIDENCE.findall(page.read_text()) if not FORMAT.fullmatch(name)]
        # A recipe writes NAME for the folder of any room that there is.
        patterns = {name: name.rstrip("/").replace("NAME", "*") for name in named}
        assert [name for name, pattern in patterns.items() if not any(REPOSITORY.glob(pattern))] == [], page


EDITED = re.compile(r"^[a-z-]+\$ sed -i '(s/[^']+/)' plan/plan\.yaml$", re.MULTILINE)


def test_every_edit_of_a_plan_on_a_page_changes_one_line_of_the_template_and_leaves_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["workspace", "create", "heart"]).exit_code == 0
    plan = tmp_path / "heart" / "plan" / "plan.yaml"
    before = plan.read_text()
    edits = {edit for page in PAGES for edit in EDITED.findall(page.read_text())}
    assert len(edits) >= 3
    for edit in sorted(edits):
        plan.write_text(
            subprocess.run(["sed", edit], input=before, text=True, capture_output=True, check=True).stdout
        )
        changed = [
            new for old, new in zip(before.splitlines(), plan.read_text().splitlines(), strict=True) if old != new
        ]
        assert len(changed) == 1, (edit, changed)
        load_plan(plan)


def test_the_readme_stays_short() -> None:
    assert len(README.read_text().splitlines()) <= 130
