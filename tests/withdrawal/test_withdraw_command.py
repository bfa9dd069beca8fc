"""`fedfair data withdraw`: what is recorded, what is refused, and what a check says afterwards."""

import json
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collaborator.withdrawn.recording import identifiers_in, record_withdrawal
from fedfair.errors import DataError, FedfairError
from fedfair.withdrawal.tombstone_file import TombstoneFile
from fedfair.withdrawal.tombstones import Tombstone, Tombstones, parse_tombstones
from tests.withdrawal.withdrawal_kit import ROWS, command, written

NOW = datetime(2030, 1, 31, tzinfo=UTC)


def test_a_withdrawal_is_recorded_once_and_a_check_counts_the_rest(tmp_path: Path) -> None:
    written(tmp_path)
    done = command(tmp_path, "withdraw", "--id", "p 3", "--id", "p 49", "--reference", "letter 7")
    assert done.exit_code == 0, done.output
    assert "2 persons withdrawn, 0 had withdrawn before; 2 at this site in all" in done.output
    again = command(tmp_path, "withdraw", "--id", "p 3", "--id", "p 4", "--json")
    assert json.loads(again.stdout) == {
        "format": "fedfair/data-withdraw/1", "recorded": 1, "known": 1, "unknown": [], "total": 3,
    }  # fmt: skip
    shown = command(tmp_path, "check")
    # p 3 and p 4 have two records each, p 49 has one.
    assert f"{len(ROWS) - 5} records" in shown.output
    assert "3 persons have withdrawn at this site" in shown.output
    assert json.loads(command(tmp_path, "check", "--json").stdout)["withdrawn"] == 3


def test_a_list_of_identifiers_is_taken_as_texts(tmp_path: Path) -> None:
    written(tmp_path, *ROWS, "007,30,1", "7,31,0", '"Zoë, née X",32,1')
    (tmp_path / "gone.csv").write_text(
        'day,patient\n2030-01-01, 007 \n2030-01-02,"Zoë, née X"\n', encoding="utf-8-sig"
    )
    assert identifiers_in(tmp_path / "gone.csv", "patient") == (" 007 ", "Zoë, née X")
    done = command(tmp_path, "withdraw", "--ids", str(tmp_path / "gone.csv"))
    assert "2 persons withdrawn" in done.output, done.output
    assert f"{len(ROWS) + 1} records" in command(tmp_path, "check").output


def test_an_identifier_that_no_record_has_is_named_and_nothing_is_recorded(tmp_path: Path) -> None:
    config = written(tmp_path)
    gone = ["p 3", "p 300", "P 4"]
    with pytest.raises(
        DataError, match=r"2 of 3 identifiers are in no record .*: 'p 300', 'P 4'; nothing was recorded"
    ):
        record_withdrawal(config, tmp_path / "plan/plan.yaml", gone, "", NOW)
    assert "withdrawn" not in command(tmp_path, "check").output
    told = command(tmp_path, "withdraw", *(word for one in gone for word in ("--id", one)), "--even-if-unknown")
    assert "3 persons withdrawn" in told.output
    assert "no record here has the identifier 'p 300'; it is recorded" in told.output
    # They come back one day, and do not count then either.
    (tmp_path / "own.csv").write_text("\n".join(["patient,age,died", *ROWS, "p 300,44,1"]) + "\n")
    assert f"{len(ROWS) - 2} records" in command(tmp_path, "check").output


def options(*words: str) -> Callable[[Path], tuple[str, ...]]:
    return lambda folder: tuple(word.replace("DIR", str(folder)) for word in words)


@pytest.mark.parametrize(
    ("data", "file", "words", "fault"),
    [
        ({"train": "own.csv"}, "", options("--id", "p 3"), "data.record_id: is missing"),
        ({"train": "own.csv", "record_id": "person"}, "", options("--id", "p 3"), "no column 'person'"),
        ({"train": "none.csv", "record_id": "patient"}, "", options("--id", "p 3"), "none.csv"),
        (None, "", options(), "no identifier is given"),
        (None, "", options("--id", " "), "an empty identifier names nobody"),
        (None, "", options("--ids", "DIR/none.csv"), "none.csv cannot be read as a CSV file"),
        (None, "p 3\np 4\n", options("--ids", "DIR/ids.csv"), "has no column 'patient'; its first line is 'p 3'"),
        (None, "patient\n", options("--ids", "DIR/ids.csv"), "no identifier is given"),
        (None, "patient,day\np 3\n", options("--ids", "DIR/ids.csv"), "row 2 has another number of fields"),
        (None, "", options("--id", "p 3", "--reference", "x" * 300), "has 300 characters, at most 200"),
        (None, "", options("--id", "p 3", "--reference", "a\nb"), "on one line"),
    ],
)
def test_a_likely_mistake_is_one_clear_fault(
    tmp_path: Path, data: dict[str, object] | None, file: str, words: Callable[[Path], tuple[str, ...]], fault: str
) -> None:
    written(tmp_path, data=data)
    (tmp_path / "ids.csv").write_text(file)
    done = command(tmp_path, "withdraw", *words(tmp_path))
    assert isinstance(done.exception, FedfairError)
    assert fault in done.exception.message + done.exception.remedy
    assert done.exception.remedy
    assert not (tmp_path / "withdrawals/clinic-a.jsonl").exists()


def record(path: Path, *persons: str) -> Tombstones:
    file = TombstoneFile(path)
    key = file.made_key()
    return file.record([Tombstone(key.full_hash(person), "2030-01-01T00:00:00+00:00") for person in persons])


@pytest.mark.parametrize("part", [0.23, 0.55, 0.97])
def test_a_process_that_is_killed_while_it_records_leaves_whole_entries_and_the_same_command_adds_the_rest(
    tmp_path: Path, part: float
) -> None:
    path, persons = tmp_path / "some.jsonl", [f"p {number}" for number in range(10)]
    record(path, "before")
    begun = path.stat().st_size
    child = os.fork()
    if not child:
        real = os.write

        def killed(handle: int, content: bytes) -> int:
            real(handle, content[: int(len(content) * part)])
            os.kill(os.getpid(), signal.SIGKILL)
            return 0

        os.write = killed  # type: ignore[assignment]  # the experiment: half of it is on the disk
        record(path, *persons)
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert path.stat().st_size > begun
    left = len(TombstoneFile(path).load().entries)
    assert 1 < left < 11
    after = record(path, *persons)
    assert len(after.entries) == 11
    assert parse_tombstones(path.read_bytes().splitlines()) == after


def test_two_processes_that_record_at_once_lose_nobody(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    children = []
    for number in range(4):
        child = os.fork()
        if not child:
            for each in range(10):
                record(path, f"p {number} {each}", f"both {each}")
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len(TombstoneFile(path).load().persons) == 50


def test_a_record_that_is_an_earlier_one_is_not_its_continuation() -> None:
    entries = [Tombstone(bytes([number]) * 32, "2030-01-01T00:00:00+00:00") for number in range(5)]
    whole, lines = Tombstones().with_more(entries)
    assert parse_tombstones(lines) == whole
    for count in range(6):
        part = parse_tombstones(lines[:count])
        assert whole.is_after(count, part.head)
        assert part.is_after(count, part.head)
        assert part.is_after(5, whole.head) == (count == 5)
    other, _ = Tombstones().with_more(reversed(entries))
    assert not other.is_after(3, parse_tombstones(lines[:3]).head)
