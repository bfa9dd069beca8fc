"""The `fedfair` program: loads the commands, and turns every named fault into one clear message.

Exit status: 0 done, 1 refused or failed, 2 wrong usage, 130 stopped by a signal. `--debug`, anywhere on the line,
shows the traceback.
"""

from __future__ import annotations

import sys
from typing import NoReturn

EXIT_BY_SIGNAL = 130


def main() -> NoReturn:
    """Run the command line of this process."""
    try:
        # Loading takes a second, in which Ctrl-C is as good as ever.
        from fedfair.cli.commands import app
        from fedfair.report.terminal import run_app
    except KeyboardInterrupt:
        sys.exit(EXIT_BY_SIGNAL)
    run_app(app)


if __name__ == "__main__":
    main()
