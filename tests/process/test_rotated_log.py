from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.process.rotated_log import RotatedLog


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def test_a_log_begins_a_new_file_in_time_and_forgets_the_oldest_lines_only(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "notes.log", max_bytes=100, kept=2)
    for number in range(100):
        log.append(f"line {number:04d}")
    log.close()
    # Ten lines of ten bytes fill a file.
    assert files(tmp_path) == {"notes.log": 100, "notes.log.1": 100, "notes.log.2": 100}
    assert list(log.lines()) == [f"line {number:04d}" for number in range(70, 100)]


@given(sizes=st.lists(st.integers(0, 300), max_size=60), kept=st.integers(0, 3))
def test_a_log_is_never_larger_than_it_says(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], kept: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = RotatedLog(folder / "a.log", max_bytes=200, kept=kept)
    for size in sizes:
        log.append("x" * size)
    log.close()
    largest = max(200, *(size + 1 for size in sizes), 0)
    assert len(files(folder)) <= 1 + kept
    assert all(size <= largest for size in files(folder).values())
    assert list(log.lines()) == ["x" * size for size in sizes][len(sizes) - len(list(log.lines())) :]


def test_a_log_goes_on_where_an_earlier_process_left_it_and_begins_anew_for_a_new_run(tmp_path: Path) -> None:
    for text in ("one", "two"):
        log = RotatedLog(tmp_path / "a.log", max_bytes=6, kept=1)
        log.append(text)
        log.close()
    assert list(RotatedLog(tmp_path / "a.log", max_bytes=6, kept=1).lines()) == ["one", "two"]
    assert files(tmp_path) == {"a.log": 4, "a.log.1": 4}
    log.begin(anew=True)
    log.close()
    assert files(tmp_path) == {"a.log": 0}


def test_a_log_that_nothing_was_written_to_makes_no_file(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "a.log")
    log.close()
    assert list(log.lines()) == []
    assert files(tmp_path) == {}
