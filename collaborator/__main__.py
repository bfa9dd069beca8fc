"""`python -m collaborator`: the same commands as `fedfair collaborator`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedfair.process.launch import launch

if TYPE_CHECKING:
    import typer


def _commands() -> typer.Typer:
    from collaborator.commands import app

    return app


if __name__ == "__main__":
    launch(_commands)
