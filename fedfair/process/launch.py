"""Launches a program: loads its commands, then runs them.

Loading takes a second or two, in which Ctrl-C is as good as ever: it ends the program without a traceback. So this
module imports nothing that takes time, and its caller imports nothing but this.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from fedfair.process.interrupts import EXIT_BY_SIGNAL, kept_interrupts, taken_by_an_import

if TYPE_CHECKING:
    import typer


def launch(load: Callable[[], typer.Typer]) -> NoReturn:
    """Run the command line of this process, as `fedfair.process.terminal.run_app` does.

    Args:
        load: imports the commands and returns them.
    """
    try:
        with kept_interrupts():
            app = load()
            from fedfair.process.terminal import run_app
        run_app(app)
    except KeyboardInterrupt:
        sys.exit(EXIT_BY_SIGNAL)
    except ImportError as fault:
        if taken_by_an_import(fault) is None:
            raise
        sys.exit(EXIT_BY_SIGNAL)
