"""`fedfair plan advise`, as a person types it."""

import html
import json
import os
import signal
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.plan import app
from fedfair.errors import DataError, FedfairError, PlanError
from fedfair.studies.advice import search
from tests import plans
from tests.studies.advice.advice_makers import advice

FILES = {"advice.html", "advice.json", "group-sizes.svg", "trade-off.svg"}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a plan on breast cancer, which is the working folder."""
    (tmp_path / "plan").mkdir()
    quick = {"measure": "excess", "reference": {"hidden": [2], "rounds": 1, "local_steps": 5}}
    values = plans.stated(task={"partition": {"scheme": "random"}, "standardize": "secure"}, objective=quick)
    (tmp_path / "plan" / "plan.yaml").write_text(json.dumps(values))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> str:
    outcome = CliRunner().invoke(app, ["advise", *words], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


@pytest.mark.usefixtures("workspace")
def test_advice_is_printed_and_written_with_its_pictures() -> None:
    said = run("--sizes", "0.3", "--tradeoffs", "0.5")
    assert "The page: advice/advice.html" in said
    assert "critical group size is 0" in said
    assert {path.name for path in Path("advice").iterdir()} == FILES
    kept = json.loads(Path("advice/advice.json").read_text())
    assert kept["sizes"] == [0.3]
    assert kept["trials"]["tried"][0]["tradeoff"] == 1.0
    page = html.unescape(Path("advice/advice.html").read_text())
    assert kept["sentences"][1].replace(" %", "\N{NO-BREAK SPACE}%") in page
    assert "<script" not in page
    # The same folder again is replaced.
    run("plan/plan.yaml", "--sizes", "0.4", "--tradeoffs", "0.5", "--output", "advice", "--quiet")
    assert json.loads(Path("advice/advice.json").read_text())["sizes"] == [0.4]


@pytest.mark.usefixtures("workspace")
def test_the_schema_is_printed_and_with_json_alone_no_file_is_written() -> None:
    made = json.loads(run("-p", "plan/plan.yaml", "--sizes", "0.3", "--tradeoffs", "0", "--json"))
    assert made["format"] == "fedfair/advice/1"
    assert not Path("advice").exists()
    assert json.loads(run("schema"))["title"] == "fedfair/advice/1"


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--sizes", "0.3,1.5"], "'1.5' is no number above 0 and below 1"),
        (["--sizes", "0"], "'0' is no number above 0"), (["--sizes", "a third"], "'a third' is no number"),
        (["--tradeoffs", "1"], "'1' is no number from 0 to below 1"),
        (["--tradeoffs", "nan"], "'nan' is no number"), (["--tradeoffs", "0.1,,0.2"], "'' is no number"),
        (["--rounds", "0"], "--rounds"), (["plan/plan.yaml", "-p", "plan/plan.yaml"], "are two plans"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_refused_before_any_work(words: list[str], said: str) -> None:
    outcome = CliRunner().invoke(app, ["advise", *words], env={"COLUMNS": "300"})
    assert outcome.exit_code == 2
    assert said in outcome.output
    assert not Path("advice").exists()


@pytest.mark.usefixtures("workspace")
def test_a_place_that_is_somebody_elses_is_refused_before_any_work() -> None:
    Path("mine").mkdir()
    Path("mine/advice.json").write_text("{}")
    with pytest.raises(DataError, match="is no advice of fedfair's"):
        run("-o", "mine")
    Path("mine/advice.html").write_text("mine")
    with pytest.raises(FedfairError, match="is no page of fedfair's"):
        run("-o", "mine")
    Path("file").write_text("")
    with pytest.raises(DataError, match="--output needs a folder"):
        run("-o", "file")
    with pytest.raises(DataError, match="the folder nowhere does not exist"):
        run("-o", "nowhere/advice")
    with pytest.raises(PlanError, match="solved without rounds"):
        run("--rounds", "3")
    sizes = ",".join(f"0.{number:02}" for number in range(1, 99))
    with pytest.raises(PlanError, match="more than 200 settings"):
        run("--sizes", sizes, "--tradeoffs", "0.1,0.2,0.3")


@pytest.mark.usefixtures("workspace")
def test_an_interrupt_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_given: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(search, "fit_all", interrupted)
    outcome = CliRunner().invoke(app, ["advise"])
    assert outcome.exit_code == 130
    assert not Path("advice").exists()


def test_an_interrupt_waits_for_the_last_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedfair.cli import advise

    assert threading.current_thread() is threading.main_thread()
    written = advise.write_whole

    def interrupting(path: Path, text: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        written(path, text)

    monkeypatch.setattr(advise, "write_whole", interrupting)
    with pytest.raises(KeyboardInterrupt):
        advise.write_advice(advice(), tmp_path / "advice")
    assert {path.name for path in (tmp_path / "advice").iterdir()} == FILES
