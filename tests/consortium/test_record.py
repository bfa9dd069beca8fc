"""A hub can neither invent an act, nor leave one out, nor show another past."""

from pathlib import Path

import pytest

from fedfair.consortium.acts import ActKind
from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.consortium.members import parse_consortium
from fedfair.consortium.record import ActRecord
from fedfair.consortium.record_file import RecordFile
from fedfair.consortium.studies import StudyPhase
from tests.consortium.consortium_makers import ROLES, Play, consortium, listed


def lived() -> Play:
    found = Play()
    found.done(ActKind.SUBMITTED, "bert")
    found.approved("clinic-a", "clinic-b", "clinic-c")
    found.done(ActKind.STARTED, "aggregator")
    return found


def refused(record: ActRecord, *entries: bytes) -> RecordCheck:
    with pytest.raises(ConsortiumError) as caught:
        record.extend_all(entries)
    return caught.value.check


def test_a_member_that_follows_comes_to_the_same_studies_and_head() -> None:
    hub, member = lived(), ActRecord(consortium())
    member.extend_all(hub.lines)
    assert member.head == hub.record.head
    assert member.studies == hub.record.studies
    assert member.studies["stroke"].phase is StudyPhase.RUNNING
    member.check_includes(hub.lines[3])


def test_an_act_that_is_left_out_is_found() -> None:
    hub = lived()
    assert refused(ActRecord(consortium()), *hub.lines[:2], hub.lines[3]) is RecordCheck.NUMBER
    assert refused(ActRecord(consortium()), *hub.lines[1:]) is RecordCheck.NUMBER
    member = ActRecord(consortium())
    member.extend_all(hub.lines[:2])
    with pytest.raises(ConsortiumError) as caught:
        member.check_includes(hub.lines[4])
    assert caught.value.check is RecordCheck.LEFT_OUT


def test_a_hub_that_writes_another_past_is_found_by_who_knows_the_first() -> None:
    hub, other = lived(), Play()
    other.done(ActKind.SUBMITTED, "bert", words="another question")
    other.approved("clinic-a")
    member = ActRecord(consortium())
    member.extend_all(hub.lines[:2])
    assert refused(member, other.lines[2]) is RecordCheck.CHAIN
    with pytest.raises(ConsortiumError) as caught:
        member.check_includes(other.lines[1])
    assert caught.value.check is RecordCheck.PAST


def test_a_hub_that_shows_two_pasts_is_found_as_soon_as_an_act_of_one_comes_into_the_other() -> None:
    one, other = Play(), Play()
    one.done(ActKind.SUBMITTED, "bert")
    other.done(ActKind.SUBMITTED, "bert", words="for others")
    assert refused(other.record, other.entry(one.act(ActKind.APPROVED, "clinic-a"))) is RecordCheck.PAST


@pytest.mark.parametrize("forger", ["aggregator", "clinic-b"])
def test_an_act_that_its_author_has_not_signed_is_refused(forger: str) -> None:
    hub = lived()
    forged = hub.act(ActKind.WITHDRAWN, "clinic-a", signed_by=forger)
    assert refused(hub.record, hub.entry(forged)) is RecordCheck.SIGNATURE


def test_an_entry_that_the_hub_has_not_signed_is_refused() -> None:
    hub = lived()
    entry = hub.entry(hub.act(ActKind.WITHDRAWN, "clinic-a"), signed_by="bert")
    assert refused(hub.record, entry) is RecordCheck.SIGNATURE


def test_an_act_is_in_the_record_once() -> None:
    hub = Play()
    hub.done(ActKind.SUBMITTED, "bert")
    again = hub.act(ActKind.REFUSED, "clinic-a")
    hub.add(again)
    assert refused(hub.record, hub.entry(again)) is RecordCheck.REPLAY


def test_an_act_of_another_federation_is_refused() -> None:
    hub = lived()
    assert (
        refused(hub.record, hub.entry(hub.act(ActKind.WITHDRAWN, "clinic-a", federation="lung")))
        is RecordCheck.FEDERATION
    )


def test_every_byte_of_an_entry_counts() -> None:
    hub = Play()
    hub.done(ActKind.SUBMITTED, "bert")
    entry = hub.entry(hub.act(ActKind.REFUSED, "clinic-a"))
    head = hub.record.head
    for place in range(0, len(entry), 3):
        refused(hub.record, entry[:place] + bytes([entry[place] ^ 1]) + entry[place + 1 :])
    assert hub.record.head == head
    hub.record.extend(entry)


def test_the_list_that_the_lead_gave_by_hand_has_to_be_in_the_record() -> None:
    hub = Play()
    hub.done(ActKind.MEMBERS, "anna", payload=listed(number=3, roles={**ROLES, "emil": "observer"}))
    assert refused(ActRecord(consortium(number=2)), *hub.lines) is RecordCheck.MEMBERS
    assert refused(ActRecord(consortium(number=3)), *hub.lines) is RecordCheck.MEMBERS
    assert refused(ActRecord(consortium(federation="lung")), *hub.lines) is RecordCheck.MEMBERS
    early = ActRecord(consortium(number=4))
    early.extend_all(hub.lines)
    assert early.consortium.number == 4
    late = ActRecord(parse_consortium(listed(number=3, roles={**ROLES, "emil": "observer"})))
    late.extend_all(hub.lines)
    assert late.consortium.member("emil").role.value == "observer"


def test_a_list_that_does_not_follow_is_refused() -> None:
    hub = Play()
    again = hub.act(ActKind.MEMBERS, "anna", payload=listed(roles={**ROLES, "emil": "lead", "anna": "site"}))
    assert refused(hub.record, hub.entry(again)) is RecordCheck.MEMBERS
    same = hub.act(ActKind.MEMBERS, "anna", payload=listed(roles={**ROLES, "emil": "site"}))
    assert refused(hub.record, hub.entry(same)) is RecordCheck.MEMBERS
    broken = hub.act(ActKind.MEMBERS, "anna", payload=b"number: 7\n")
    assert refused(hub.record, hub.entry(broken)) is RecordCheck.PAYLOAD


def test_a_new_lead_is_named_by_the_one_before_and_acts_from_then_on() -> None:
    hub = Play()
    roles = {**ROLES, "anna": "observer", "bert": "lead"}
    hub.done(ActKind.MEMBERS, "anna", payload=listed(number=2, roles=roles, signed_by="anna"))
    third = listed(number=3, roles=roles, signed_by="anna")
    assert refused(hub.record, hub.entry(hub.act(ActKind.MEMBERS, "anna", payload=third))) is RecordCheck.ROLE
    hub.done(ActKind.MEMBERS, "bert", payload=listed(number=3, roles=roles, signed_by="bert"))


def test_a_record_on_the_disk_is_verified_again_and_a_cut_line_is_dropped(tmp_path: Path) -> None:
    hub, kept = lived(), RecordFile(tmp_path / "record.jsonl")
    record = kept.load(consortium())
    kept.append(record, hub.lines[:3])
    with kept.path.open("ab") as file:
        file.write(hub.lines[3][:50])
    again = kept.load(consortium())
    assert again.number == 3
    kept.append(again, hub.lines[3:])
    assert kept.load(consortium()).head == hub.record.head
    assert list(kept.lines(after=4)) == hub.lines[4:]
    kept.append(again, [hub.lines[2]])
    assert kept.load(consortium()).head == hub.record.head
    kept.path.write_bytes(kept.path.read_bytes().replace(b"why not", b"why yes"))
    with pytest.raises(ConsortiumError, match=r"record\.jsonl:2"):
        kept.load(consortium())


def test_two_processes_may_append_to_one_file(tmp_path: Path) -> None:
    hub, kept = lived(), RecordFile(tmp_path / "record.jsonl")
    service, command = kept.load(consortium()), kept.load(consortium())
    kept.append(service, hub.lines[:3])
    kept.append(command, hub.lines[:4])
    kept.append(service, hub.lines[3:])
    assert service.head == hub.record.head
    assert kept.load(consortium()).head == hub.record.head
    other = Play()
    other.done(ActKind.SUBMITTED, "bert", words="another question")
    with pytest.raises(ConsortiumError) as caught:
        kept.append(service, other.lines)
    assert caught.value.check is RecordCheck.PAST
