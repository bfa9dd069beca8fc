"""Ends a command: the work was done, or one clear message and the exit status of `exit_status.py`.

Shared by `fedfair`, `python -m aggregator` and `python -m collaborator`. `--debug`, anywhere on the line, shows
the traceback of a fault instead of its message. SIGTERM ends a command as Ctrl-C does, so that what it holds is
let go: child processes, temporary files, the terminal's cursor. No command fails because a text cannot be written
in the terminal's encoding, a table is too wide for it, or nobody reads any more (`| head -1`).
"""

from __future__ import annotations

import atexit
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fedfair.errors import FedfairError, MissingExtraError, StoppedError
from fedfair.extras import missing_extra
from fedfair.process.exit_status import ExitStatus, exit_status
from fedfair.process.interrupts import (
    BEGINS_ITSELF,
    SIGNALS,
    Interrupts,
    ignore_interrupts,
    kept_interrupts,
    taken_by_an_import,
)
from fedfair.process.printable import printable
from fedfair.process.streams import accept_every_text
from fedfair.process.terminal_tables import fitting

DEBUG_HELP = "--debug, anywhere on the line, shows the traceback of an error."
"""The last line of every program's help."""


class Terminal(Console):
    """A console that cuts no table and outlives its reader, and that no text can steer.

    Everything that is printed, also in a table, is a segment at last; there, and only there, it is made printable.
    """

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 - as the console's own
        """Print as a console does; a table that is too wide is printed row by row."""
        super().print(*(fitting(one, self.width) if isinstance(one, Table) else one for one in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield what is to be written; rich's own control codes stay."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text, keep="\n"), segment.style)

    def print_json(self, json: str | None = None) -> None:  # type: ignore[override]
        """Print JSON in ASCII, so that no character of it is replaced."""
        super().print_json(json, ensure_ascii=True)

    def on_broken_pipe(self) -> None:
        """Show nothing more: who no longer reads does not stop a run, or change how a command ends."""
        self.quiet = True
        if self.file.fileno() in (1, 2):
            # What is still buffered is written at the end of the process, and must not fail then.
            with pathlib.Path(os.devnull).open("wb") as nobody:
                os.dup2(nobody.fileno(), self.file.fileno())


console = Terminal(highlight=False)
"""Answers go here, to stdout."""

error_console = Terminal(stderr=True, highlight=False)
"""Everything else goes here, to stderr."""


class Complaints:
    """How this process tells the fault that ends it.

    Attributes:
        taker: takes a fault instead of the terminal; None where the terminal shows it.
    """

    taker: Callable[[FedfairError | OSError], None] | None = None


complaints = Complaints()
"""The one of this process; a log for programs takes faults as it takes everything else."""


def run_app(app: typer.Typer, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit with one of `ExitStatus`.

    Args:
        app: the commands.
        arguments: the words after the program's name; None takes them from the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        _carry_out(app, [word for word in words if word != "--debug"])
    except SystemExit as ended:
        if _was_interrupted(ended):
            sys.exit(ExitStatus.INTERRUPTED)
        raise
    except FedfairError as error:
        if debug:
            raise
        _show(error)
        sys.exit(exit_status(error))
    except UnicodeEncodeError as error:
        if debug:
            raise
        letters = error.object[error.start : error.end]
        _complain(
            f"the locale's encoding, {error.encoding}, has no {letters!r}, which a name of a file needs\n"
            "  -> set LC_ALL=C.UTF-8, or leave PYTHONUTF8 and PYTHONIOENCODING unset"
        )
    except OSError as error:
        if debug:
            raise
        _show(error)
        sys.exit(exit_status(error))
    sys.exit(ExitStatus.FAULT)


def _carry_out(app: typer.Typer, words: Sequence[str]) -> None:
    """Run the commands; from the moment when this returns or raises, signals raise nothing."""
    interrupts = Interrupts()
    try:
        for number in SIGNALS:
            signal.signal(number, interrupts)
        # The interpreter gives handlers back before its own last steps, in which SIGTERM would kill.
        atexit.register(ignore_interrupts)
        accept_every_text()
        with kept_interrupts():
            begun_by_its_commands(typer.main.get_command(app), interrupts)(args=words)
    except KeyboardInterrupt:
        # It came before the command line could take it, or when it no longer did.
        sys.exit(ExitStatus.INTERRUPTED)
    except Exception as fault:
        lacking = missing_extra(fault)
        if lacking:
            raise MissingExtraError(lacking) from fault
        # A service that SIGTERM has stopped says so, and has its own status.
        if isinstance(fault, StoppedError) or taken_by_an_import(fault) is None:
            raise
        sys.exit(ExitStatus.INTERRUPTED)
    finally:
        interrupts.end()


def begun_by_its_commands(command: Any, interrupts: Interrupts) -> Callable[..., Any]:  # noqa: ANN401 - typer hides the class
    """Let SIGTERM, which waits until then, interrupt each command from its first step.

    A group's commands are taken where it resolves them: it may load them no earlier. A group that is a command too
    begins when it is called.
    """
    if hasattr(command, "resolve_command"):
        resolve = command.resolve_command

        def resolve_begun(ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
            name, found, rest = resolve(ctx, args)
            return name, found and begun_by_its_commands(found, interrupts), rest

        command.resolve_command = resolve_begun
    does_work = not hasattr(command, "resolve_command") or command.invoke_without_command
    if does_work and not getattr(command.callback, BEGINS_ITSELF, False):
        work = command.callback

        def begin(**options: Any) -> None:  # noqa: ANN401 - as typer calls it
            interrupts.begin()
            work(**options)

        command.callback = begin
    return command  # type: ignore[no-any-return]


def _was_interrupted(ended: BaseException) -> bool:
    """Return whether Ctrl-C is behind an exit; a question at the terminal reports it as if it were refused."""
    cause = ended.__context__
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause is not None


def host_and_port(text: str, option: str, lowest_port: int) -> tuple[str, int]:
    """Return the two parts of HOST:PORT; an IPv6 address stands in brackets.

    Raises:
        BadParameter: the text is nothing of the kind, or the port is not lowest_port to 65535.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not lowest_port <= int(port) <= 65535:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT", param_hint=option)
    return host.strip("[]"), int(port)


def _show(error: FedfairError | OSError) -> None:
    """Tell the fault that ends this process, to whoever reads."""
    if complaints.taker is not None:
        complaints.taker(error)
    elif isinstance(error, OSError):
        _complain(refused_by_system(error))
    elif isinstance(error, StoppedError):
        tell(error.diagnostics())
    else:
        _complain(error.diagnostics())


def refused_by_system(error: OSError) -> str:
    """Return what the system refused, with the name of the file and what to do."""
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"there is no file {error.filename}\n  -> check the path; it is seen from {pathlib.Path.cwd()}"
    place = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{place}"


def _complain(text: str) -> None:
    error_console.print(Text.assemble(("error:", "bold red"), " ", text), soft_wrap=True)


def say(text: str, style: str = "") -> None:
    """Print an answer as it is, in lines that only the terminal breaks."""
    console.print(Text(text, style=style), soft_wrap=True)


def tell(text: str, style: str = "") -> None:
    """Print what is no answer, likewise."""
    error_console.print(Text(text, style=style), soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning, likewise."""
    tell(f"warning: {text}", "yellow")
