"""Files that appear whole, and faults that name the file that was asked for."""

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from collaborator.ledger import RollbackGuard
from fedfair.aggregation.model_file import save
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.identity.files import write_private, write_public
from fedfair.store.atomic_file import write_whole
from tests.imports import REPOSITORY
from tests.patience import PATIENCE


def test_a_file_is_replaced_whole_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "résultat 1.json"
    for text in ("first", "second ✓"):
        write_whole(place, text)
        assert place.read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir()] == [place.name]


def test_a_fault_names_the_file_and_not_a_temporary_one(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none" / "result.json"):
        with pytest.raises(OSError, match=r"directory") as fault:
            write_whole(place, "text")
        assert fault.value.filename == str(place)
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "text")
    reader.join(PATIENCE)
    assert heard == ["text"]
    assert pipe.is_fifo()


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("mask", "public", "readable"), [(0o022, 0o644, 0o644), (0o027, 0o640, 0o640), (0, 0o666, 0o644)]
)
def test_a_file_obeys_the_umask_and_a_secret_stays_its_owners(
    tmp_path: Path, mask: int, public: int, readable: int
) -> None:
    layout = Layout((LayoutEntry("w", (2,), trainable=True),), np.dtype(np.float32))
    with umask(mask):
        write_whole(tmp_path / "result.json", "{}")
        write_private(tmp_path / "signing.key", b"secret")
        write_public(tmp_path / "site.crt", b"certificate")
        RollbackGuard(tmp_path / "a.ledger-seen").note(1, bytes(32))
        save(tmp_path / "model.safetensors", layout, np.zeros(2, np.float32), {})
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {
        "result.json": public,
        "signing.key": 0o600,
        "site.crt": readable,
        "a.ledger-seen": 0o600,
        "model.safetensors": 0o600,
    }


def test_every_file_of_a_fixed_mode_is_written_in_one_place() -> None:
    """Temporary files that are renamed are made by `atomic_file.py` alone, so each is waited for on the disk."""
    root = REPOSITORY
    sources = [path for part in ("fedfair", "aggregator", "collaborator") for path in (root / part).rglob("*.py")]
    found = {
        path.relative_to(root).as_posix() for path in sources if "mkstemp(" in path.read_text(encoding="utf-8")
    }
    # The ledger's first file is made by SQLite, and linked into its place.
    assert found == {"collaborator/ledger.py"}
    assert not [path for path in sources if "fchmod(" in path.read_text(encoding="utf-8")]
