"""Builds what a release is made of, and checks it; uploads and tags nothing: `make release`.

A wheel holds the programs and what they read, and nothing else. The sdist holds what a wheel is built from. Both
are built twice, and must have the same bytes. docs/develop/releasing.md says what a person does then.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from fedfair.version import __version__
from supply.pins import DISTRIBUTION, ROOT

PACKAGES = ("fedfair", "aggregator", "collaborator")
DEMO = PurePosixPath("examples", "secagg_demo")
DATA_ENDINGS = (".py", ".pyi", ".typed", ".html", ".css", ".js", ".jinja", ".yaml", ".svg", ".data", ".md")
"""What a wheel may hold beside its metadata."""
LICENCES = ("licenses/LICENSE", "licenses/fedfair/cli/heart/README.md")
"""Of the program, and of the data that it shows itself with."""
OF_AN_SDIST = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "fedfair/version.py", "fedfair/py.typed")
SECRET = re.compile(rb"PRIVATE KEY-----\s+[A-Za-z0-9+/=\s]{40}")
EPOCH = "315532800"
"""1980, the first year of a zip file: the time of every file, so that a build can be repeated."""

_BUILD = "import sys, setuptools.build_meta as build; getattr(build, sys.argv[1])(sys.argv[2])"


class ReleaseFault(Exception):  # noqa: N818 - a fault, as the rest of the product calls it
    """What was built must not be released."""


def expected_files(files: Iterable[PurePosixPath]) -> set[str]:
    """Return the names that a wheel has for the files of this tree that belong in it."""
    names = set()
    for path in files:
        if path.parts[0] in PACKAGES:
            names.add(str(path))
        elif path.is_relative_to(DEMO):
            names.add(str(path.relative_to(DEMO.parent)))
    return {name for name in names if name.endswith(DATA_ENDINGS)}


def wheel_faults(contents: Mapping[str, bytes], expected: set[str], version: str) -> list[str]:
    """Return why a wheel must not be released, in sentences; none if it may be.

    Args:
        contents: the bytes of each file by its name in the wheel.
        expected: names that it must have, beside its metadata.
        version: the one that is released.
    """
    metadata = f"{DISTRIBUTION}-{version}.dist-info/"
    own = {name for name in contents if not name.startswith(metadata)}
    faults = [f"{name} is missing" for name in sorted(expected - own)]
    faults += [f"{name} does not belong in it" for name in sorted(own - expected)]
    needed = [f"{metadata}{name}" for name in ("METADATA", "entry_points.txt", *LICENCES)]
    faults += [f"{name} is missing" for name in needed if name not in contents]
    stated = re.search(rb"^Version: (.*)$", contents.get(needed[0], b""), re.MULTILINE)
    if stated is None or stated[1].decode().strip() != version:
        faults.append(f"its metadata do not state version {version}")
    return faults + [f"{name} holds a private key" for name, raw in contents.items() if SECRET.search(raw)]


def sdist_faults(contents: Mapping[str, bytes], version: str) -> list[str]:
    """Return why an sdist must not be released, in sentences; none if it may be."""
    folder = f"{DISTRIBUTION}-{version}/"
    faults = [f"{name} is missing" for name in OF_AN_SDIST if folder + name not in contents]
    faults += [f"{name} lies outside {folder}" for name in contents if not name.startswith(folder)]
    return faults + [f"{name} holds a private key" for name, raw in contents.items() if SECRET.search(raw)]


def changelog_fault(text: str, version: str) -> str:
    """Return why a changelog does not fit a version; empty if it does."""
    if re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE):
        return ""
    return f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD' yet: date it before the tag"


def build(folder: Path) -> tuple[Path, Path]:
    """Build wheel and sdist into a folder, and return where they are.

    Raises:
        CalledProcessError: the build failed; it has said why.
    """
    variables = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "tree"
        # What is committed, and no more: a build folder of this tree would leak into the wheel.
        for path in tracked():
            target = copy / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / path).read_bytes())
        for hook in ("build_wheel", "build_sdist"):
            command = [sys.executable, "-c", _BUILD, hook, str(folder.resolve())]
            subprocess.run(command, check=True, cwd=copy, env=variables, stdout=subprocess.DEVNULL)  # noqa: S603 - our own build
    name = f"{DISTRIBUTION}-{__version__}"
    return folder / f"{name}-py3-none-any.whl", folder / f"{name}.tar.gz"


def tracked() -> list[PurePosixPath]:
    """Return the files that git tracks here and that are there."""
    told = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, cwd=ROOT)  # noqa: S607
    return [PurePosixPath(one) for one in told.stdout.decode().split("\0") if one and (ROOT / one).is_file()]


def wheel_contents(path: Path) -> dict[str, bytes]:
    """Return the files of a wheel by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def sdist_contents(path: Path) -> dict[str, bytes]:
    """Return the files of an sdist by name."""
    with tarfile.open(path) as archive:
        files = ((entry.name, archive.extractfile(entry)) for entry in archive.getmembers())
        return {name: file.read() for name, file in files if file is not None}


def release(folder: Path) -> list[Path]:
    """Build, check and leave in a folder what is released, with its hashes.

    Raises:
        ReleaseFault: something must not be released; every reason is told.
        CalledProcessError: a build failed; it has said why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{DISTRIBUTION}-*"):
        old.unlink()
    built = build(folder)
    wheel, sdist = wheel_contents(built[0]), sdist_contents(built[1])
    faults = [f"{built[0].name}: {one}" for one in wheel_faults(wheel, expected_files(tracked()), __version__)]
    faults += [f"{built[1].name}: {one}" for one in sdist_faults(sdist, __version__)]
    with tempfile.TemporaryDirectory() as name:
        again = build(Path(name))
        if again[0].read_bytes() != built[0].read_bytes() or sdist_contents(again[1]) != sdist:
            faults.append("a second build has other bytes")
    if faults:
        raise ReleaseFault("\n".join(faults))
    sums = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built)
    (folder / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    return [*built, folder / "SHA256SUMS"]


def main() -> None:
    """Build and check into the folder of the first word, and say what is left to do."""
    try:
        made = release(Path(sys.argv[1]))
    except ReleaseFault as fault:
        sys.exit(f"{fault}\nnothing is to be released")
    sys.stdout.write("".join(f"{path}\n" for path in made))
    note = changelog_fault((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)
    sys.stdout.write(f"note: {note}\n" if note else "")
    sys.stdout.write("nothing was tagged or uploaded: docs/develop/releasing.md says how\n")


if __name__ == "__main__":
    main()
