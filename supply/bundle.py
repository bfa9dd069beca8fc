"""Packs a folder of wheels into one file for hosts without a network: `make bundle`.

The file is a plain tar of the folder that `supply.wheels` fills, with the SHA-256 of each file and the one command
that installs it. The same wheels give the same file.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
import tempfile
from pathlib import Path

from fedfair.version import __version__
from supply.pins import DISTRIBUTION
from supply.wheels import fill

SUMS = "SHA256SUMS"
INSTALL = "INSTALL.txt"


def pack(chosen: Path, target: Path) -> Path:
    """Return the bundle of a locked list, which is made in the folder `target`.

    Raises:
        CalledProcessError: pip failed; it has said why.
    """
    name = f"{DISTRIBUTION}-{__version__}-{chosen.stem}"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as temporary:
        folder = Path(temporary) / name
        lists = fill(chosen, folder)
        words = " ".join(f"-r {path.name}" for path in lists)
        command = f"pip install --no-index --find-links . --no-deps --require-hashes {words}\n"
        (folder / INSTALL).write_text(f"sha256sum --check {SUMS}\n{command}", encoding="utf-8")
        files = sorted(folder.iterdir())
        sums = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
        (folder / SUMS).write_text("".join(sums), encoding="utf-8")
        bundle = target / f"{name}.tar"
        with tarfile.open(bundle, "w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, f"{name}/{path.name}", filter=_anonymous)
    return bundle


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out of an entry who made it, and when."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry


def main() -> None:
    """Pack the list of the first word into the folder of the second, and say where and what its digest is."""
    bundle = pack(Path(sys.argv[1]), Path(sys.argv[2]))
    with bundle.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    sys.stdout.write(f"{digest}  {bundle}\n")


if __name__ == "__main__":
    main()
