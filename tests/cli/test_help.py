"""What `--help` has to say, whichever way a program is started."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

import aggregator.commands
import collaborator.commands
import fedfair.cli.commands


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
