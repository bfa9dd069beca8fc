"""Every command in every terminal: another encoding, forty columns, a pipe, a reader that goes away."""

import codecs
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedfair.cli.loopback import Workspace, prepare
from fedfair.process.streams import ERRORS, PLAIN, accept_every_text, plain
from fedfair.process.terminal import Terminal
from fedfair.process.terminal_tables import fitting
from tests.conftest import REPOSITORY
from tests.fork_server import forked
from tests.patience import PATIENCE
from tests.plans import small_plan

TERMINALS = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "no locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "utf-8": {"PYTHONIOENCODING": "utf-8"},
}
SURROGATES = b"\xff.yaml"
"""A name of a file that is no UTF-8."""

A_TERMINAL = """
import os, sys

told = os.open("told", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
for number, stream in ((1, sys.stdout), (2, sys.stderr)):
    os.dup2(told, number)
    stream.reconfigure(encoding=os.environ["PYTHONIOENCODING"], errors=stream.errors)
"""
"""Gives a fork the streams of an interpreter that is started with an encoding; what it says is in a file."""

PLAYED = """
import sys, traceback
import typer.main
from fedfair.cli.commands import app
from fedfair.process.terminal import run_app

def commands(command, path):
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield path
    for name, one in below.items():
        # A list of commands has only their lines.
        found = command.loaded(name) if hasattr(command, "loaded") else one
        yield from commands(found, [*path, name])

def play(*words):
    print("$", *words[:3], flush=True)
    try:
        run_app(app, list(words))
    except SystemExit as ended:
        print("status", ended.code, flush=True)
    except BaseException:
        traceback.print_exc()

found = list(commands(typer.main.get_command(app), []))
for path in found:
    play(*path, "--help")
print("commands", len(found))
name = sys.argv[1]
play("certs", "show")
play("plan", "check")
play("plan", "check", "-c", "clinic-a.yaml")
play("plan", "show")
play("plan", "digest")
play("plan", "approve", "-n", "clinic-a", "-c", "clinic-a.yaml", "--yes")
play("privacy", "show", "-c", "clinic-a.yaml")
play("collaborator", "check", "-n", "clinic-a", "-c", "clinic-a.yaml", "-a", "localhost:1")
play("simulate", "--output", "result.json")
play("report", "result.json", "--page", "page.html")
play("workspace", "create", "new", "-n", "clinic-a")
for words in ("plan check -p", "report", "audit show", "certificate verify", "evaluate -p"):
    play(*words.split(), name)
    play(*words.split(), "\\u03b5\\u2013\\U0001f600.yaml")
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return prepare(tmp_path_factory.mktemp("terminal"), small_plan(rounds=2))


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    return {**kept, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "40", "OMP_NUM_THREADS": "1", **extra}


@pytest.mark.slow
@pytest.mark.parametrize("terminal", TERMINALS)
def test_no_command_shows_a_traceback_for_an_encoding(workspace: Workspace, terminal: str) -> None:
    variables = environment(TERMINALS[terminal])
    if "PYTHONIOENCODING" in variables:
        script = workspace.folder / "terminal.py"
        script.write_text(A_TERMINAL + PLAYED)
        fork = forked([str(script), os.fsdecode(SURROGATES)], workspace.folder, variables)
        assert fork.communicate(PATIENCE)[0] == ""
        status, said = fork.wait(), (workspace.folder / "told").read_bytes()
    else:
        # What a locale is, only a new interpreter reads.
        played = subprocess.run(
            [sys.executable.encode(), b"-c", PLAYED.encode(), SURROGATES], cwd=workspace.folder, env=variables,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False,
        )  # fmt: skip
        status, said = played.returncode, played.stdout
    words = said.decode("utf-8" if terminal == "utf-8" else "latin-1")
    assert "Traceback" not in words, words[words.index("Traceback") - 500 :][:3000]
    assert status == 0, words[-2000:]
    assert words.count("\nstatus ") >= 31 + 20
    if terminal != "utf-8":
        assert words.isascii()
    # The column that matters is whole: the date until which a certificate is good.
    shown = words.partition("$ certs show\n")[2].partition("$ plan check")[0]
    assert shown.count("good until: 20") >= 4
    # Typer cuts the options in its own help; no table of ours is cut.
    assert "…" not in words.partition("\ncommands ")[2]


@pytest.mark.parametrize("words", [["--help"], ["plan", "show"], ["plan", "show", "--no-such-option"]])
def test_a_reader_that_goes_away_leaves_no_traceback(workspace: Workspace, words: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fedfair.cli", *words],
        cwd=workspace.folder,
        env=environment({"PYTHONUNBUFFERED": "1"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    process.stderr.close()
    process.wait(PATIENCE)
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors


def test_a_console_whose_reader_is_gone_goes_on_in_silence() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w", encoding="utf-8") as gone:
        console = Terminal(file=gone)
        for _ in range(3):
            console.print("nobody reads this")
        assert console.quiet
        os.dup2(os.open(os.devnull, os.O_WRONLY), theirs)


def test_every_letter_has_a_plain_one_in_its_place() -> None:
    accept_every_text()
    for letter, words in PLAIN.items():
        assert words.isascii()
        assert letter.encode("ascii", ERRORS).decode() == words
    assert plain("Zürich \N{EN DASH} ε ≤ 1 \N{GRINNING FACE} \udcff") == "Zurich - epsilon <= 1 ? ?"
    with pytest.raises(UnicodeDecodeError):
        codecs.decode(b"\xff", "utf-8", ERRORS)


def drawn(table: Table, width: int) -> str:
    console = Console(width=width)
    with console.capture() as shown:
        console.print(fitting(table, width))
    return shown.get()


def example() -> Table:
    table = Table("", "name", "good until", box=None)
    table.add_column("serial", overflow="fold")
    table.add_row(Text("✓"), "[bold]clinic-a[/]", "2027-11-22", Text("f" * 50))
    table.add_row(Text("✗"), "aggregator", "2027-11-23", Text("e" * 50))
    return table


@pytest.mark.parametrize("width", range(12, 120, 3))
def test_no_cell_of_a_table_is_cut_at_any_width(width: int) -> None:
    shown = "".join(drawn(example(), width).split())
    assert "…" not in shown
    for words in ("clinic-a", "aggregator", "2027-11-22", "2027-11-23"):
        assert words in shown
    assert (shown.count("f"), shown.count("e") - shown.count("e:")) >= (50, 50)


def test_a_narrow_table_is_told_row_by_row() -> None:
    lines = [line.rstrip() for line in drawn(example(), 40).splitlines()[:4]]
    assert lines == ["✓ name: clinic-a", "good until: 2027-11-22", "serial:", "f" * 40]
    assert drawn(example(), 100).splitlines()[0].split() == ["name", "good", "until", "serial"]


def test_a_row_of_many_cells_shares_lines_and_keeps_every_cell() -> None:
    table = Table("column", *"abcdefgh", box=None)
    table.add_row("glucose", *(f"{number}.25" for number in range(100, 108)))
    lines = drawn(table, 40).splitlines()
    assert [line.rstrip() for line in lines] == [
        "column: glucose, a: 100.25, b: 101.25",
        "c: 102.25, d: 103.25, e: 104.25",
        "f: 105.25, g: 106.25, h: 107.25",
        "",
    ]
