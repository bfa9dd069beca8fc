from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from aggregator.journal import PIECE_BYTES, SUMS_PER_START, Entry, Journal, forget
from fedfair.errors import FedfairError
from fedfair.learning.snapshot import CourseSnapshot

DIGEST = bytes(range(32))
RUN = "0123456789abcdef" * 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def entry(value: float = 1.0, length: int = 5, dtype: type[np.floating] = np.float64) -> Entry:
    vectors = {"model": np.full(length, value, dtype), "scaling.mean": np.arange(3.0)}
    return Entry(
        CourseSnapshot({"round": value, "best": math.inf, "history": [1, "a", None]}, vectors), 2.5, 2**-7
    )


def test_a_new_journal_holds_nothing_and_counts_sums_from_one(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN)
    assert journal.latest() is None
    assert journal.last_sum_number == 0
    assert journal.run_id == RUN
    journal.close()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [1, PIECE_BYTES // 4 - 1, PIECE_BYTES // 4, PIECE_BYTES // 4 + 1])
def test_what_is_recorded_comes_back_bit_for_bit_after_a_restart(
    path: Path, dtype: type[np.floating], length: int
) -> None:
    journal = Journal.open(path, DIGEST, RUN)
    journal.record(entry(0.1, length, dtype))
    journal.close()
    again = Journal.open(path, DIGEST, "f" * 32)
    found = again.latest()
    again.close()
    assert found.course.state == {"round": 0.1, "best": math.inf, "history": [1, "a", None]}
    assert (found.seconds, found.clip) == (2.5, 2**-7)
    assert found.course.vectors["model"].dtype == dtype
    assert np.array_equal(found.course.vectors["model"], np.full(length, 0.1, dtype))
    assert np.array_equal(found.course.vectors["scaling.mean"], np.arange(3.0))


@pytest.mark.parametrize("older", [False, True])
def test_a_journal_and_what_lies_beside_it_are_readable_by_their_owner_only(path: Path, older: bool) -> None:
    if older:
        path.touch(0o644)
    journal = Journal.open(path, DIGEST, RUN)
    journal.record(entry())
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    journal.close()
    assert path.name in modes
    assert set(modes.values()) == {0o600}


def test_a_newer_entry_replaces_the_older_one_with_all_its_vectors(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN)
    journal.record(entry(1.0, length=3 * PIECE_BYTES))
    journal.record(Entry(CourseSnapshot({}, {"model": np.zeros(2)}), 3.0))
    found = journal.latest()
    journal.close()
    assert found.course.vectors.keys() == {"model"}
    assert found.course.vectors["model"].shape == (2,)


def test_a_restart_keeps_the_name_of_the_run_and_never_reuses_a_sum_number(path: Path) -> None:
    for starts in range(3):
        journal = Journal.open(path, DIGEST, RUN if starts == 0 else "f" * 32)
        assert journal.run_id == RUN
        assert journal.last_sum_number == starts * SUMS_PER_START
        journal.close()


def test_a_failed_entry_leaves_the_one_before(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN)
    journal.record(entry(1.0))
    with pytest.raises(TypeError):
        journal.record(Entry(CourseSnapshot({"not for JSON": object()}, {"model": np.zeros(2)}), 9.0))
    found = journal.latest()
    journal.close()
    assert found.seconds == 2.5
    assert found.course.vectors["model"].shape == (5,)


def test_the_journal_of_another_plan_is_refused_with_both_digests_and_left_alone(path: Path) -> None:
    Journal.open(path, DIGEST, RUN).close()
    other = bytes(32)
    with pytest.raises(FedfairError) as refusal:
        Journal.open(path, other, RUN)
    assert DIGEST.hex() in refusal.value.message
    assert other.hex() in refusal.value.message
    assert "--fresh" in refusal.value.remedy
    Journal.open(path, DIGEST, RUN).close()


def test_a_journal_of_another_form_is_refused_for_what_it_is(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN)
    journal._connection.execute("UPDATE run SET format = 'fedfair/journal/1'")
    journal.close()
    with pytest.raises(FedfairError, match="a journal of the form fedfair/journal/1, this version of fedfair"):
        Journal.open(path, DIGEST, RUN)


def test_a_second_aggregator_in_the_same_folder_is_refused(path: Path) -> None:
    first = Journal.open(path, DIGEST, RUN)
    with pytest.raises(FedfairError, match="another aggregator"):
        Journal.open(path, DIGEST, RUN)
    first.close()


def test_the_journal_of_an_aggregator_that_runs_is_not_forgotten(path: Path) -> None:
    first = Journal.open(path, DIGEST, RUN)
    first.record(entry(1.0))
    with pytest.raises(FedfairError, match="another aggregator"):
        forget(path)
    first.close()
    again = Journal.open(path, DIGEST, "f" * 32)
    assert again.run_id == RUN
    assert again.latest() is not None
    again.close()


def test_a_file_that_is_no_journal_is_refused(path: Path) -> None:
    path.write_bytes(b"this is not a database, however long it may be" * 100)
    with pytest.raises(FedfairError, match="not a database"):
        Journal.open(path, DIGEST, RUN)
    forget(path)
    assert not path.exists()


def test_forgetting_makes_room_for_another_plan(path: Path) -> None:
    Journal.open(path, DIGEST, RUN).close()
    forget(path)
    Journal.open(path, bytes(32), RUN).close()
    forget(path)
    forget(path)
