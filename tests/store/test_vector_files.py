"""Long vectors as files: whole or not there, found when they were changed, removed when nobody names them."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from fedfair.errors import StateError
from fedfair.store.vector_files import VectorFiles

REMEDY = "copy it back"


def content(value: int, length: int = 5000) -> np.ndarray:
    return np.full(length, value, np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "vectors"


def test_a_vector_comes_back_in_another_process_and_is_its_owners_alone(folder: Path) -> None:
    name = VectorFiles(folder, REMEDY).keep(content(7).data)
    assert name == hashlib.sha256(content(7)).hexdigest()
    found = VectorFiles(folder, REMEDY).load(name, 5000)
    assert found.tobytes() == content(7).tobytes()
    assert not found.flags.writeable
    assert (folder.stat().st_mode & 0o777, (folder / f"{name}.vector").stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_vector_that_was_read_stays_when_its_file_is_removed(folder: Path) -> None:
    files = VectorFiles(folder, REMEDY)
    name = files.keep(content(7).data)
    found = files.load(name, 5000)
    files.drop_all_but(())
    assert not list(folder.iterdir())
    assert found.tobytes() == content(7).tobytes()


def test_what_is_there_is_not_written_again(folder: Path) -> None:
    steps: list[str] = []
    files = VectorFiles(folder, REMEDY, reached=steps.append)
    name = files.keep(content(7).data)
    assert files.keep(content(7).data, name) == name
    assert steps == ["write a vector"]
    files.path(name).unlink()
    files.keep(content(7).data, name)
    assert steps == ["write a vector", "write a vector"]


def test_a_file_of_an_earlier_process_is_not_trusted_before_it_is_read(folder: Path) -> None:
    name = VectorFiles(folder, REMEDY).keep(content(7).data)
    (folder / f"{name}.vector").write_bytes(b"left by a power failure")
    later = VectorFiles(folder, REMEDY)
    later.keep(content(7).data)
    assert later.load(name, 5000).tobytes() == content(7).tobytes()


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_bytes(b""),
        lambda path: os.truncate(path, 4999),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"),
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.mkdir()),
    ],
    ids=["empty", "cut", "longer", "changed", "gone", "a folder"],
)
def test_a_changed_or_lost_file_is_refused_in_words(folder: Path, harm: object) -> None:
    name = VectorFiles(folder, REMEDY).keep(content(7).data)
    harm(folder / f"{name}.vector")  # type: ignore[operator]
    with pytest.raises(StateError) as refusal:
        VectorFiles(folder, REMEDY).load(name, 5000)
    assert name in refusal.value.message
    assert refusal.value.remedy == REMEDY


def test_only_the_vectors_that_are_named_stay_and_files_of_others_do(folder: Path) -> None:
    files = VectorFiles(folder, REMEDY)
    names = [files.keep(content(value).data) for value in range(3)]
    (folder / f".{names[0]}.vector.0123456789abcdef").write_bytes(b"a crash while it was written")
    (folder / "README").write_text("of somebody else")
    files.drop_all_but(names[1:2])
    assert sorted(path.name for path in folder.iterdir()) == ["README", f"{names[1]}.vector"]
    files.keep(content(0).data)
    assert files.load(names[0], 5000).tobytes() == content(0).tobytes()


def test_where_nothing_was_kept_there_is_nothing_to_remove(folder: Path) -> None:
    VectorFiles(folder, REMEDY).drop_all_but(())
    assert not folder.exists()


def test_a_vector_that_cannot_be_written_leaves_nothing(folder: Path) -> None:
    folder.write_text("a file where the folder would be")
    with pytest.raises(OSError, match="vectors"):
        VectorFiles(folder, REMEDY).keep(content(7).data)
