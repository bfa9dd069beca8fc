"""Installs by role: each command with the libraries of its role, and none that its role does not bring."""

import csv
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fedfair.cli.loopback import prepare
from fedfair.extras import EXTRAS, install_command
from supply.pins import ROOT, normal
from tests import plans
from tests.fork_server import ENVIRONMENT, Process, Server, started
from tests.patience import PATIENCE
from tests.process.forked_instants import FORKED

HERE = Path(__file__).parent
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "mlflow": "mlflow-skinny"}
"""Where a library's distribution has another name."""


def environment(folder: str) -> dict[str, str]:
    """Return the variables under which a process lacks what the `sitecustomize.py` of a folder hides."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(HERE / folder), str(ROOT)))}


class Shell:
    """Runs `fedfair` in a folder, under variables of its own; in forks where a server of them is given."""

    def __init__(self, folder: Path, variables: dict[str, str], server: Server | None = None) -> None:
        self.folder, self.variables, self._server = folder, variables, server

    def start(self, *words: str) -> Process:
        """Start Python with these words."""
        if self._server is not None:
            return self._server.fork(words, self.folder, self.variables)
        return started(words, self.folder, self.variables)

    def run(self, *words: str, status: int = 0) -> str:
        """Return what a command says on both streams; it ends with `status`."""
        process = self.start("-m", "fedfair.cli", *words)
        told, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == status, told
        assert "Traceback" not in told
        return told


@pytest.fixture
def plain(tmp_path: Path) -> Shell:
    return Shell(tmp_path, environment("base_only"))


@pytest.fixture(scope="module")
def forks() -> Iterator[Server]:
    server = Server(environment("base_only"))
    yield server
    server.end()


@pytest.fixture
def base(tmp_path: Path, forks: Server) -> Shell:
    return Shell(tmp_path, environment("base_only"), forks)


def stated() -> Iterator[tuple[str, str]]:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, requirements in extras.items():
        for words in requirements:
            yield normal(words.partition(">")[0].partition("=")[0].strip()), extra


def test_the_table_of_extras_is_the_projects() -> None:
    brought = set(stated())
    named = {(normal(DISTRIBUTIONS.get(name, name)), extra) for name, extra in EXTRAS.items()}
    assert named - brought == set()


@pytest.mark.slow
def test_a_lead_without_torch_makes_checks_and_exports_a_plan(base: Shell) -> None:
    base.run("workspace", "create", "heart")
    base.folder /= "heart"
    assert "guarantee" in base.run("plan", "check")
    assert "plan freeze" in base.run("workspace", "export", "first.zip")
    with_torch = Shell(base.folder, ENVIRONMENT)
    frozen = with_torch.run("plan", "freeze").rsplit("plan digest ", 1)[1].strip()
    assert base.run("plan", "digest").strip() == frozen
    base.run("workspace", "export", "second.zip")
    base.run("workspace", "import", "second.zip", "copy")
    assert base.run("plan", "digest", "-p", "copy/plan/plan.yaml").strip() == frozen


EACH = """
import collaborator.commands, fedfair.cli.plan, fedfair.cli.workspace
from fedfair.cli.__main__ import main

endings = []
for words in json.loads(sys.argv[1]):
    ending = play(0, *words)
    if ending is None:
        main()
    if words[0] == "workspace":
        os.chdir("heart")
    endings.append(ending)
try:
    fedfair.simulate
except ImportError as fault:
    endings.append((0, 2, f"{fault}\\n"))
print(json.dumps(endings))
"""


def test_a_command_that_lacks_its_extra_says_in_one_line_which(plain: Shell) -> None:
    lacking = ["simulate", "collaborator check", "plan freeze", "demo", "plan advise"]
    lines = json.dumps([words.split() for words in ("workspace create heart", *lacking)])
    done = subprocess.run(
        [sys.executable, "-c", f"import json{FORKED}{EACH}", lines], check=True, text=True, cwd=plain.folder,
        env=plain.variables, stdout=subprocess.PIPE, timeout=PATIENCE,
    )  # fmt: skip
    created, *endings = json.loads(done.stdout)
    assert created[1] == 0, created
    assert len(endings) == len([*lacking, "from Python"])
    for _, status, told in endings:
        assert (status, told.count("\n")) == (2, 1), told
        assert told.endswith(f"{install_command('train')}\n")


@pytest.mark.slow
def test_an_aggregator_without_torch_runs_a_masked_federation_and_everything_after_it(
    tmp_path: Path, base: Shell
) -> None:
    document = plans.small_plan(
        rounds=3, names=("clinic-a", "clinic-b", "clinic-c"), protection={"mode": "malicious"}
    )
    workspace = prepare(tmp_path / "federation", document)
    base.folder = workspace.folder
    plan = ("-p", str(workspace.plan))
    running = [base.start("-m", "aggregator", "start", *plan, "--quiet")]
    try:
        for name in workspace.collaborators:
            words = ("-m", "collaborator", "start", "-n", name, "-c", f"{name}.yaml", *plan, "--quiet")
            running.append(started(words, workspace.folder, ENVIRONMENT))
        assert [process.wait(PATIENCE) for process in running] == [0, 0, 0, 0]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    assert "FedSRCVaR" in base.run("report", "result.json", "--output", "report.html")
    assert install_command("plots") in (workspace.folder / "report.html").read_text()
    base.run("certificate", "--split", "train")
    assert "is this one" in base.run("certificate", "verify", "certificate.json", *plan)
    base.run("audit", "show", "egress/clinic-a.jsonl")
    base.run("audit", "verify", "egress/clinic-a.jsonl", *plan)
    base.run("plan", "check", *plan)
    base.run("model", "show", "--model", "save/last.safetensors")
    # Without the file of the model before round 1 nothing starts, and the words say what to do.
    (workspace.folder / "plan" / "plan.initial.safetensors").unlink()
    assert "fedfair plan freeze" in base.run("aggregator", "start", *plan, "--fresh", status=2)


IN_TURN = """
import json, os, shutil, sys
import fedfair.store.lock as lock
from fedfair.cli.commands import app
from fedfair.process.terminal import run_app

def hide():
    # A library may have imported it in the meantime.
    for name in sys.modules["sitecustomize"].MODULES:
        sys.modules.pop(name, None)

def ending(*words):
    hide()
    try:
        run_app(app, list(words))
    except SystemExit as ended:
        return ended.code

hide()
try:
    lock._hold(0)
except ModuleNotFoundError:
    endings = ["hidden"]
endings.append(ending("workspace", "create", "study", "--template", "csv"))
os.chdir("study")
shutil.copytree("../made", ".", dirs_exist_ok=True)
endings += [ending(*words) for words in json.loads(sys.argv[1])]
print(json.dumps(endings))
"""


@pytest.mark.slow
def test_simulate_report_and_predict_need_nothing_that_windows_lacks(tmp_path: Path) -> None:
    made = tmp_path / "made"
    for folder in ("data", "plan"):
        (made / folder).mkdir(parents=True)
    rows = [("age", "label"), *((20 + number, number % 2) for number in range(40))]
    with (made / "data" / "all.csv").open("w", newline="") as target:
        csv.writer(target).writerows(rows)
    table = {"train": "data/all.csv", "label": "label", "numeric": ["age"]}
    document = plans.stated(
        task={"data": {"csv": table}, "partition": {"scheme": "random"}}, training={"rounds": 2}
    )
    (made / "plan" / "plan.yaml").write_text(yaml.safe_dump(document))
    commands = [
        ["simulate", "--output", "result.json", "--save", "save", "--quiet"],
        ["report", "result.json", "--output", "report.html"],
        ["predict", "--data", "data/all.csv", "--ignore-unknown", "--output", "predicted.csv"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, json.dumps(commands)], check=False, text=True, cwd=tmp_path,
        env=environment("windows_like"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE,
    )  # fmt: skip
    assert "Traceback" not in done.stdout, done.stdout
    assert json.loads(done.stdout.splitlines()[-1]) == ["hidden", 0, 0, 0, 0], done.stdout
    assert len((tmp_path / "study" / "predicted.csv").read_text().splitlines()) == 41
