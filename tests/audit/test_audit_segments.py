"""A record of several files: written over a year, killed at every step of beginning a new one, read whole."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from fedfair.audit.head import Head, head_path, present_boot, read_head
from fedfair.audit.items import MessageKind
from fedfair.audit.keeper import Keeper, Occasion
from fedfair.audit.reader import RecordReader
from fedfair.audit.segments import WHOLE_BYTES, Rotation, earlier_files, earlier_path, read_record
from fedfair.errors import AuditError
from fedfair.statistics.table import Purpose
from tests.audit.record_makers import BEGINNING, OTHER_KEY, PLAN, ROUNDS, Said, kept, ownership, read, ticking

ALWAYS = Rotation(max_bytes=1)
"""A new file after every sum."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


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


def test_the_chain_goes_on_over_files_and_every_one_is_read_in_order(tmp_path: Path, path: Path) -> None:
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


def test_a_start_goes_on_in_the_newest_file(path: Path) -> None:
    for number in range(1, 6):
        write(path, 2 * number - 1, 2 * number, head=True)
    found = whole(path)
    assert (rounds_of(found), len(earlier_files(path))) == (list(range(1, 11)), 5)
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
    assert (len(earlier_files(old)), rounds_of(whole(old))) == (1, list(range(1, 21)))
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
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, step: str, noted: bool
) -> None:
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


def test_a_full_disk_while_a_file_is_begun_stops_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_an_earlier_file_that_was_changed_is_found_by_an_audit(path: Path, change: str) -> None:
    write(path, 1, 5)
    hand, words = CHANGED[change]
    hand(earlier_path(path, 2))
    with pytest.raises(AuditError, match=words):
        whole(path)


def test_a_start_reads_no_earlier_file_but_misses_none(path: Path) -> None:
    write(path, 1, 5)
    second = earlier_path(path, 2).read_bytes()
    earlier_path(path, 2).write_bytes(second.replace(b'"bytes":3', b'"bytes":4', 1))
    write(path, 6, 6)
    with pytest.raises(AuditError, match="chain value"):
        whole(path)
    earlier_path(path, 2).write_bytes(second)
    assert rounds_of(whole(path)) == list(range(1, 7))
    newest = list(earlier_files(path).values())[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
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
    for look in (whole, lambda path: write(path, 7, 7)):
        with pytest.raises(AuditError, match=r"a\.jsonl\.000003 is missing"):
            look(path)


def test_a_file_that_was_put_in_the_place_of_the_present_one_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write(path, 1, 3)
    kept(other, said(1, 3), ownership(key=OTHER_KEY))
    path.write_bytes(other.read_bytes())
    with pytest.raises(AuditError, match="one is missing, or is of another record"):
        write(path, 4, 4)
    with pytest.raises(AuditError, match="does not say which file it continues"):
        whole(path)


def test_a_present_file_that_is_gone_is_noticed_by_the_note(path: Path) -> None:
    write(path, 1, 3, head=True)
    path.unlink()
    with pytest.raises(AuditError, match="its end was cut off"):
        write(path, 4, 4, head=True)


@pytest.mark.parametrize(("rotation", "last"), [(ALWAYS, 30), (Rotation(), 300)], ids=["many files", "a long one"])
def test_a_start_reads_the_end_of_a_record_only(path: Path, rotation: Rotation, last: int) -> None:
    write(path, 1, last, rotation, head=True)
    if len(earlier_files(path)) == 0:
        assert path.stat().st_size > 2 * WHOLE_BYTES
    before = whole(path)
    write(path, last + 1, last + 2, rotation, head=True)
    found = whole(path)
    assert (found.entries, found.total.messages) > (before.entries, 2 * last + 3)
    assert (rounds_of(found), found.total.messages) == (list(range(1, last + 3)), 2 * last + 4)
    # The end is read as ever: what stands behind the last signature of the part that is read must follow from it.
    content = path.read_bytes()
    place = content.rindex(b'"bytes":') + 8
    path.write_bytes(content[:place] + b"6" + content[place + 1 :])
    with pytest.raises(AuditError, match="is wrong"):
        write(path, last + 3, last + 3, rotation, head=True)


def test_a_long_file_whose_end_was_signed_by_somebody_else_is_refused(tmp_path: Path, path: Path) -> None:
    write(path, 1, 300, Rotation())
    forged = tmp_path / "b.jsonl"
    kept(forged, said(1, 300), ownership(key=OTHER_KEY))
    own, theirs = path.read_bytes().split(b"\n", 1), forged.read_bytes().split(b"\n", 1)
    path.write_bytes(own[0] + b"\n" + theirs[1])
    with pytest.raises(AuditError, match="signature was not made with"):
        write(path, 301, 301, Rotation())


# ---- a record that is shorter than its keeper has noted


def keeper(folder: Path, boot: str = "boot-1") -> Keeper:
    head = Head(head_path(folder / "state", "clinic-a"), folder / "a.jsonl", boot)
    try:
        return Keeper(folder / "a.jsonl", ownership(), PLAN, ticking(), head)
    except BaseException:
        head.close()
        raise


def killed(folder: Path, said: tuple[Said, ...] = ROUNDS, boot: str = "boot-1", synced: int = 0) -> None:
    """Record messages and let the process end without a word; the disk was waited for after `synced` of them."""
    one = keeper(folder, boot)
    for number, (raw, what, occasion) in enumerate(said, 1):
        one.message(raw, what, occasion)
        if number == synced:
            one.sync()
    one._file.close()
    one._head.close()


@pytest.mark.parametrize("closed", [True, False])
def test_a_record_that_was_cut_off_anywhere_is_refused_with_both_numbers(tmp_path: Path, closed: bool) -> None:
    if closed:
        one = keeper(tmp_path)
        for raw, what, occasion in ROUNDS:
            one.message(raw, what, occasion)
        one.close()
    else:
        killed(tmp_path)
    record = tmp_path / "a.jsonl"
    whole = record.read_bytes()
    lines = whole.splitlines(keepends=True)
    for count in range(len(lines)):
        record.write_bytes(b"".join(lines[:count]))
        with pytest.raises(AuditError, match=f"ends with entry {count}, it once had {len(lines)}") as refusal:
            keeper(tmp_path)
        assert "keep the file as evidence" in refusal.value.remedy
        assert "egress-head" in refusal.value.remedy
        assert record.read_bytes() == b"".join(lines[:count])
    record.write_bytes(whole)
    keeper(tmp_path).close()
    assert read(record.read_bytes()).closed


def test_a_record_that_was_written_anew_with_as_many_entries_is_refused(tmp_path: Path) -> None:
    killed(tmp_path)
    (tmp_path / "a.jsonl").unlink()
    other = Keeper(tmp_path / "a.jsonl", ownership(), PLAN, ticking())
    for _ in range(2):
        for raw, what, occasion in ROUNDS:
            other.message(raw + b"!", what, occasion)
    other.close()
    with pytest.raises(AuditError, match="not the entry that the checkpoint tells of"):
        keeper(tmp_path)


def test_an_entry_that_is_in_the_record_but_not_yet_noted_is_no_fault(tmp_path: Path) -> None:
    killed(tmp_path, ROUNDS[:4])
    note = head_path(tmp_path / "state", "clinic-a")
    before = note.read_bytes()
    killed(tmp_path, ROUNDS[4:5])
    note.write_bytes(before)
    keeper(tmp_path).close()


def test_a_record_that_was_cut_off_is_refused_after_its_folder_has_moved_with_the_note(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    killed(before)
    before.rename(after)
    record = after / "a.jsonl"
    whole = record.read_bytes()
    record.write_bytes(b"".join(whole.splitlines(keepends=True)[:-3]))
    with pytest.raises(AuditError, match="its end was cut off"):
        keeper(after)
    assert read_head(head_path(after / "state", "clinic-a")).record == str(record.resolve())
    record.write_bytes(whole)
    keeper(after).close()


def test_after_a_power_failure_only_entries_that_the_disk_was_waited_for_are_asked_for(tmp_path: Path) -> None:
    killed(tmp_path, ROUNDS, synced=4)
    record = tmp_path / "a.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    noted = read_head(head_path(tmp_path / "state", "clinic-a"))
    (on_disk, _), (written, _) = noted.on_disk, noted.written
    assert 0 < on_disk < written == len(lines)
    record.write_bytes(b"".join(lines[: on_disk - 1]))
    for boot in ("boot-1", "boot-2"):
        with pytest.raises(AuditError, match="its end was cut off"):
            keeper(tmp_path, boot)
    record.write_bytes(b"".join(lines[:on_disk]))
    with pytest.raises(AuditError, match="its end was cut off"):
        keeper(tmp_path, "boot-1")
    keeper(tmp_path, "boot-2").close()


def test_a_note_of_another_record_is_begun_anew_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    killed(tmp_path)
    note = head_path(tmp_path / "state", "clinic-a")
    other = Head(note, tmp_path / "other.jsonl", "boot-1")
    assert other.expected is None
    other.close()
    note.write_bytes(note.read_bytes()[:-3])
    with pytest.raises(AuditError, match="egress-head is not the note of a record"):
        keeper(tmp_path)
    assert note.stat().st_mode & 0o777 == 0o600
    assert "\n" not in present_boot()
