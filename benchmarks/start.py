"""How long `fedfair` takes to start: CPU and wall-clock seconds of `--help`, and the modules that take longest.

CPU seconds (user and system) are those of the child process, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from machine import report

COMMANDS = (("--help",), ("--version",), ("plan", "--help"), ("aggregator", "--help"), ("simulate", "--help"))
MAX_MODULES = 8


def seconds(words: tuple[str, ...]) -> tuple[float, float]:
    """Return the CPU and the wall-clock seconds of one start."""
    before, began = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "fedfair.cli", *words], check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, os.times()
    children = after.children_user + after.children_system - before.children_user - before.children_system
    return children, wall


def slowest() -> list[str]:
    """Return the lines of `-X importtime` for the modules that take longest by themselves."""
    command = [sys.executable, "-X", "importtime", "-m", "fedfair.cli", "--help"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr.splitlines()
    lines = [line for line in told if line.startswith("import time:") and "|" in line and "self" not in line]
    return sorted(lines, key=lambda line: -int(line.split(":")[1].split("|")[0]))[:MAX_MODULES]


def figures(words: tuple[str, ...], runs: int) -> dict[str, float]:
    """Return what a command takes to start."""
    measured = [seconds(words) for _ in range(runs)]
    cpu = [one for one, _ in measured]
    return {
        "least_cpu_seconds": min(cpu),
        "median_cpu_seconds": statistics.median(cpu),
        "least_wall_seconds": min(wall for _, wall in measured),
    }


def main() -> None:
    """Measure every command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    starts = {" ".join(("fedfair", *words)): figures(words, runs) for words in COMMANDS}
    report("start", runs=runs, starts=starts, slowest_modules_of_help=slowest())


if __name__ == "__main__":
    main()
