import itertools
import json
import math
import random
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregator.journal import Journal, JournalEntry, forget
from aggregator.journal_vectors import PIECE_BYTES, LongVectors
from aggregator.run_rows import NEWEST_COSTS
from fedfair.errors import FedfairError
from fedfair.ids import ParticipantId, SumNumber
from fedfair.results.costs import SumCost
from fedfair.rounds.continued import BLOCK_BITS, first_block
from fedfair.rounds.events import Departed, UnfinishedSum
from fedfair.rounds.state_steps import LastOpened
from fedfair.run.history import from_line
from fedfair.run.snapshot import RunSnapshot
from fedfair.statistics.table import Purpose
from tests.actors.test_history_file import with_history

DIGEST = bytes(range(32))
NOW = 1_800_000_000.0
RUN = "0123456789abcdef" * 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def entry(value: float = 1.0, length: int = 5, dtype: type[np.floating] = np.float64) -> JournalEntry:
    vectors = {"model": np.full(length, value, dtype), "scaling.mean": np.arange(3.0)}
    return JournalEntry(RunSnapshot({"round": value, "best": math.inf, "history": [1, "a", None]}, vectors), 2.5)


def write(path: Path, *recorded: JournalEntry) -> None:
    """Let a process record these entries and end."""
    with closing(Journal.open(path, DIGEST, RUN, NOW)) as journal:
        for one in recorded:
            journal.record(one)


def test_a_new_journal_holds_nothing_and_counts_sums_by_the_clock(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN, NOW)
    assert journal.latest() is None
    assert (journal.last_sum_number, journal.run_id) == (first_block(NOW, SumNumber(0)), RUN)
    journal.close()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [1, PIECE_BYTES // 4 - 1, PIECE_BYTES // 4, PIECE_BYTES // 4 + 1])
def test_what_is_recorded_comes_back_bit_for_bit(path: Path, dtype: type[np.floating], length: int) -> None:
    write(path, entry(0.1, length, dtype))
    found = read(path)
    assert found.training_run.state == {"round": 0.1, "best": math.inf, "history": [1, "a", None]}
    assert (found.seconds, found.training_run.vectors["model"].dtype) == (2.5, dtype)
    assert np.array_equal(found.training_run.vectors["model"], np.full(length, 0.1, dtype))
    assert np.array_equal(found.training_run.vectors["scaling.mean"], np.arange(3.0))


@pytest.mark.parametrize("older", [False, True])
def test_a_journal_and_what_lies_beside_it_are_readable_by_their_owner_only(path: Path, older: bool) -> None:
    if older:
        path.touch(0o644)
    journal = Journal.open(path, DIGEST, RUN, NOW)
    journal.record(entry())
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    journal.close()
    assert path.name in modes
    assert set(modes.values()) == {0o600}


def test_a_newer_entry_replaces_the_older_one_with_all_its_vectors(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN, NOW)
    journal.record(entry(1.0, length=3 * PIECE_BYTES))
    journal.record(JournalEntry(RunSnapshot({}, {"model": np.zeros(2)}), 3.0))
    found = journal.latest()
    journal.close()
    assert (found.training_run.vectors.keys(), found.training_run.vectors["model"].shape) == ({"model"}, (2,))


def test_vectors_that_stay_change_come_and_go_are_those_of_the_last_entry(path: Path) -> None:
    source, kept = np.random.default_rng(3), {name: np.arange(5.0) + place for place, name in enumerate("abcd")}

    def step(name: str) -> None:
        if name == fault:
            raise OSError("no room")

    fault, journal = "", Journal.open(path, DIGEST, RUN, NOW, LongVectors(reached=step))
    for number in range(60):
        names = [name for name in kept if source.random() < 0.7]
        vectors = {name: kept[name] + float(source.random() < 0.3) for name in names}
        fault, before = str(source.choice(["", "", "commit", "committed"])), journal.latest()
        if fault:
            with pytest.raises(OSError, match="no room"):
                journal.record(JournalEntry(RunSnapshot({}, dict(vectors)), number))
        else:
            journal.record(JournalEntry(RunSnapshot({}, dict(vectors)), number))
        found = journal.latest()
        expected = before.training_run.vectors if fault == "commit" and before else vectors
        if fault == "commit" and before is None:
            assert found is None
            continue
        assert {name: vector.tobytes() for name, vector in found.training_run.vectors.items()} == {
            name: vector.tobytes() for name, vector in expected.items()
        }
    fault = ""
    journal.record(JournalEntry(RunSnapshot({}, {"a": kept["a"]}), 61.0))
    journal.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM vector").fetchall() == [("a",)]
        assert connection.execute("SELECT name FROM piece").fetchall() == [("a",)]


def test_a_restart_keeps_the_name_of_the_run_and_never_reuses_a_sum_number(path: Path) -> None:
    numbers = []
    # The clock advances, stands still, and goes back.
    for start, seconds in enumerate((NOW, NOW + 1, NOW + 1, NOW - 3600)):
        journal = Journal.open(path, DIGEST, RUN if start == 0 else "f" * 32, seconds)
        assert journal.run_id == RUN
        numbers.append(journal.last_sum_number)
        journal.close()
    assert all(later - earlier >= 1000 << BLOCK_BITS for earlier, later in itertools.pairwise(numbers))


@pytest.mark.parametrize(
    "opened",
    [
        LastOpened(
            bytes(range(32)), b"message", bytes(range(40)), masked=True, receivers=("clinic-a", "clinic-b")
        ),
        LastOpened(bytes(range(32)), b"totals", b"", masked=False, receivers=()),
        None,
    ],
    ids=["masked", "plain", "none yet"],
)
def test_the_sum_opened_last_comes_back_with_the_state_it_led_to(path: Path, opened: LastOpened | None) -> None:
    write(
        path,
        replace(entry(), opened=LastOpened(bytes(32), b"older", b"longer" * 9, masked=True, receivers=())),
        replace(entry(), opened=opened),
    )
    found = read(path)
    assert (found.opened, found.training_run.vectors.keys()) == (opened, entry().training_run.vectors.keys())


def test_a_failed_entry_leaves_the_one_before(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN, NOW)
    journal.record(entry(1.0))
    with pytest.raises(TypeError):
        journal.record(JournalEntry(RunSnapshot({"not for JSON": object()}, {"model": np.zeros(2)}), 9.0))
    found = journal.latest()
    journal.close()
    assert (found.seconds, found.training_run.vectors["model"].shape) == (2.5, (5,))


def test_the_journal_of_another_plan_is_refused_with_both_digests_and_left_alone(path: Path) -> None:
    write(path, replace(entry(), costs=(SumCost(Purpose.TRAINING, 1, 0.5, 3, 10, 20),)))
    other = bytes(32)
    with pytest.raises(FedfairError) as refusal:
        Journal.open(path, other, RUN, NOW)
    assert DIGEST.hex() in refusal.value.message
    assert other.hex() in refusal.value.message
    assert "--fresh" in refusal.value.remedy
    Journal.open(path, DIGEST, RUN, NOW).close()


def test_a_run_that_has_only_waited_makes_way_for_a_changed_plan(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN, NOW)
    journal.rows.add_departure(Departed(ParticipantId("clinic-a"), 0, "did not come"))
    # A stop records the state before the first sum.
    journal.record(entry())
    journal.close()
    changed = Journal.open(path, bytes(32), "f" * 32, NOW)
    assert changed.run_id == "f" * 32
    assert changed.latest() is None
    assert list(changed.rows.departures()) == []
    changed.close()


def test_a_sum_that_is_under_way_keeps_a_changed_plan_out(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN, NOW)
    journal.keep(UnfinishedSum(1, b"what opens it"))
    journal.close()
    with pytest.raises(FedfairError, match="belongs to another plan"):
        Journal.open(path, bytes(32), "f" * 32, NOW)


def test_a_journal_of_another_form_is_refused_for_what_it_is(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN, NOW)
    journal._database.connection.execute("UPDATE run SET format = 'fedfair/journal/1'")
    journal.close()
    with pytest.raises(FedfairError, match=r"format fedfair/journal/1, and fedfair .* reads fedfair/journal/7"):
        Journal.open(path, DIGEST, RUN, NOW)


def test_a_second_aggregator_in_the_same_folder_is_refused(path: Path) -> None:
    first = Journal.open(path, DIGEST, RUN, NOW)
    with pytest.raises(FedfairError, match="an aggregator already runs here"):
        Journal.open(path, DIGEST, RUN, NOW)
    first.close()


def test_the_journal_of_an_aggregator_that_runs_is_not_forgotten(path: Path) -> None:
    first = Journal.open(path, DIGEST, RUN, NOW)
    first.record(entry(1.0))
    with pytest.raises(FedfairError, match="an aggregator already runs here"):
        forget(path)
    first.close()
    again = Journal.open(path, DIGEST, "f" * 32, NOW)
    assert again.run_id == RUN
    assert again.latest() is not None
    again.close()


def test_a_file_that_is_no_journal_is_refused(path: Path) -> None:
    path.write_bytes(b"this is not a database, however long it may be" * 100)
    with pytest.raises(FedfairError, match="not a database"):
        Journal.open(path, DIGEST, RUN, NOW)
    for _ in range(2):  # what is gone is forgotten without a fault
        forget(path)
        assert not path.exists()
    Journal.open(path, bytes(32), RUN, NOW).close()


def read(path: Path) -> JournalEntry | None:
    """Return what a restarted aggregator would continue from."""
    with closing(Journal.open(path, DIGEST, "f" * 32, NOW)) as journal:
        return journal.latest()


def run_sql(sql: str) -> Callable[[sqlite3.Connection], None]:
    def spoil(connection: sqlite3.Connection) -> None:
        connection.execute(sql)

    return spoil


def retyped(table: str, columns: str) -> Callable[[sqlite3.Connection], None]:
    """Return what puts values of other types into a table, as a flipped bit in the header of a row does."""

    def spoil(connection: sqlite3.Connection) -> None:
        connection.execute(f"CREATE TABLE spoilt AS SELECT {columns} FROM {table}")  # noqa: S608 - our own
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"ALTER TABLE spoilt RENAME TO {table}")

    return spoil


@pytest.mark.parametrize(
    ("spoil", "row"),
    [
        (retyped("piece", "name, position, 7 AS bytes"), "the vector 'model'"),
        (retyped("piece", "name, position, 'seven' AS bytes"), "the vector 'model'"),
        (retyped("piece", "name, position, NULL AS bytes"), "the vector 'model'"),
        (retyped("vector", "name, 7 AS dtype, length"), "the vector 'model'"),
        (run_sql("UPDATE piece SET bytes = zeroblob(length(bytes)) WHERE position > 0"), "the vector 'model'"),
        (run_sql("DELETE FROM piece WHERE name = 'model' AND position > 0"), "the vector 'model'"),
        (run_sql("DELETE FROM piece WHERE name = 'model' AND position = 0"), "the vector 'model'"),
        (run_sql("DELETE FROM vector WHERE name = 'scaling.mean'"), "the vector 'scaling.mean'"),
        (run_sql("UPDATE vector SET dtype = '<i8' WHERE name = 'model'"), "the vector 'model'"),
        (run_sql("UPDATE run SET words = replace(words, '0.1', '0.2')"), "the row of the run"),
        (run_sql("UPDATE run SET seconds = 0"), "the row of the run"),
        (run_sql("UPDATE run SET block = 0"), "the row of the run"),
        (run_sql("UPDATE run SET run_id = 'x'"), "the row of the run"),
        (run_sql("UPDATE run SET vectors = '{}'"), "the row of the run"),
        (run_sql("DELETE FROM run"), "the row of the run"),
        (run_sql("DROP TABLE run"), "the row of the run"),
    ],
)
def test_a_journal_with_a_damaged_row_is_refused_and_the_row_is_named(
    path: Path, spoil: Callable[[sqlite3.Connection], None], row: str
) -> None:
    write(path, entry(0.1, 3 * PIECE_BYTES // 8))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        spoil(connection)
    with pytest.raises(FedfairError, match="is damaged") as refusal:
        read(path)
    assert row in refusal.value.message
    assert "backup" in refusal.value.remedy
    assert "--fresh" in refusal.value.remedy


def test_no_flipped_bit_of_a_journal_becomes_the_state_of_a_run(path: Path) -> None:
    write(path, entry(0.1, 600))
    sound, kept = path.read_bytes(), entry(0.1, 600)
    draw = random.Random(1)  # noqa: S311 - damage, not a secret
    refused = 0
    for _ in range(80):
        raw = bytearray(sound)
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
        path.write_bytes(raw)
        try:
            found = read(path)
        except FedfairError:
            refused += 1
        else:
            assert (found.training_run.state, found.seconds) == (kept.training_run.state, kept.seconds)
            assert found.training_run.vectors.keys() == kept.training_run.vectors.keys()
            for name, vector in kept.training_run.vectors.items():
                assert np.array_equal(found.training_run.vectors[name], vector)
        forget(path)
    assert refused > 6


def test_what_opens_the_sum_under_way_is_there_after_a_kill_and_the_latest_counts(path: Path) -> None:
    journal = Journal.open(path, DIGEST, "run", NOW)
    assert journal.unfinished() is None
    journal.keep(UnfinishedSum(1, b"start"))
    journal.keep(UnfinishedSum(2, b"start and survivors"))
    journal.close()
    again = Journal.open(path, DIGEST, "other", NOW)
    assert again.unfinished() == UnfinishedSum(2, b"start and survivors")
    again.close()


@pytest.mark.parametrize(
    "spoil",
    [
        run_sql("UPDATE unfinished SET attempt = 3"),
        run_sql("UPDATE unfinished SET record = zeroblob(length(record))"),
        run_sql("UPDATE unfinished SET record = substr(record, 2)"),
        run_sql("UPDATE unfinished SET sha256 = NULL"),
    ],
)
def test_a_damaged_record_of_the_sum_under_way_is_refused_and_the_row_is_named(
    path: Path, spoil: Callable[[sqlite3.Connection], None]
) -> None:
    begun(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        spoil(connection)
    with pytest.raises(FedfairError, match="is damaged: the row of the sum under way") as refusal:
        found_unfinished(path)
    assert "backup" in refusal.value.remedy
    assert "--fresh" in refusal.value.remedy


def test_no_flipped_bit_of_a_journal_becomes_the_record_of_the_sum_under_way(path: Path) -> None:
    begun(path)
    sound = path.read_bytes()
    start = sound.index(RECORD)
    for byte in range(start, start + len(RECORD)):
        raw = bytearray(sound)
        raw[byte] ^= 1 << byte % 8
        path.write_bytes(raw)
        with pytest.raises(FedfairError, match="is damaged: the row of the sum under way"):
            found_unfinished(path)
        forget(path)


RECORD = bytes(range(200, 240))


def begun(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN, NOW)
    journal.keep(UnfinishedSum(2, RECORD))
    journal.close()


def found_unfinished(path: Path) -> UnfinishedSum | None:
    with closing(Journal.open(path, DIGEST, RUN, NOW)) as journal:
        return journal.unfinished()


COSTS = tuple(SumCost(Purpose.TRAINING, number, 0.1 * number, 3, 10, 20) for number in range(1, 4))


def test_costs_are_added_to_those_of_earlier_entries_and_a_failed_entry_adds_none(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN, NOW)
    journal.record(replace(entry(), costs=COSTS[:2]))
    with pytest.raises(TypeError):
        journal.record(JournalEntry(RunSnapshot({"not for JSON": object()}, {}), 9.0, costs=COSTS[2:]))
    journal.record(replace(entry(), costs=COSTS[2:]))
    journal.rows.add_departure(Departed(ParticipantId("clinic-a"), 2, "budget"))
    journal.close()
    again = Journal.open(path, DIGEST, RUN, NOW)
    assert again.rows.costs() == list(COSTS)
    assert again.rows.departures() == [Departed(ParticipantId("clinic-a"), 2, "budget")]
    again.close()


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE cost SET bytes_up = 11 WHERE position = 1",
        "UPDATE cost SET purpose = 'other' WHERE position = 1",
        "DELETE FROM cost WHERE position = 2",
        "DELETE FROM cost WHERE position = 0",
        "UPDATE departure SET round = 1",
        "UPDATE late_site SET times = 0",
    ],
)
def test_a_damaged_row_of_costs_or_departures_is_told_before_the_run_goes_on(path: Path, harm: str) -> None:
    journal = Journal.open(path, DIGEST, RUN, NOW)
    journal.record(replace(entry(), costs=COSTS))
    journal.rows.add_departure(Departed(ParticipantId("clinic-a"), 2, "budget"))
    journal.rows.add_lateness(ParticipantId("clinic-b"), 3.5, times=1)
    journal.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(harm)
        connection.commit()
    again = Journal.open(path, DIGEST, RUN, NOW)
    with pytest.raises(FedfairError, match=r"is damaged: the (row|table) of"):
        again.latest()
    again.close()


def test_each_late_site_has_one_row_with_its_times_and_its_longest_answer(path: Path) -> None:
    a, b = ParticipantId("clinic-a"), ParticipantId("clinic-b")
    journal = Journal.open(path, DIGEST, RUN, NOW)
    for who, seconds, times in ((b, 2.0, 1), (a, 3.0, 1), (b, 9.5, 0), (b, 4.0, 1)):
        journal.rows.add_lateness(who, seconds, times=times)
    journal.close()
    again = Journal.open(path, DIGEST, RUN, NOW)
    assert again.rows.late_sites() == [(b, 2, 9.5), (a, 1, 3.0)]
    again.close()


def test_who_leaves_while_an_entry_is_written_waits_for_it(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN, NOW)
    with ThreadPoolExecutor(2) as pool:
        writing = [pool.submit(journal.record, replace(entry(length=PIECE_BYTES), costs=COSTS)) for _ in range(4)]
        leaving = [
            pool.submit(journal.rows.add_departure, Departed(ParticipantId(f"clinic-{letter}"), 1, "budget"))
            for letter in "abcdef"
        ]
        for done in (*writing, *leaving):
            done.result()
    assert (len(journal.rows.costs()), len(journal.rows.departures())) == (4 * len(COSTS), 6)
    journal.close()


def test_each_evaluation_is_written_once_and_comes_back_in_the_words_of_the_run(path: Path) -> None:
    history, journal = with_history(40).history, Journal.open(path, DIGEST, RUN, NOW)
    brief = JournalEntry(RunSnapshot({"history": []}, {"model": np.zeros(2)}), 1.0)
    for length in (0, 1, 2, 39, 40):
        journal.record(replace(brief, history=history[:length]))
    journal.close()
    found = read(path)
    words = found.training_run.state["history"]
    assert [from_line(json.dumps(one)) for one in words] == list(history)
    # A history that was shortened takes the place of the longer one.
    write(
        path,
        replace(brief, history=history),
        replace(brief, history=history[::2]),
        replace(brief, history=(*history[::2], history[39])),
    )
    found = read(path)
    assert [one["round"] for one in found.training_run.state["history"]] == [*range(0, 40, 2), 39]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE evaluation SET words = replace(words, '0.', '1.') WHERE position = 7")
    with pytest.raises(FedfairError, match="the row of an evaluation \\(8\\)"):
        read(path)


def test_a_start_checks_the_newest_costs_and_the_result_checks_all(path: Path) -> None:
    journal = Journal.open(path, DIGEST, RUN, NOW)
    many = tuple(SumCost(Purpose.TRAINING, number, 0.5, 3, 10, 20) for number in range(NEWEST_COSTS + 5))
    journal.record(replace(entry(), costs=many))
    journal.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE cost SET seconds = 9 WHERE position = 4")
    journal = Journal.open(path, DIGEST, RUN, NOW)
    assert journal.latest() is not None
    with pytest.raises(FedfairError, match="what a sum cost \\(5\\)"):
        journal.rows.costs()
    journal.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE cost SET seconds = 9 WHERE position = 5")
    with pytest.raises(FedfairError, match="what a sum cost \\(6\\)"):
        read(path)
