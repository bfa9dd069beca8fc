"""A line that a crash or a full disk has cut takes no other record with it, in any log of lines."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedfair.identity import register
from fedfair.ids import ParticipantId
from fedfair.store.line_end import is_cut
from fedfair.store.rotated_log import RotatedLog
from fedfair.tracking.stores import JsonlTracker
from fedfair.tracking.tracker import TrackedRun
from tests.conftest import REPOSITORY

CUT = '{"time": "2030-01-01T00:00:00.000Z", "run'


def rotated(path: Path) -> None:
    log = RotatedLog(path)
    log.append('{"next": 1}')
    log.close()


def tracked(path: Path) -> None:
    JsonlTracker(path).begin(TrackedRun("", "heart", "aggregator", {}))


def registered(path: Path) -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC)
    register.append(path, register.Issued(1, ParticipantId("clinic-a"), "collaborator", (), until, "f", "k"))


@pytest.mark.parametrize("write", [rotated, tracked, registered])
def test_the_record_after_a_line_that_was_cut_has_a_line_of_its_own(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(f'{{"whole": 1}}\n{CUT}')
    assert is_cut(path)
    write(path)
    whole, cut, *later = path.read_text().splitlines()
    assert (json.loads(whole), cut) == ({"whole": 1}, CUT)
    assert later
    assert all(isinstance(json.loads(line), dict) for line in later)
    assert not is_cut(path)


def test_a_line_that_a_full_disk_has_cut_in_this_process_is_ended_before_the_next_one(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "a.jsonl")
    log.begin()
    real = log._file
    assert real is not None

    class Full:
        def write(self, raw: memoryview) -> int:
            real.write(raw[:3])
            raise OSError(28, "No space left on device")

    log._file = Full()  # type: ignore[assignment]  # the experiment
    with pytest.raises(OSError, match="No space"):
        log.append("first")
    log._file = real
    log.append("second")
    log.close()
    assert (tmp_path / "a.jsonl").read_text() == "fir\nsecond\n"


APPENDING = re.compile(r"open\([^()]*[\"']ab?[\"']|O_APPEND|open\(mode,")
ENDED, CUT_OFF = "a cut line is ended", "what is unfinished is cut off before the next record"
BYTES = "no records: bytes of one file, whose digest is compared"
WORDS = "no records: what a process prints"
KNOWN = {
    "aggregator/hub/archives.py": BYTES,
    "aggregator/records.py": ENDED,
    "collaborator/standing/child.py": WORDS,
    "collaborator/write_ahead.py": CUT_OFF,
    "fedfair/audit/append_file.py": CUT_OFF,
    "fedfair/identity/register.py": ENDED,
    "fedfair/store/line_file.py": ENDED,
    "fedfair/store/rotated_log.py": ENDED,
    "fedfair/tracking/stores.py": ENDED,
    "fedfair/wire/hub_client.py": BYTES,
}


def test_every_place_that_appends_to_a_file_says_what_it_does_about_an_unfinished_record() -> None:
    found = {
        str(path.relative_to(REPOSITORY))
        for package in ("aggregator", "collaborator", "fedfair")
        for path in (REPOSITORY / package).rglob("*.py")
        if APPENDING.search(path.read_text(encoding="utf-8"))
    }
    assert found == KNOWN.keys()
    for place, says in KNOWN.items():
        assert ("is_cut(" in (REPOSITORY / place).read_text(encoding="utf-8")) == (says == ENDED)
