"""How long `fedfair` takes to start, and how much disk each role takes.

CPU seconds (user and system) are those of the child process, so that other work on the machine counts little. They
are stated for `--help` and its like, for `import fedfair`, and for `plan check` and `plan digest` of a workspace
with its model before round 1. The size of a role is that of what its locked list names and is installed here, with
bytecode as far as it is there.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from machine import report

ROOT = Path(__file__).resolve().parent.parent
ROLES = {"base": "base.txt", "site and simulation": "run.txt"}
COMMANDS = (("--help",), ("--version",), ("plan", "--help"), ("aggregator", "--help"), ("simulate", "--help"))
MAX_MODULES = 8


def fedfair(*words: str) -> tuple[str, ...]:
    """Return the command line of a command."""
    return (sys.executable, "-m", "fedfair.cli", *words)


def seconds(command: tuple[str, ...]) -> tuple[float, float]:
    """Return the CPU and the wall-clock seconds of one start."""
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, os.times()
    children = after.children_user + after.children_system - before.children_user - before.children_system
    return children, wall


def slowest() -> list[str]:
    """Return the lines of `-X importtime` for the modules that take longest by themselves."""
    command = [sys.executable, "-X", "importtime", "-m", "fedfair.cli", "--help"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr.splitlines()
    lines = [line for line in told if line.startswith("import time:") and "|" in line and "self" not in line]
    return sorted(lines, key=lambda line: -int(line.split(":")[1].split("|")[0]))[:MAX_MODULES]


def figures(command: tuple[str, ...], runs: int) -> dict[str, float]:
    """Return what a command takes to start."""
    measured = [seconds(command) for _ in range(runs)]
    cpu = [one for one, _ in measured]
    return {
        "least_cpu_seconds": min(cpu),
        "median_cpu_seconds": statistics.median(cpu),
        "least_wall_seconds": min(wall for _, wall in measured),
    }


def megabytes(names: Iterable[str]) -> float:
    """Return the size of installed distributions, in 10^6 bytes; what is not installed counts nothing."""
    total = 0
    for name in names:
        try:
            files = importlib.metadata.files(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        places = (Path(str(file.locate())) for file in files)
        total += sum(place.stat().st_size for place in places if place.is_file())
    return round(total / 1e6, 1)


def sizes() -> dict[str, float]:
    """Return how much disk each role takes, in 10^6 bytes, without fedfair's own 5."""
    lists = {role: ROOT / "requirements" / name for role, name in ROLES.items()}
    named = re.compile(r"^([a-z0-9._-]+)==", re.MULTILINE)
    return {role: megabytes(named.findall(path.read_text())) for role, path in lists.items()}


def main() -> None:
    """Measure every command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    starts = {" ".join(("fedfair", *words)): figures(fedfair(*words), runs) for words in COMMANDS}
    starts["import fedfair"] = figures((sys.executable, "-c", "import fedfair"), runs)
    starts["python alone"] = figures((sys.executable, "-c", ""), runs)
    with tempfile.TemporaryDirectory() as name:
        plan = ("-p", str(Path(name) / "heart" / "plan" / "plan.yaml"))
        subprocess.run(fedfair("workspace", "create", f"{name}/heart"), check=True, stdout=subprocess.DEVNULL)
        subprocess.run(fedfair("plan", "freeze", *plan), check=True, stdout=subprocess.DEVNULL)
        for word in ("check", "digest"):
            starts[f"fedfair plan {word}"] = figures(fedfair("plan", word, *plan), runs)
    report("start", runs=runs, starts=starts, megabytes=sizes(), slowest_modules_of_help=slowest())


if __name__ == "__main__":
    main()
