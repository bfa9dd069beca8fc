"""Fills a folder from which fedfair is installed without a network: `make wheels`.

The folder holds every file of a locked list, the lists themselves, and fedfair's own wheel with its hash in
`fedfair.txt`. So one host with a network serves those without, and pip checks each file there once more.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from supply.pins import BASE, CPU, CUDA, DISTRIBUTION, ROOT, Pin, read, text_of

PIP = (sys.executable, "-m", "pip", "--quiet")
DOWNLOAD = ("download", "--no-deps", "--require-hashes", "--only-binary", ":all:")


def fill(chosen: Path, folder: Path) -> list[Path]:
    """Download the files of a list, build fedfair's own wheel, and return the lists to install.

    Args:
        chosen: one of the locked lists.
        folder: made if there is none.

    Raises:
        CalledProcessError: pip failed; it has said why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cpu = "torch" not in read(chosen) or _is_there(CPU, folder)
    lists = [chosen] if cpu else [chosen, CUDA]
    with tempfile.TemporaryDirectory() as name:
        rest = Path(name) / "rest.txt"
        rest.write_text(text_of((), wanted(chosen, cpu=cpu).values()), encoding="utf-8")
        _pip(*DOWNLOAD, "--dest", str(folder), "--requirement", str(rest))
    for old in folder.glob(f"{DISTRIBUTION}-*.whl"):
        old.unlink()
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    if "torch" in read(chosen):
        shutil.copy(BASE, folder)  # a part of the list, for an aggregator's host
    copied = [Path(shutil.copy(path, folder)) for path in lists]
    return [*copied, _own_list(folder)]


def wanted(chosen: Path, *, cpu: bool) -> dict[str, Pin]:
    """Return what is still to be downloaded for a list.

    Args:
        chosen: the list.
        cpu: whether the CPU build of torch is there. pip would fetch the one of the package index beside it, whose
            hash it knows before the download; without it, CUDA's libraries are needed.
    """
    pins = read(chosen)
    return {name: pin for name, pin in pins.items() if name not in read(CPU)} if cpu else pins | read(CUDA)


def _own_list(folder: Path) -> Path:
    """Write the list of one: fedfair's own wheel, with its hash."""
    (wheel,) = folder.glob(f"{DISTRIBUTION}-*.whl")
    version, digest = wheel.name.split("-")[1], hashlib.sha256(wheel.read_bytes()).hexdigest()
    path = folder / "fedfair.txt"
    path.write_text(f"{DISTRIBUTION}=={version} --hash=sha256:{digest}\n", encoding="utf-8")
    return path


def _is_there(builds: Path, folder: Path) -> bool:
    """Download builds that pip may not find here, and return whether it has found them."""
    command = [*PIP, *DOWNLOAD, "--dest", str(folder), "--requirement", str(builds)]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0  # noqa: S603 - our own list


def _pip(*words: str) -> None:
    subprocess.run([*PIP, *words], check=True)  # noqa: S603 - our own lists


def main() -> None:
    """Fill the folder of the second word with the list of the first, and say how to install from it."""
    chosen, folder = Path(sys.argv[1]), Path(sys.argv[2])
    lists = fill(chosen, folder)
    named = " ".join(f"-r {path}" for path in lists)
    sys.stdout.write(f"pip install --no-index --find-links {folder} --no-deps --require-hashes {named}\n")


if __name__ == "__main__":
    main()
