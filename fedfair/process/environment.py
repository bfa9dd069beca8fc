"""Options from the environment: service managers and containers set variables more easily than words of a line.

One rule for every option of a command of this class: `--give-up-after` is FEDFAIR_GIVE_UP_AFTER. The line counts
before the variable, and the variable before the default; an empty variable counts as none. An option that is
hidden is between two programs, so it has no variable: a child would inherit it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from rich.text import Text
from typer.core import TyperCommand

from fedfair.errors import FedfairError
from fedfair.process.terminal import error_console

PREFIX = "FEDFAIR_"
LIKENESS = 0.75
"""From this share of letters in common, a variable is taken for another one that was mistyped."""


class EnvironmentCommand(TyperCommand):
    """A command whose options can be given by variables; its `--help` names each."""

    def __init__(self, *words: Any, **settings: Any) -> None:  # noqa: ANN401 - as typer's own
        super().__init__(*words, **settings)
        for option in self.params:
            if option.param_type_name == "option" and not getattr(option, "hidden", False):
                option.envvar = variable_of(option.opts)

    def make_context(self, *words: Any, **settings: Any) -> Any:  # noqa: ANN401 - typer has these types for itself
        """Read the line and the environment; a bad value is refused by the name that it was given by."""
        try:
            return super().make_context(*words, **settings)
        except typer.BadParameter as fault:
            self._name_source(fault, fault.ctx)
            raise

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        """Carry the command out; a fault about a path from the environment names the variable."""
        for line in mistyped(os.environ, (option.envvar for option in self.params)):
            error_console.print(Text(line, style="yellow"), soft_wrap=True)
        try:
            return super().invoke(ctx)
        except typer.BadParameter as fault:
            self._name_source(fault, ctx)
            raise
        except FedfairError as fault:
            for name in self._variables_in(fault.message, ctx):
                fault.remedy = "; ".join(filter(None, (fault.remedy, f"{name} of the environment names it")))
            raise
        except OSError as fault:
            for name in self._variables_in(str(fault.filename), ctx):
                fault.filename = f"{fault.filename}, from {name}"
            raise

    def _name_source(self, fault: typer.BadParameter, ctx: Any) -> None:  # noqa: ANN401 - as above
        """Let a fault name the variable or the option, whichever the value came from."""
        for option in self.params:
            if option is fault.param or fault.param_hint in option.opts:
                given = ctx is not None and _from_environment(option, ctx)
                fault.param_hint = f"{option.envvar} of the environment" if given else f"'{_long(option.opts)}'"

    def _variables_in(self, text: str, ctx: Any) -> Iterator[str]:  # noqa: ANN401 - as above
        """Yield the variables whose path is in a text."""
        for option in self.params:
            value = ctx.params.get(option.name)
            if isinstance(value, Path) and str(value) in text and _from_environment(option, ctx):
                yield str(option.envvar)


def variable_of(options: Iterable[str]) -> str:
    """Return the variable of an option, from its long name: FEDFAIR_AFTER_RESTORE for --after-restore."""
    return PREFIX + _long(options).removeprefix("--").replace("-", "_").upper()


def mistyped(environment: Mapping[str, str], known: Iterable[object]) -> Iterator[str]:
    """Yield a warning for each variable that is nearly one of the known ones."""
    rest = {str(name).removeprefix(PREFIX) for name in known if name is not None}
    for name in environment:
        word = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and word not in rest:
            for meant in difflib.get_close_matches(word, rest, n=1, cutoff=LIKENESS):
                yield f"{name} of the environment is not known; did you mean {PREFIX}{meant}?"


def _long(options: Iterable[str]) -> str:
    return next(option for option in options if option.startswith("--"))


def _from_environment(option: Any, ctx: Any) -> bool:  # noqa: ANN401 - as above
    source = ctx.get_parameter_source(option.name)
    return source is not None and source.name == "ENVIRONMENT"
