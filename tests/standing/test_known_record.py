"""A site's copy of the record: verified, kept over restarts, and a hub that drops an acknowledged act is found."""

from pathlib import Path

import pytest

from collaborator.standing.known_record import ACKNOWLEDGED_FILE, KnownRecord
from fedfair.consortium.acts import ActKind, parse_act
from fedfair.consortium.faults import ConsortiumError, RecordCheck
from tests.consortium.consortium_makers import Play, consortium


def proposed() -> Play:
    play = Play()
    play.done(ActKind.SUBMITTED, "bert")
    return play


def test_what_was_taken_is_there_after_a_restart(tmp_path: Path) -> None:
    play = proposed()
    KnownRecord(tmp_path, consortium()).extend(play.lines)
    again = KnownRecord(tmp_path, consortium())
    assert again.record.head == play.record.head
    assert parse_act(again.act(2)).kind is ActKind.SUBMITTED


def test_an_acknowledged_act_has_to_come(tmp_path: Path) -> None:
    play, known = proposed(), KnownRecord(tmp_path, consortium())
    known.extend(play.lines)
    known.acknowledge(play.done(ActKind.APPROVED, "clinic-a"))
    other = proposed()
    other.approved("clinic-b")
    # Restarted in between: what was acknowledged is remembered.
    with pytest.raises(ConsortiumError) as caught:
        KnownRecord(tmp_path, consortium()).extend(other.lines[2:])
    assert caught.value.check is RecordCheck.PAST


def test_an_acknowledged_act_that_has_come_is_waited_for_no_more(tmp_path: Path) -> None:
    play, known = proposed(), KnownRecord(tmp_path, consortium())
    known.extend(play.lines)
    known.acknowledge(play.done(ActKind.APPROVED, "clinic-a"))
    known.extend(play.lines[2:])
    assert (tmp_path / ACKNOWLEDGED_FILE).read_bytes() == b""


def test_an_acknowledgement_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConsortiumError) as caught:
        KnownRecord(tmp_path, consortium()).acknowledge(b"yes")
    assert caught.value.check is RecordCheck.FORM
