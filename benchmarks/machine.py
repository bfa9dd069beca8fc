"""Where and with what a benchmark ran, and the processor time of a process."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

from fedfair.version import __version__


def processor_seconds(process: int) -> float:
    """Return the time that a process's threads have had on the processors, by /proc (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(name: str, **figures: object) -> None:
    """Print one JSON object: the benchmark's name, its figures, the machine and the versions."""
    packages = ("torch", "grpcio", "numpy")
    document = {
        "benchmark": name,
        **figures,
        "machine": {"system": platform.platform(), "processor": processor(), "cores": os.cpu_count()},
        "versions": {
            "python": platform.python_version(),
            "fedfair": __version__,
            **{package: version(package) for package in packages},
        },
    }
    print(json.dumps(document, indent=2))


def processor() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
