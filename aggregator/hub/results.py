"""The result of a study as one file: what `aggregator start` leaves, packed so that one digest names it."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from aggregator.hub.folder import HubFolder

CONTENTS = ("result.json", "save/evaluation.json", "save/last.safetensors", "save/best.safetensors")
"""The files of a run that are its result, by their path in the study's folder; those that there are."""

_EPOCH = (1980, 1, 1, 0, 0, 0)


def pack_result(folder: HubFolder, name: str) -> tuple[bytes, int]:
    """Pack the result of a study and return SHA-256 and length of the file.

    Args:
        folder: of the hub.
        name: of the study.

    Raises:
        OSError: it cannot be written.
    """
    folder.results.mkdir(parents=True, exist_ok=True)
    part = folder.results / f".{name}.part"
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
        for each in CONTENTS:
            if (path := folder.study(name) / each).is_file():
                _add(archive, each, path)
    with part.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").digest()
        length = source.seek(0, 2)
    part.replace(folder.result(digest))
    return digest, length


def _add(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.file_size = path.stat().st_size
    with path.open("rb") as source, archive.open(info, "w") as target:
        while block := source.read(1 << 20):
            target.write(block)
