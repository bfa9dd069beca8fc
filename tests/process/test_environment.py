"""Options from the environment: every option has a variable, the line counts first, and a bad value is named."""

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import aggregator.commands
import collaborator.commands
from fedfair.errors import DataError
from fedfair.process.environment import EnvironmentCommand, mistyped, variable_of

COMMANDS = [
    pytest.param(aggregator.commands.app, "start", id="aggregator start"),
    pytest.param(aggregator.commands.app, "evaluate", id="aggregator evaluate"),
    pytest.param(collaborator.commands.app, "start", id="collaborator start"),
    pytest.param(collaborator.commands.app, "check", id="collaborator check"),
]
BETWEEN_PROGRAMS = {"progress_pipe", "service_pipe"}
"""Hidden options, which no operator sets."""

RECORDS = Path("records.csv")

app = typer.Typer(pretty_exceptions_enable=False)


@app.command(cls=EnvironmentCommand)
def show(
    give_up_after: float = typer.Option(7.0, "--give-up-after", "-g", min=0),
    quiet: bool = typer.Option(False, "--quiet"),
    records: Annotated[Path, typer.Option("--records")] = RECORDS,
    pipe: int = typer.Option(0, "--pipe", hidden=True),
    listen: str = typer.Option("", "--listen"),
) -> None:
    """Print what was given, or refuse it as commands do."""
    if records.name == "missing.csv":
        raise DataError(f"{records} does not exist", "create it")
    if records.name == "folder":
        records.read_bytes()
    if listen:
        raise typer.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
    typer.echo(f"{give_up_after:g} {quiet} {records} {pipe}")


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_every_option_has_its_variable_and_the_help_names_it(program: typer.Typer, command: str) -> None:
    every = typer.main.get_group(program).commands[command].params
    options = {option.name: option for option in every if option.param_type_name == "option"}
    named = {name: option.envvar for name, option in options.items() if name not in BETWEEN_PROGRAMS}
    words = {name: max(options[name].opts, key=len)[2:].replace("-", "_") for name in named}
    assert named == {name: f"FEDFAIR_{word.upper()}" for name, word in words.items()}
    assert {options[name].envvar for name in BETWEEN_PROGRAMS & options.keys()} <= {None}
    shown = CliRunner().invoke(program, [command, "--help"], env={"COLUMNS": "200"}).stdout
    assert [variable for variable in named.values() if f"[env var: {variable}]" not in shown] == []


@pytest.mark.parametrize(
    ("line", "environment", "printed"),
    [
        pytest.param([], {}, "7 False records.csv 0", id="the default"),
        pytest.param([], {"FEDFAIR_GIVE_UP_AFTER": "3"}, "3 False records.csv 0", id="the variable before it"),
        pytest.param(["-g", "2"], {"FEDFAIR_GIVE_UP_AFTER": "3"}, "2 False records.csv 0", id="the line first"),
        pytest.param(["-g", "2"], {"FEDFAIR_GIVE_UP_AFTER": "x"}, "2 False records.csv 0", id="unread"),
        pytest.param([], {"FEDFAIR_GIVE_UP_AFTER": ""}, "7 False records.csv 0", id="an empty variable is none"),
        pytest.param([], {"FEDFAIR_QUIET": "1"}, "7 True records.csv 0", id="a flag that is set"),
        pytest.param([], {"FEDFAIR_QUIET": "false"}, "7 False records.csv 0", id="a flag that is not"),
        pytest.param(["--quiet"], {"FEDFAIR_QUIET": "0"}, "7 True records.csv 0", id="a flag of the line first"),
        pytest.param([], {"FEDFAIR_PIPE": "9"}, "7 False records.csv 0", id="a hidden option has no variable"),
    ],
)  # fmt: skip
def test_the_line_counts_before_the_variable_and_that_before_the_default(
    line: list[str], environment: dict[str, str], printed: str
) -> None:
    outcome = CliRunner().invoke(app, line, env=environment)
    assert (outcome.exit_code, outcome.stdout.strip()) == (0, printed)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("FEDFAIR_GIVE_UP_AFTER", "-1"), ("FEDFAIR_GIVE_UP_AFTER", "soon"), ("FEDFAIR_QUIET", "perhaps")],
)
def test_a_value_that_does_not_fit_is_refused_by_the_name_of_its_variable(variable: str, value: str) -> None:
    outcome = CliRunner().invoke(app, [], env={variable: value})
    assert outcome.exit_code == 2
    assert f"Invalid value for {variable} of the environment" in outcome.output


def test_a_value_of_the_line_that_does_not_fit_is_refused_by_the_name_of_its_option() -> None:
    outcome = CliRunner().invoke(app, ["-g", "soon"], env={"FEDFAIR_GIVE_UP_AFTER": "3"})
    assert outcome.exit_code == 2
    assert "Invalid value for '--give-up-after'" in outcome.output
    assert "FEDFAIR" not in outcome.output


def test_a_value_that_the_command_itself_refuses_is_named_too() -> None:
    outcome = CliRunner().invoke(app, [], env={"FEDFAIR_LISTEN": "here"})
    assert outcome.exit_code == 2
    assert "Invalid value for FEDFAIR_LISTEN of the environment: 'here' is not HOST:PORT" in outcome.output


def test_a_fault_about_a_path_of_the_environment_names_the_variable(tmp_path: Path) -> None:
    fault = CliRunner().invoke(app, [], env={"FEDFAIR_RECORDS": "data/missing.csv"}).exception
    assert isinstance(fault, DataError)
    assert fault.remedy == "create it; FEDFAIR_RECORDS of the environment names it"
    missing = CliRunner().invoke(app, [], env={"FEDFAIR_RECORDS": str(tmp_path / "folder")}).exception
    assert isinstance(missing, FileNotFoundError)
    assert missing.filename == f"{tmp_path / 'folder'}, from FEDFAIR_RECORDS"


def test_a_fault_about_a_path_of_the_line_names_no_variable() -> None:
    fault = CliRunner().invoke(app, ["--records", "missing.csv"], env={"FEDFAIR_RECORDS": "missing.csv"}).exception
    assert isinstance(fault, DataError)
    assert fault.remedy == "create it"


def test_a_mistyped_variable_is_told_and_one_of_the_other_program_is_not() -> None:
    known = ["FEDFAIR_LISTEN", "FEDFAIR_PLAN", None]
    environment = {"FEDFAIR_LISTN": "x", "FEDFAIR_GIVE_UP_AFTER": "3", "FEDFAIR_PLAN": "p", "LISTN": "y"}
    assert list(mistyped(environment, known)) == [
        "FEDFAIR_LISTN of the environment is not known; did you mean FEDFAIR_LISTEN?"
    ]


def test_the_rule_of_the_names() -> None:
    assert variable_of(["-a", "--after-restore"]) == "FEDFAIR_AFTER_RESTORE"
