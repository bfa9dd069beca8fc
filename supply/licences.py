"""The licence of every locked distribution, as its own metadata state it: `supply/licences.json` and its page.

`make lock` writes the file: from what is installed here, and for the rest from the package index, which tells the
metadata without the files. The page comes from the file and the lists alone, so it is the same on every machine.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from supply.pins import CUDA, DEVELOPMENT, ROOT, RUN, Pin, normal, read

FILE = ROOT / "supply" / "licences.json"
MAX_NAME = 60
"""A longer text is a whole licence, not the name of one."""

_SPDX: Mapping[str, str] = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause License": "BSD-2-Clause",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "NVIDIA Proprietary Software": "LicenseRef-NVIDIA-Proprietary",
    "Python Software Foundation License": "PSF-2.0",
}
"""Names that mean one licence of the SPDX list, by how metadata write them."""

UNSTATED = "not stated"

PAGE = """# Licences of what fedfair installs

fedfair itself is under Apache-2.0. Each distribution below is named with the licence that its own metadata state,
in the form of [SPDX](https://spdx.org/licenses/) where they use it. A `BSD` or a `not stated` is what they say;
the text in the distribution counts.

`make lock` reads the licences of the locked lists, and `make sbom` writes them into a bill of materials in
CycloneDX form ([install](../how-to/install.md)).

## What both programs need

{run}

## What only a CUDA build of torch needs

{cuda}

## What only tests, pages, checks and extras need

{rest}
"""


@dataclass(frozen=True, slots=True)
class Licence:
    """The licence of one version, as its metadata state it."""

    version: str
    licence: str


def stated(expression: str | None, name: str | None, classifiers: Iterable[str]) -> str:
    """Return the licence that metadata state, by their best source: SPDX expression, classifier or name.

    Args:
        expression: the field License-Expression.
        name: the field License, which may hold a whole text.
        classifiers: all of them.
    """
    if expression:
        return expression
    words = " ".join((name or "").split())
    told = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License :: ")]
    licences = [one for one in told if one not in ("DFSG approved", "Other/Proprietary License", "BSD License")]
    if licences:
        return " AND ".join(sorted({_SPDX.get(one, one) for one in licences}))
    if words and words != "UNKNOWN" and len(words) <= MAX_NAME:
        short = re.sub(r"^(The )?(.*?) [Ll]icen[cs]e$", r"\2", words)
        return _SPDX.get(words, _SPDX.get(short, short))
    return "BSD" if "BSD License" in told else UNSTATED


def installed(pins: Iterable[Pin]) -> dict[str, Licence]:
    """Return the licences of the pins that are installed here in exactly the locked version."""
    found = {}
    for pin in pins:
        try:
            here = importlib.metadata.metadata(pin.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if here["Version"] == pin.version or here["Version"].partition("+")[0] == pin.version:
            expression, name = (
                next(iter(here.get_all(key) or ()), None) for key in ("License-Expression", "License")
            )
            words = stated(expression, name, here.get_all("Classifier") or ())
            found[pin.name] = Licence(pin.version, words)
    return found


def from_index(pins: Iterable[Pin]) -> dict[str, Licence]:
    """Return the licences that the package index tells of the pins, without their files.

    Raises:
        CalledProcessError: pip failed; it has said why.
    """
    asked = [pin.line() for pin in pins]
    if not asked:
        return {}
    with tempfile.TemporaryDirectory() as name:
        wanted, report = Path(name) / "wanted.txt", Path(name) / "report.json"
        wanted.write_text("\n".join((*asked, "")), encoding="utf-8")
        words = ("--quiet", "install", "--dry-run", "--ignore-installed", "--no-deps", "--require-hashes")
        command = [sys.executable, "-m", "pip", *words, "--report", str(report), "--requirement", str(wanted)]
        subprocess.run(command, check=True)  # noqa: S603 - our own lists
        told: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
    fields = [one["metadata"] for one in told]
    return {
        normal(one["name"]): Licence(
            one["version"], stated(one.get("license_expression"), one.get("license"), one.get("classifier", ()))
        )
        for one in fields
    }


def known() -> dict[str, Licence]:
    """Return what the file states, by name."""
    return {name: Licence(**fields) for name, fields in json.loads(FILE.read_text(encoding="utf-8")).items()}


def page() -> str:
    """Return the page of licences, from the lists and the file.

    Raises:
        KeyError: a locked distribution is not in the file; `make lock` puts it there.
    """
    licences, run, cuda = known(), read(RUN), read(CUDA)
    rest = {name: pin for name, pin in read(DEVELOPMENT).items() if name not in run}
    return PAGE.format(run=_table(run, licences), cuda=_table(cuda, licences), rest=_table(rest, licences))


def _table(pins: Mapping[str, Pin], licences: Mapping[str, Licence]) -> str:
    rows = (f"| {name} | {pins[name].version} | {licences[name].licence} |" for name in sorted(pins))
    return "\n".join(("| distribution | version | licence |", "|---|---|---|", *rows))


def main() -> None:
    """Write the file again where it has drifted from the lists."""
    pins = {**read(CUDA), **read(DEVELOPMENT)}
    before = known() if FILE.exists() else {}
    found = {
        name: one
        for name, one in before.items()
        if name in pins and one.version == pins[name].version and one.licence != UNSTATED
    }
    found |= installed(pins.values())
    found |= from_index(pin for name, pin in pins.items() if name not in found)
    missing = sorted(pins.keys() - found.keys())
    for name in missing:
        found[name] = Licence(pins[name].version, UNSTATED)
    text = json.dumps({name: asdict(found[name]) for name in sorted(found)}, indent=1) + "\n"
    FILE.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{FILE.relative_to(ROOT)}: {len(found)} licences\n")


if __name__ == "__main__":
    main()
