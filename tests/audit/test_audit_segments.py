"""A record of several files: written over a year, killed at every step of beginning a new one, read whole."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from fedfair.audit.head import Head, head_path
from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import Keeper, Occasion
from fedfair.audit.reader import RecordReader
from fedfair.audit.segments import WHOLE_BYTES, Rotation, earlier_files, earlier_path, read_record
from fedfair.errors import AuditError
from fedfair.statistics.table import Purpose
from tests.audit.record_makers import BEGINNING, OTHER_KEY, PLAN, Said, kept, ownership, ticking

ALWAYS = Rotation(max_bytes=1)
"""A new file after every sum."""


def said(first: int, last: int) -> tuple[Said, ...]:
    """Return two messages of each of some rounds."""
    return tuple(
        (b"%d %s" % (number, part), MessageKind.MASKED_VECTOR, Occasion(Purpose.TRAINING, number, 1))
        for number in range(first, last + 1)
        for part in (b"u", b"v")
    )


def write(path: Path, first: int, last: int, rotation: Rotation = ALWAYS, *, head: bool = False) -> None:
    note = Head(head_path(path.parent / "state", "clinic-a"), path, "boot-1") if head else None
    keeper = Keeper(path, ownership(), PLAN, ticking(), note, rotation)
    try:
        for one in said(first, last):
            keeper.message(*one)
    finally:
        keeper.close()


def whole(path: Path) -> RecordReader:
    found = RecordReader()
    read_record(path, found)
    return found


def rounds_of(found: RecordReader) -> list[int]:
    return sorted({group.round for group in found.groups})


def test_the_chain_goes_on_over_files_and_every_one_is_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 1, 4)
    assert list(earlier_files(path)) == [1, 2, 3]
    found = whole(path)
    assert (rounds_of(found), found.total.messages, found.closed) == ([1, 2, 3, 4], 8, True)
    # Four rounds and the end are signed, and so is the beginning of each later file.
    assert found.signatures == 3 + 1 + 3
    single = RecordReader()
    kept(tmp_path / "b.jsonl", said(1, 4))
    read_record(tmp_path / "b.jsonl", single)
    assert found.sent == single.sent, "the same is told by one file"


def test_a_start_goes_on_in_the_newest_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for number in range(1, 6):
        write(path, 2 * number - 1, 2 * number, head=True)
    found = whole(path)
    assert rounds_of(found) == list(range(1, 11))
    assert len(earlier_files(path)) == 5
    assert found.closed
    for file in (path, *earlier_files(path).values()):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_is_old_after_its_age_and_long_after_its_length(tmp_path: Path) -> None:
    old = tmp_path / "old.jsonl"
    keeper = Keeper(old, ownership(), PLAN, _days(), None, Rotation(max_age=timedelta(days=31)))
    for one in said(1, 20):
        keeper.message(*one)
    keeper.close()
    # Two messages and a signature take three days.
    assert len(earlier_files(old)) == 1
    assert rounds_of(whole(old)) == list(range(1, 21))
    length = tmp_path / "long.jsonl"
    write(length, 1, 20, Rotation(max_bytes=3000))
    sizes = [path.stat().st_size for path in earlier_files(length).values()]
    assert all(3000 <= size < 3000 + 3 * 700 for size in sizes)


def _days() -> Callable[[], object]:
    days = iter(range(10_000))
    return lambda: BEGINNING + timedelta(days=next(days))


class KilledError(Exception):
    """The process ends here."""


STEPS = ("fsync 1", "fsync 2", "replace 1", "fsync 3", "open 1", "rename 1", "replace 2", "fsync 4", "close 3")


@contextmanager
def killed_before(step: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the process before one step of beginning a new file: the n-th call of a function of the system."""
    counted = Counter[str]()

    def counting(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def call(*arguments: object) -> object:
            # Folders are opened too, to be waited for.
            counted[name] += name != "open" or str(arguments[0]).endswith(".next")
            if step == f"{name} {counted[name]}":
                raise KilledError
            return real(*arguments)

        patched.setattr(owner, name, call)

    with monkeypatch.context() as patched:
        for owner, name in ((os, "fsync"), (os, "open"), (Path, "rename"), (Path, "replace"), (os, "close")):
            counting(owner, name)
        yield


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("noted", [True, False])
def test_a_process_that_is_killed_at_any_step_of_beginning_a_file_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, noted: bool
) -> None:
    path = tmp_path / "a.jsonl"
    head = Head(head_path(tmp_path / "state", "clinic-a"), path, "boot-1") if noted else None
    keeper = Keeper(path, ownership(), PLAN, ticking(), head, ALWAYS)
    for one in said(1, 1):
        keeper.message(*one)
    with killed_before(step, monkeypatch), pytest.raises(KilledError):
        keeper.message(*said(2, 2)[0])
    # What the system does for a process that has ended.
    keeper._file._lock.close()
    left = whole(path)
    assert (rounds_of(left), left.unsigned) == ([1], 0), "whoever audits now finds a whole record"
    write(path, 2, 3, head=noted)
    found = whole(path)
    assert (rounds_of(found), found.total.messages, found.closed) == ([1, 2, 3], 6, True)
    assert not found.torn


def test_a_full_disk_while_a_file_is_begun_stops_what_would_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    keeper = Keeper(path, ownership(), PLAN, ticking(), None, ALWAYS)
    for one in said(1, 1):
        keeper.message(*one)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda *_: 1)
        with pytest.raises(AuditError, match="nothing is sent without it"):
            keeper.message(*said(2, 2)[0])
    with pytest.raises(AuditError, match="nothing is sent without it"):
        keeper.message(*said(2, 2)[0])
    keeper.close()
    write(path, 2, 3)
    assert rounds_of(whole(path)) == [1, 2, 3]


CHANGED = {
    "a byte": (lambda path: path.write_bytes(path.read_bytes().replace(b'"bytes":3', b'"bytes":4', 1)), "chain"),
    "a cut end": (lambda path: os.truncate(path, path.stat().st_size - 5), "is wrong|not signed"),
    "another file": (
        lambda path: path.write_bytes(earlier_path(path.with_name("a.jsonl"), 1).read_bytes()),
        "file",
    ),
    "nothing left": (lambda path: path.write_bytes(b""), "is wrong|continues"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_an_earlier_file_that_was_changed_is_found_by_an_audit(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 1, 5)
    hand, words = CHANGED[change]
    hand(earlier_path(path, 2))
    with pytest.raises(AuditError, match=words):
        whole(path)


def test_a_start_reads_no_earlier_file_but_misses_none(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 1, 5)
    second = earlier_path(path, 2).read_bytes()
    earlier_path(path, 2).write_bytes(second.replace(b'"bytes":3', b'"bytes":4', 1))
    write(path, 6, 6)
    with pytest.raises(AuditError, match="chain value"):
        whole(path)
    earlier_path(path, 2).write_bytes(second)
    assert rounds_of(whole(path)) == list(range(1, 7))
    newest = list(earlier_files(path).values())[-1]
    content = newest.read_bytes()
    newest.write_bytes(content[:-1])
    with pytest.raises(AuditError, match=r"it was closed with \d+; nothing is sent"):
        write(path, 7, 7)
    newest.unlink()
    with pytest.raises(AuditError, match="one is missing, or is of another record"):
        write(path, 7, 7)


def test_the_oldest_files_may_be_kept_elsewhere_and_an_audit_asks_for_them(tmp_path: Path) -> None:
    path, archive = tmp_path / "a.jsonl", tmp_path / "archive"
    archive.mkdir()
    write(path, 1, 5)
    for number in (1, 2):
        earlier_path(path, number).rename(archive / earlier_path(path, number).name)
    write(path, 6, 6)
    with pytest.raises(AuditError, match="begins with file 3") as refusal:
        whole(path)
    assert "a.jsonl.000001" in refusal.value.remedy
    for file in archive.iterdir():
        file.rename(tmp_path / file.name)
    assert rounds_of(whole(path)) == list(range(1, 7))
    earlier_path(path, 3).unlink()
    for read in (whole, lambda path: write(path, 7, 7)):
        with pytest.raises(AuditError, match=r"a\.jsonl\.000003 is missing"):
            read(path)


def test_a_file_that_was_put_in_the_place_of_the_present_one_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write(path, 1, 3)
    kept(other, said(1, 3), ownership(key=OTHER_KEY))
    path.write_bytes(other.read_bytes())
    with pytest.raises(AuditError, match="one is missing, or is of another record"):
        write(path, 4, 4)
    with pytest.raises(AuditError, match="does not say which file it continues"):
        whole(path)


def test_a_present_file_that_is_gone_is_noticed_by_the_note(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 1, 3, head=True)
    path.unlink()
    with pytest.raises(AuditError, match="its end was cut off"):
        write(path, 4, 4, head=True)


@pytest.mark.parametrize("rotation", [ALWAYS, Rotation()], ids=["many files", "one long file"])
def test_a_start_reads_the_end_of_a_record_only(tmp_path: Path, rotation: Rotation) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 1, 300, rotation, head=True)
    if len(earlier_files(path)) == 0:
        assert path.stat().st_size > 2 * WHOLE_BYTES
    before = whole(path)
    write(path, 301, 302, rotation, head=True)
    found = whole(path)
    assert (found.entries, found.total.messages) > (before.entries, 603)
    assert (rounds_of(found), found.total.messages) == (list(range(1, 303)), 604)
    # The end is read as ever: what stands behind the last signature of the part that is read must follow from it.
    content = path.read_bytes()
    place = content.rindex(b'"bytes":5')
    path.write_bytes(content[:place] + b'"bytes":6' + content[place + 9 :])
    with pytest.raises(AuditError, match="is wrong"):
        write(path, 303, 303, rotation, head=True)


def test_a_long_file_whose_end_was_signed_by_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, 1, 300, Rotation())
    forged = tmp_path / "b.jsonl"
    kept(forged, said(1, 300), ownership(key=OTHER_KEY))
    own, theirs = path.read_bytes().split(b"\n", 1), forged.read_bytes().split(b"\n", 1)
    path.write_bytes(own[0] + b"\n" + theirs[1])
    with pytest.raises(AuditError, match="signature was not made with"):
        write(path, 301, 301, Rotation())
