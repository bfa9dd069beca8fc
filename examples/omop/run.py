"""Three hospitals with OMOP databases on this machine: the commands of the README beside this file, as written.

Usage: python examples/omop/run.py [--folder DIR]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from by_the_readme import run_example

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run the README's commands; return the exit status."""
    parser = argparse.ArgumentParser(description="Three hospitals with OMOP databases train one model.")
    parser.add_argument("--folder", type=Path, default=Path("omop-example"), help="new folder for the hosts")
    asked = parser.parse_args()
    return run_example(HERE / "README.md", asked.folder, ["report.txt", "groups.txt"])


if __name__ == "__main__":
    sys.exit(main())
