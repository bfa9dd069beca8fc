"""The demonstration: its figures, and what it leaves behind when it is interrupted."""

import contextlib
import hashlib
import json
import re
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml
from typer.testing import CliRunner

from fedfair.cli.audit import app as audit
from fedfair.cli.demo import app
from fedfair.cli.demo_plans import HOSPITALS, METHODS, DemoMethod, plan_of
from fedfair.cli.demo_table import held_out_figures
from fedfair.errors import StoppedError
from fedfair.fairness.record_losses import Losses
from fedfair.plan.schema import Plan
from tests.conftest import REPOSITORY
from tests.fork_server import ENVIRONMENT, Process, interpreter, started
from tests.patience import PATIENCE


def demo(folder: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> Process:
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {**ENVIRONMENT, "TMPDIR": str(folder / "tmp"), **(variables or {})}
    return started(["-m", "fedfair.cli", "demo", *arguments], folder, environment)


def children(process: Process) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


ROW = re.compile(r"^\| (everybody|worst \d+ %|accuracy|[A-Z][A-Za-z ]+, \d+)(?:, %)? \| (.*) \|$", re.MULTILINE)
NUMBER = re.compile(r"[+-]?\d+\.\d+")

NEAR = 0.005
"""Simulations are exact; two machines add in different orders, which moves the third digit at most. In the README
an accuracy is in per cent: one patient of 920 may change sides in a draw."""

SAME = 3e-4
"""What masks round, after 100 steps of Adam with a rate of .1; sums alone differ by 1e-8."""


def _readme_rows() -> dict[str, list[float]]:
    """Return the README's figures by the row: plain averaging's, then each method's with both ends."""
    rows = ROW.findall((REPOSITORY / "README.md").read_text())
    return {name: [float(one) for one in NUMBER.findall(cells)] for name, cells in rows}


def _rows(figures: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return the same of a run's own file."""
    rows: dict[str, list[float]] = {}
    for each in figures:
        place = each["figure"] if each["patients"] == 920 else f"{each['figure']}, {each['patients']}"
        scale, apart = 100.0 if each["figure"] == "accuracy" else 1.0, each["difference"]
        told = [each["value"]] + ([apart["low"], apart["high"]] if apart else [])
        rows.setdefault(place, []).extend(scale * one for one in told)
    return rows


@pytest.mark.slow
def test_the_demo_shows_what_the_readme_says_of_held_out_patients_and_keeps_no_key(tmp_path: Path) -> None:
    output, _ = demo(tmp_path, "--json", variables=interpreter(tmp_path)).communicate(timeout=PATIENCE)
    results, folder = json.loads(output), tmp_path / "fedfair-demo"
    assert [one["algorithm"] for one in results] == ["fedavg", "fedsrcvar", "fedsrcvar"]
    told = json.loads((folder / "held-out.json").read_text())
    shown, printed = _rows(told["figures"]), _readme_rows()
    assert {*shown} == {*printed}
    for place, numbers in printed.items():
        room = 100.0 * NEAR if place == "accuracy" else NEAR
        assert shown[place] == pytest.approx(numbers, abs=room), place
    for one in results:
        assert (one["setting"], one["test"]["n"], one["verdict"]["state"]) == ("deployment", 230, "fine")
        assert {name: each["test"]["n"] for name, each in one["collaborators"].items()} == {
            "cleveland": 76, "hungarian": 73, "switzerland": 31, "va": 50,
        }  # fmt: skip
    assert {*told["deployed_apart"]} == {method.name for method in METHODS}
    for apart in told["deployed_apart"].values():
        assert apart["parameters"] == 76
        assert 0.0 < apart["parameter"] < SAME
        assert apart["mean"] < SAME
    _assert_kept(folder)
    assert list((tmp_path / "tmp").iterdir()) == []


def _assert_kept(output: Path) -> None:
    """Assert that the folder has what is worth keeping, a record that holds together, the page, and no key."""
    kept = [path for path in output.rglob("*") if path.is_file()]
    for method in METHODS:
        own = {one.name for one in kept if one.is_relative_to(output / method.name)}
        assert {"result.json", "last.safetensors", "plan.yaml", "aggregator_metrics.jsonl"} <= own
    folder = output / METHODS[-1].name
    for name in HOSPITALS:
        words = [f"{folder}/egress/{name}.jsonl", "--mirror", f"{folder}/received/{name}.jsonl", "--json"]
        checked = CliRunner().invoke(
            audit, ["verify", *words, "-p", f"{folder}/plan/plan.yaml"], catch_exceptions=False
        )
        assert json.loads(checked.stdout)["mirror"]["lost"]["messages"] == 0
    page = (output / "report.html").read_text(encoding="utf-8")
    # The page is about the excess, and begins with it; the table of all methods follows.
    assert page.index("the expected loss is") < page.index('id="held-out"') < page.index('id="groups"')
    assert "not recorded" not in page
    assert [path for path in kept if b"PRIVATE KEY" in path.read_bytes()] == []


def test_an_interrupted_demo_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    process = demo(tmp_path, "--quiet")
    deadline = time.monotonic() + PATIENCE
    while len(started := children(process)) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list((tmp_path / "tmp").iterdir()) != []
    process.send_signal(signal.SIGINT)
    errors, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "interrupted; every process was stopped and nothing was kept" in errors
    assert "Traceback" not in errors
    assert [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE] == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "fedfair-demo").exists()


def test_a_demo_that_is_interrupted_while_it_simulates_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def simulations(folder: Path, method: DemoMethod, tick: Callable[[], None]) -> None:
        # The first Ctrl-C is lost, as where Python destroys an object; the next tick finds it.
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        tick()
        raise AssertionError(f"{method.name} in {folder} went on")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr("fedfair.cli.demo._run", lambda folder, *_, **__: folder)
    monkeypatch.setattr("fedfair.cli.demo_simulations.simulations", simulations)
    outcome = CliRunner().invoke(app, ["--quiet", "--output", str(tmp_path / "kept")])
    assert isinstance(outcome.exception, StoppedError)
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_the_demo_did_not_make_is_never_replaced(tmp_path: Path) -> None:
    own = tmp_path / "fedfair-demo" / "thesis.txt"
    own.parent.mkdir()
    own.write_text("years of work")
    errors, _ = demo(tmp_path).communicate(timeout=PATIENCE)
    assert "was not made by this demonstration" in errors
    assert own.read_text() == "years of work"


PUBLISHED = {
    "cleveland": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
    "hungarian": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
    "switzerland": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
    "va": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
}
"""SHA-256 of each file of UCI data set 45."""


def test_the_files_of_the_hospitals_are_those_that_were_published() -> None:
    shipped = files("fedfair.cli") / "heart"
    found = {
        name: hashlib.sha256((shipped / f"processed.{name}.data").read_bytes()).hexdigest() for name in HOSPITALS
    }
    assert found == PUBLISHED
    notice = (shipped / "README.md").read_text(encoding="utf-8")
    for words in ("CC BY 4.0", "10.24432/C52P4X", "Janosi", "Steinbrunn", "Pfisterer", "Detrano"):
        assert words in notice


def test_the_demo_and_the_example_learn_the_same_of_the_same_files() -> None:
    example = yaml.safe_load((REPOSITORY / "examples" / "heart" / "plan.yaml").read_text())
    own = [Plan.model_validate(plan_of(method)) for method in METHODS]
    other = Plan.model_validate(example)
    assert {each.task.model_dump_json(exclude={"model"}) for each in own} == {
        other.task.model_dump_json(exclude={"model"})
    }
    assert [*other.federation.collaborators] == [*HOSPITALS]
    by_loss = own[1].objective
    assert by_loss == other.objective
    assert {each.training.rounds for each in own} == {other.training.rounds}


def losses(*values: float) -> Losses:
    right = np.array([value < 0.7 for value in values])
    return Losses(np.array(values), np.ones(len(values), np.int64), right.astype(np.int64))


def test_figures_are_means_over_draws_and_their_intervals_are_paired() -> None:
    # The second method adds .1 to every loss of the first draw, and .3 to half of the second draw's.
    one = [{"A": losses(0.1, 0.3), "B": losses(0.5, 0.9)}, {"A": losses(0.3, 0.1), "B": losses(0.9, 0.5)}]
    two = [{"A": losses(0.2, 0.4), "B": losses(0.6, 1.0)}, {"A": losses(0.6, 0.1), "B": losses(1.2, 0.5)}]
    found = {(each.figure, each.method): each for each in held_out_figures({"one": one, "two": two}, (0.5,))}
    assert [*dict.fromkeys(figure for figure, _ in found)] == ["everybody", "worst 50 %", "accuracy", "A", "B"]
    plain, other = found["everybody", "one"], found["everybody", "two"]
    assert (plain.patients, plain.value, plain.difference) == (4, pytest.approx(0.45), None)
    assert other.value == pytest.approx(0.45 + (0.1 + 0.15) / 2)
    apart = other.difference
    assert apart is not None
    # The first draw's interval has no width; the second's is 1.96 deviations of (.3, 0, .3, 0) over the root of 4.
    reach = 1.959964 * 0.3 / np.sqrt(3) / 2 / 2
    assert (apart.value, apart.low, apart.high) == pytest.approx((0.125, 0.125 - reach, 0.125 + reach))
    assert found["worst 50 %", "two"].value == pytest.approx(((0.6 + 1.0) / 2 + (0.6 + 1.2) / 2) / 2)
    assert (found["B", "one"].patients, found["B", "two"].value) == (2, pytest.approx((0.8 + 0.85) / 2))
    assert (found["accuracy", "one"].value, found["accuracy", "two"].value) == (0.75, 0.75)
