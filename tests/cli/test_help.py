"""What `--help` has to say, whichever way a program is started."""

from functools import cache
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

import aggregator.commands
import collaborator.commands
import fedfair.cli.commands
from fedfair.cli.lazy import add

made_once = cache(typer.main.get_command)


@pytest.fixture(autouse=True)
def commands_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.testing._get_command", made_once)


@pytest.mark.parametrize(
    "app",
    [
        pytest.param(fedfair.cli.commands.app, id="fedfair"),
        pytest.param(aggregator.commands.app, id="aggregator"),
        pytest.param(collaborator.commands.app, id="collaborator"),
    ],
)
def test_the_help_of_every_program_tells_of_debug(app: typer.Typer) -> None:
    outcome = CliRunner().invoke(app, ["--help"])
    assert outcome.exit_code == 0
    assert "--debug" in outcome.stdout


@cache
def eager() -> typer.Typer:
    """Return the commands of `fedfair` with every one of them loaded."""
    own = fedfair.cli.commands.app.info
    app = typer.Typer(
        name=own.name, help=own.help, epilog=own.epilog, no_args_is_help=True,
        context_settings=own.context_settings,
    )  # fmt: skip
    for name, entry in fedfair.cli.commands.Commands.table.items():
        add(app, name, entry)
    app.callback()(fedfair.cli.commands.root)
    return app


def test_the_list_of_commands_says_what_the_commands_say_of_themselves() -> None:
    listed = CliRunner().invoke(fedfair.cli.commands.app, ["--help"]).stdout
    assert listed == CliRunner().invoke(eager(), ["--help"]).stdout


@pytest.mark.parametrize("program", [aggregator.commands, collaborator.commands])
def test_a_program_of_its_own_says_of_itself_what_the_list_says(program: ModuleType) -> None:
    lines = {entry.module: entry.line for entry in fedfair.cli.commands.Commands.table.values()}
    assert program.app.info.help == lines[program.__name__]


@pytest.mark.parametrize("name", fedfair.cli.commands.Commands.table)
def test_a_command_that_is_loaded_late_explains_itself_in_the_same_words(name: str) -> None:
    late = CliRunner().invoke(fedfair.cli.commands.app, [name, "--help"]).stdout
    assert late == CliRunner().invoke(eager(), [name, "--help"]).stdout


def test_a_command_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    outcome = CliRunner().invoke(fedfair.cli.commands.app, ["simulat"])
    assert outcome.exit_code == 2
    assert "simulate" in outcome.output
