"""`python -m aggregator`: the same commands as `fedfair aggregator`, without anything that needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedfair.process.launch import launch

if TYPE_CHECKING:
    import typer


def _commands() -> typer.Typer:
    from aggregator.commands import app

    return app


if __name__ == "__main__":
    launch(_commands)
