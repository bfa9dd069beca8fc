"""The `fedfair` program: loads the commands, and turns every named fault into one clear message.

The exit status is what `fedfair.process.exit_status` says. `--debug`, anywhere on the line, shows the traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from fedfair.process.launch import launch

if TYPE_CHECKING:
    import typer


def main() -> NoReturn:
    """Run the command line of this process."""
    launch(_commands)


def _commands() -> typer.Typer:
    from fedfair.cli.commands import app

    return app


if __name__ == "__main__":
    main()
