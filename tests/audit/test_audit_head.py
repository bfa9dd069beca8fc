"""A record that is shorter than its keeper has noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedfair.audit.head import Head, head_path, present_boot, read_head
from fedfair.audit.keeper import Keeper
from fedfair.errors import AuditError
from tests.audit.record_makers import PLAN, ROUNDS, Said, ownership, read, ticking


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
    noted = read_head(head_path(after / "state", "clinic-a"))
    assert noted is not None
    assert noted.record == str(record.resolve())
    record.write_bytes(whole)
    keeper(after).close()


def test_after_a_power_failure_only_entries_that_the_disk_was_waited_for_are_asked_for(tmp_path: Path) -> None:
    killed(tmp_path, ROUNDS, synced=4)
    record = tmp_path / "a.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    noted = read_head(head_path(tmp_path / "state", "clinic-a"))
    assert noted is not None
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
