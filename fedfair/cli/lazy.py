"""A group of commands that loads a command when it is asked for, and not before.

Its table gives each command's place in the code and the line that the list of commands shows of it, so that a
list needs no command's own module: these need numpy, gRPC and more, which take seconds to load. That the lines are
those of the commands themselves is held by a test.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class Entry:
    """One command of the table.

    Attributes:
        module: where it is.
        attribute: of that module: a group of commands, or the function of one command.
        line: what the list of commands shows.
    """

    module: str
    attribute: str
    line: str

    def load(self) -> typer.Typer | Callable[..., None]:
        """Import the command."""
        found: typer.Typer | Callable[..., None] = getattr(importlib.import_module(self.module), self.attribute)
        return found


def add(app: typer.Typer, name: str, entry: Entry) -> None:
    """Put a group or a command into an app under a name; a group's line is its help."""
    found = entry.load()
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name, help=entry.line)
    else:
        app.command(name)(found)


class LazyGroup(TyperGroup):
    """Lists its table, and loads the one command that a command line names; a subclass states the table."""

    table: ClassVar[Mapping[str, Entry]] = {}

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - as typer's own
        super().__init__(**settings)
        self.commands.update({name: TyperCommand(name, help=entry.line) for name, entry in self.table.items()})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer has these types for itself
        """Return the named command itself instead of its line."""
        name, listed, rest = super().resolve_command(ctx, args)
        if listed is None or name is None or name not in self.table:
            return name, listed, rest
        return name, self.loaded(name), rest

    def loaded(self, name: str) -> Any:  # noqa: ANN401 - as above
        """Return a command of the table."""
        holder = typer.Typer()
        add(holder, name, self.table[name])
        # A callback keeps an app of one command a group.
        holder.callback()(_nothing)
        group = typer.main.get_group(holder)
        return group.commands[name]


def _nothing() -> None:
    """Do nothing."""
