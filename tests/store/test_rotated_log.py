import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.store.rotated_log import RotatedLog


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


def test_a_log_begins_a_new_file_after_a_month_also_where_it_was_begun_by_an_earlier_process(
    tmp_path: Path,
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for day in range(0, 120, 10):
        log = RotatedLog(tmp_path / "a.log", clock=lambda day=day: now + timedelta(days=day))  # type: ignore[misc]
        log.append(f"{(now + timedelta(days=day)).isoformat()} day {day:03d}")
        log.close()
    assert len(list(log.lines())) == 12
    assert sorted(files(tmp_path)) == ["a.log", "a.log.1", "a.log.2"]
    assert [line[-3:] for line in (tmp_path / "a.log.2").read_text().splitlines()] == ["000", "010", "020", "030"]


def test_all_files_of_a_log_together_stay_below_their_limit(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "a.log", max_bytes=100, kept=12, max_total_bytes=400)
    for number in range(300):
        log.append(f"line {number:04d}")
        assert sum(files(tmp_path).values()) <= 400
    assert sum(files(tmp_path).values()) > 300
    log.close()


@pytest.mark.parametrize("step", range(6))
def test_a_process_that_is_killed_while_it_begins_a_file_loses_only_what_was_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    log = RotatedLog(tmp_path / "a.log", max_bytes=20, kept=3)
    for number in range(8):
        log.append(f"line {number:04d}")
    calls, real = itertools.count(), Path.replace

    def replace(self: Path, target: Path) -> Path:
        if next(calls) == step:
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        try:
            log.append("line 0008")
        except KeyboardInterrupt:
            assert step < 3
    log.close()
    again = RotatedLog(tmp_path / "a.log", max_bytes=20, kept=3)
    again.append("line 0009")
    again.close()
    left = [int(line[-4:]) for line in again.lines()]
    assert left == sorted(left)
    assert set(range(4, 8)) <= set(left)
    assert left[-1] == 9
