"""What every command has in common: its options say one thing in one spelling, wherever they stand."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import FedfairError
from fedfair.process.interrupts import BEGINS_ITSELF, Interrupts
from fedfair.process.terminal import begun_by_its_commands
from tests import plans

OTHER_SPELLINGS = {"--out", "--html", "--outfile", "--out-file", "--json-file", "--target"}


def commands(
    command: Any,  # noqa: ANN401 - typer has its types for itself
    words: tuple[str, ...] = (),
    parent: Any = None,  # noqa: ANN401 - as above
) -> Iterator[tuple[str, Any, Any]]:
    """Yield every command with its words and its context."""
    context = command.make_context("fedfair", [], parent=parent, resilient_parsing=True)
    if not hasattr(command, "list_commands"):
        yield " ".join(words), command, context
        return
    if words and command.invoke_without_command:
        yield " ".join(words), command, context
    for name in command.list_commands(context):
        _, inner, _ = command.resolve_command(context, [name])
        yield from commands(inner, (*words, name), context)


ALL = [*commands(typer.main.get_command(app))]
OPTIONS = [
    (f"{words} {parameter.opts[0]}", parameter)
    for words, command, context in ALL
    for parameter in command.get_params(context)
    if parameter.param_type_name == "option"
]


def of(name: str) -> list[tuple[str, Any]]:
    return [(place, option) for place, option in OPTIONS if name in option.opts]


@pytest.mark.parametrize(("place", "option"), of("--json"), ids=[place for place, _ in of("--json")])
def test_json_prints_and_takes_no_file(place: str, option: Any) -> None:  # noqa: ANN401 - as above
    assert option.is_flag, f"{place} takes a value"
    assert option.help.startswith("Print"), f"{place}: {option.help}"
    assert option.opts == ["--json"]


@pytest.mark.parametrize(("place", "option"), of("--output"), ids=[place for place, _ in of("--output")])
def test_a_place_that_is_written_to_is_output(place: str, option: Any) -> None:  # noqa: ANN401 - as above
    assert option.opts == ["--output", "-o"], place


def test_every_command_takes_sigterm_and_no_option_is_spelled_like_output() -> None:
    begun = commands(begun_by_its_commands(typer.main.get_command(app), Interrupts()))
    deaf = {
        words
        for words, command, _ in begun
        if command.callback.__name__ != "begin" and not getattr(command.callback, BEGINS_ITSELF, False)
    }
    assert deaf == set()
    assert [place for place, option in OPTIONS if OTHER_SPELLINGS & {*option.opts}] == []


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "federation"
    (folder / "plan").mkdir(parents=True)
    plan = plans.stated(
        ["a", "b"], task={"data": "breast-cancer", "partition": {"scheme": "random"}}, training={"rounds": 2}
    )
    (folder / "plan" / "plan.yaml").write_text(json.dumps(plan))
    monkeypatch.chdir(tmp_path)  # what -C changes is put back
    return tmp_path


def test_a_command_runs_as_if_it_were_started_elsewhere_or_names_the_folder(here: Path) -> None:
    told = CliRunner().invoke(app, ["-C", "federation", "plan", "digest"], catch_exceptions=False)
    os.chdir(here)
    again = CliRunner().invoke(app, ["-C", ".", "-C", "federation", "plan", "digest"], catch_exceptions=False)
    os.chdir(here)
    assert told.output == again.output
    assert told.output.startswith("sha256:")
    named = CliRunner().invoke(app, ["plan", "digest", "-p", "federation/plan/plan.yaml"], catch_exceptions=False)
    assert named.output == told.output
    done = CliRunner().invoke(app, ["-C", "federated", "plan", "digest"])
    assert isinstance(done.exception, FedfairError)
    assert done.exception.message == f"-C federated: No such file or directory, seen from {here}"


ESCAPES = re.compile(r"\x1b\[([0-9;]*)m")
COLOURS = {*range(30, 39), *range(40, 49), *range(90, 98), *range(100, 108)}


def colours(folder: Path, **asked: str) -> set[int]:
    """Return the codes of colours that a command writes to a terminal."""
    controller, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    words = [sys.executable, "-m", "fedfair.cli", "-C", str(folder), "plan", "check"]
    told = environment | {"TERM": "xterm-256color"} | asked
    with subprocess.Popen(words, env=told, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        text = b""
        # Reading fails with an error of the device when the last writer has closed the terminal.
        with contextlib.suppress(OSError):
            while piece := os.read(controller, 4096):
                text += piece
        os.close(controller)
    assert process.returncode == 0
    codes = ESCAPES.findall(text.decode())
    return {int(code) for codes_of_one in codes for code in codes_of_one.split(";") if code} & COLOURS


def test_json_goes_to_standard_output_and_colours_only_where_wanted(here: Path) -> None:
    words = ["simulate", "-p", "federation/plan/plan.yaml", "--json", "--output", "result.json", "--quiet"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert json.loads(done.stdout) == json.loads((here / "result.json").read_text())
    plan_file = here / "federation" / "plan" / "plan.yaml"
    plan_file.write_text(json.dumps(json.loads(plan_file.read_text()) | {"secure_aggregation": {"mode": "off"}}))
    assert colours(here / "federation") != set(), "a warning has a colour, or this test shows nothing"
    assert colours(here / "federation", NO_COLOR="1") == set()
