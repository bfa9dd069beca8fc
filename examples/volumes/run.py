"""Volumes at three hospitals on this machine: every command of the README beside this file, as it is written.

Usage: python examples/volumes/run.py [--folder DIR]
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from by_the_readme import run_example

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run the README's commands; return the exit status."""
    parser = argparse.ArgumentParser(description="Three hospitals train one head over a frozen encoder.")
    parser.add_argument("--folder", type=Path, default=Path("volumes-example"), help="new folder for the hosts")
    asked = parser.parse_args()
    if find_spec("nibabel") is None:
        print("nibabel is not installed\n  -> pip install nibabel", file=sys.stderr)
        return 1
    return run_example(HERE / "README.md", asked.folder, ["report.txt"])


if __name__ == "__main__":
    sys.exit(main())
