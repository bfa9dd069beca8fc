"""Writes the locked lists again: `make lock`, after a dependency or a version has changed.

Versions that the lists state already stay as they are, so a version moves only when somebody edits its line. New
names get the newest version that fits. The CPU build of torch is not in the package index, so somebody writes
`requirements/cpu.txt` by hand; its hash is one of those that the other lists allow.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedfair.extras import list_of
from supply.pins import BASE, CPU, CUDA, DEVELOPMENT, ROOT, RUN, Pin, parse, read, text_of

PYTHON = "3.11.7"
"""The lowest Python whose files the lists must serve."""

BROWSER = "sys_platform == 'emscripten'"
"""What is installed in a browser alone, where torch and gRPC are not, is in no list."""

_HOW = "`make lock` writes it; versions stay until their line is edited. Needs `pip install --require-hashes -r`."
EXTRAS: Mapping[Path, tuple[str, ...]] = {BASE: ("status",), RUN: ("plots", "status", "train")}
"""The extras of `pyproject.toml` in each list of a host that runs fedfair."""

SINGLE_EXTRAS: Mapping[Path, str] = {
    ROOT / list_of(extra): extra
    for extra in (
        "mlflow",
        "notebook",
        "onnx",
        "page",
        "parquet",
        "plots",
        "ray",
        "sql",
        "status",
        "tensorboard",
        "text",
        "train",
    )
}
"""A list for each extra that a user may add: what it needs beside the base."""


HEADINGS = {
    DEVELOPMENT: (
        "The exact versions this release is tested with, and the hashes of their files. Every install goes",
        "through this file or through its parts in requirements/.",
        _HOW,
    ),
    BASE: ("What the aggregator's host needs, and no more: no torch. A part of run.txt.", _HOW),
    RUN: ("What a site and a simulation need, and no more: a part of constraints.txt.", _HOW),
    **{
        path: (f"What the extra {extra} needs beside base.txt: a part of constraints.txt.", _HOW)
        for path, extra in SINGLE_EXTRAS.items()
    },
    CUDA: (
        "Libraries that torch of the package index needs on Linux, beside run.txt or constraints.txt.",
        "Its CPU build (cpu.txt) and every other system go without them.",
        _HOW,
    ),
}


def is_cuda(name: str) -> bool:
    """Return whether a distribution serves only a CUDA build of torch."""
    return name.startswith(("nvidia-", "cuda-")) or name == "triton"


def lists(
    every: Mapping[str, Pin], parts: Mapping[Path, Iterable[str]], cpu: Mapping[str, Pin]
) -> dict[Path, str]:
    """Return the text of each list.

    Args:
        every: what a development environment resolves to, CUDA's libraries among it.
        parts: names of what each list of a host resolves to.
        cpu: builds for the CPU, whose files are allowed too.

    Raises:
        ValueError: a build for the CPU is of another version than the one that is locked.
    """
    whole = {name: _with_build(pin, cpu.get(name)) for name, pin in every.items()}
    chosen = {
        DEVELOPMENT: [pin for name, pin in whole.items() if not is_cuda(name)],
        **{
            path: [pin for name, pin in whole.items() if name in frozenset(needed) and not is_cuda(name)]
            for path, needed in parts.items()
        },
        CUDA: [pin for name, pin in whole.items() if is_cuda(name)],
    }
    return {path: text_of(HEADINGS[path], pins) for path, pins in chosen.items()}


def _with_build(pin: Pin, build: Pin | None) -> Pin:
    if build is None:
        return pin
    if build.version.partition("+")[0] != pin.version:
        raise ValueError(f"cpu.txt has {pin.name} {build.version}, and {pin.version} is locked; edit its line")
    return Pin(pin.name, pin.version, pin.marker, tuple(sorted({*pin.hashes, *build.hashes})))


def resolve(extras: Iterable[str], known: Iterable[Pin], builds: Iterable[str] = ()) -> dict[str, Pin]:
    """Return what fedfair with some of its extras resolves to, on every system but a browser.

    Args:
        extras: of `pyproject.toml`.
        known: versions that must be kept.
        builds: requirements besides fedfair's own, such as those of its build.

    Raises:
        RuntimeError: the versions do not fit together, or the package index cannot be reached.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "known.txt").write_text("".join(f"{pin.name}=={pin.version}\n" for pin in known))
        (folder / "builds.in").write_text("".join(f"{words}\n" for words in builds))
        command = [
            sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", PYTHON,
            "--generate-hashes", "--no-header", "--no-annotate", "--constraints", str(folder / "known.txt"),
            *(word for extra in extras for word in ("--extra", extra)),
            str(ROOT / "pyproject.toml"), str(folder / "builds.in"),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own lists
    if done.returncode != 0:
        raise RuntimeError(f"the versions do not fit together:\n{done.stderr}")
    return {name: pin for name, pin in parse(done.stdout).items() if BROWSER not in pin.marker}


def main() -> None:
    """Write each list that has changed, and say which."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    known = {**read(CUDA), **read(DEVELOPMENT)}
    extras = sorted(project["project"]["optional-dependencies"])
    every = resolve(extras, known.values(), project["build-system"]["requires"])
    parts = {path: set(resolve(chosen, every.values())) for path, chosen in EXTRAS.items()}
    alone = set(resolve((), every.values()))
    parts |= {path: set(resolve((extra,), every.values())) - alone for path, extra in SINGLE_EXTRAS.items()}
    for path, text in lists(every, parts, read(CPU)).items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)} written again\n")


if __name__ == "__main__":
    main()
