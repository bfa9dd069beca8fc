"""How a command ends: the work was done, or one clear message and exit status 1.

Shared by `fedfair`, `python -m aggregator` and `python -m collaborator`. `--debug`, anywhere on the line, shows
the traceback of a fault instead of its message. SIGTERM ends a command as Ctrl-C does, so that what it holds is
let go: child processes, temporary files, the terminal's cursor.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

from fedfair.errors import FedfairError
from fedfair.report.printable import printable

DEBUG_HELP = "--debug, anywhere on the line, shows the traceback of a fault."
"""The last line of every program's help."""

console = Console(highlight=False)
"""Answers go here, to stdout."""

error_console = Console(stderr=True, highlight=False)
"""Everything else goes here, to stderr."""


def run_app(app: typer.Typer, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit: 0 done, 1 refused or failed, 2 wrong usage, 130 stopped by a signal.

    Args:
        app: the commands.
        arguments: the words after the program's name; None takes them from the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app(args=[word for word in words if word != "--debug"])
    except FedfairError as error:
        if debug:
            raise
        _complain(error.diagnostics())
    except OSError as error:
        if debug:
            raise
        place = f" ({error.filename})" if error.filename else ""
        _complain(f"{error.strerror or error}{place}")
    sys.exit(1)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of a handler
    raise KeyboardInterrupt


def host_and_port(text: str, option: str, lowest_port: int) -> tuple[str, int]:
    """Return the two parts of HOST:PORT; an IPv6 address stands in brackets.

    Raises:
        BadParameter: the text is nothing of the kind, or the port is not lowest_port to 65535.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not lowest_port <= int(port) <= 65535:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT", param_hint=option)
    return host.strip("[]"), int(port)


def _complain(text: str) -> None:
    # Messages quote names of files and of others; what is in them must not steer the terminal.
    text = "\n".join(printable(line) for line in text.split("\n"))
    error_console.print(Text.assemble(("error:", "bold red"), " ", text), soft_wrap=True)
