"""Heart disease at four hospitals on this machine: every command of the README beside this file, as it is written.

Usage: python examples/heart/run.py [--data DIR] [--folder DIR]

An authority, one aggregator and four hospitals, each a process and a folder of its own, train one model over
mutual TLS. The files are those that fedfair ships; another DIR holds processed.{cleveland,hungarian,switzerland,
va}.data of the UCI Heart Disease data set.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from by_the_readme import REPOSITORY, run_example

HERE = Path(__file__).resolve().parent
SHIPPED = REPOSITORY / "fedfair" / "cli" / "heart"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def main() -> int:
    """Run the README's commands; return the exit status."""
    parser = argparse.ArgumentParser(description="Four hospitals train one model on this machine.")
    parser.add_argument("--data", type=Path, default=SHIPPED, help="folder of processed.*.data")
    parser.add_argument("--folder", type=Path, default=Path("heart-example"), help="new folder for the hosts")
    asked = parser.parse_args()
    missing = [name for name in HOSPITALS if not (asked.data / f"processed.{name}.data").is_file()]
    if missing:
        print(
            f"{asked.data} holds no processed.{missing[0]}.data\n  -> give the folder of the four files",
            file=sys.stderr,
        )
        return 1
    return run_example(HERE / "README.md", asked.folder, ["report.txt"], {"DATA": str(asked.data.resolve())})


if __name__ == "__main__":
    sys.exit(main())
