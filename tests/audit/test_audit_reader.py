"""A record as an attacker finds it: every change is noticed, and the first entry that is wrong is named."""

import hashlib
import json
import typing
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.audit.chain import START, next_chain
from fedfair.audit.entry import (
    CONNECTION,
    MAX_LINE_BYTES,
    Message,
    Signed,
    body_of,
    line_of,
    message_body,
    parse_line,
    signed_body,
)
from fedfair.audit.entry import Purpose as SumPurpose
from fedfair.audit.items import MessageKind, StreamItems
from fedfair.audit.keeper import AT_CONNECTION, Occasion
from fedfair.audit.reader import MAX_TORN_BYTES, MessageGroup, MessageTally, RecordReader, SentMessage
from fedfair.audit.summary import compare, comparison, explanations, rows
from fedfair.errors import AuditError
from fedfair.ids import SumNumber
from fedfair.policy.refusal_reasons import RefusalReason
from fedfair.secagg.messages import Kind, begin
from fedfair.statistics.table import Purpose
from fedfair.wire.frames import (
    Abstain,
    Chunk,
    CollaboratorFrame,
    Ended,
    Hello,
    SecaggMessage,
    UploadStart,
    Witnessed,
)
from tests.audit.record_makers import KEY, OTHER_KEY, OTHER_PLAN, PLAN, ROUNDS, Said, kept, ownership, read


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """One opened entry, an introduction, three rounds of three messages, each signed: fifteen entries."""
    return kept(tmp_path_factory.mktemp("whole") / "clinic-a.jsonl")


def test_a_record_follows_from_a_few_lines_of_other_code(whole: bytes) -> None:
    # An independent reading: JSON, SHA-256 and Ed25519 by hand, as docs/reference/egress.md spells them.
    def framed(label: str, *fields: bytes) -> bytes:
        parts = [len(fields).to_bytes(4, "big"), *(len(field).to_bytes(4, "big") + field for field in fields)]
        return label.encode() + b"\0" + b"".join(parts)

    chain, signatures = bytes(32), 0
    for number, line in enumerate(whole.splitlines(), 1):
        fields = json.loads(line)
        assert fields["entry"] == number
        own = {name: value for name, value in fields.items() if name not in {"chain", "signature"}}
        spelt = json.dumps(own, separators=(",", ":")).encode()
        chain = hashlib.sha256(framed("fedfair/egress-entry/v1", chain, spelt)).digest()
        assert fields["chain"] == chain.hex()
        if fields["kind"] == "signed":
            message = framed("fedfair/egress-signature/v1", b"heart", b"clinic-a", b"clinic-a", chain)
            KEY.public_key().verify(bytes.fromhex(fields["signature"]), message)
            with pytest.raises(InvalidSignature):
                OTHER_KEY.public_key().verify(bytes.fromhex(fields["signature"]), message)
            signatures += 1
    assert (number, signatures) == (15, 4)
    found = read(whole)
    assert (found.entries, found.signatures, found.chain) == (15, 4, chain)


def test_what_was_sent_is_counted_by_sum_and_kind(whole: bytes) -> None:
    found = read(whole)
    assert found.names == ("heart", "clinic-a", "clinic-a")
    assert found.total == MessageTally(len(ROUNDS), sum(len(raw) for raw, _, _ in ROUNDS))
    assert found.groups[MessageGroup(PLAN, CONNECTION, 0, 0, "introduction")] == MessageTally(1, 5)
    assert found.groups[MessageGroup(PLAN, "training", 2, 1, "masked vector")] == MessageTally(1, 102)
    assert set(found.sent) == {
        SentMessage(PLAN, len(raw), hashlib.sha256(raw).hexdigest()) for raw, _, _ in ROUNDS
    }
    assert (found.unsigned, found.closed, found.torn, found.tail) == (0, True, [], b"")


LINES = Callable[[list[bytes]], list[bytes]]
CHANGES: dict[str, tuple[LINES, int, str]] = {
    "a byte of a digest": (
        lambda lines: _replaced(lines, 8, b'"sha256":"', b'"sha256":"0'),
        9,
        "is not as it must",
    ),
    "a length": (lambda lines: _replaced(lines, 8, b'"bytes":102', b'"bytes":101'), 9, "chain value"),
    "a word": (lambda lines: _replaced(lines, 8, b"masked vector", b"mask shares"), 9, "chain value"),
    "a time": (lambda lines: _replaced(lines, 8, b"T12:00", b"T13:00"), 9, "chain value"),
    "an entry removed": (lambda lines: lines[:6] + lines[7:], 7, "removed"),
    "the first entry removed": (lambda lines: lines[1:], 1, "removed"),
    "a signature removed": (lambda lines: lines[:5] + lines[6:], 6, "removed"),
    "two entries exchanged": (lambda lines: [*lines[:6], lines[7], lines[6], *lines[8:]], 7, "removed"),
    "an entry twice": (lambda lines: lines[:7] + lines[6:], 8, "inserted"),
    "another signature": (lambda lines: _replaced(lines, 2, b'"signature":"', b'"signature":"00'), 3, "no entry"),
    "a signature of before": (lambda lines: _signature_of(lines, 14, 10), 15, "was not made with"),
    "a signature where none belongs": (lambda lines: _signed(lines, 8), 9, "none belongs"),
    "a line too long": (lambda lines: [*lines[:6], b"x" * MAX_LINE_BYTES + b"\n", *lines[6:]], 7, "longer"),
    "a line without end": (lambda lines: [*lines[:6], b"[" * (MAX_TORN_BYTES + 1)], 7, "longer"),
    "a zero byte": (lambda lines: _replaced(lines, 8, b"training", b"train\0ng"), 9, "no entry"),
    "bytes that are no text": (lambda lines: _replaced(lines, 8, b"training", b"tr\xff\xfening"), 9, "no entry"),
    "an escape sequence": (lambda lines: _replaced(lines, 8, b"masked vector", b"\x1b[2J"), 9, "no entry"),
    "the same, escaped": (lambda lines: _replaced(lines, 8, b"masked vector", b"\\u001b[2J"), 9, "what is not"),
    "a key twice": (lambda lines: _replaced(lines, 8, b'"round":2', b'"round":9,"round":2'), 9, "one spelling"),
    "a space": (lambda lines: _replaced(lines, 8, b'"round":2', b'"round": 2'), 9, "one spelling"),
    "true for one": (lambda lines: _replaced(lines, 8, b'"attempt":1', b'"attempt":true'), 9, "attempt is not"),
    "a real number": (lambda lines: _replaced(lines, 8, b'"attempt":1', b'"attempt":1.0'), 9, "attempt"),
    "a huge number": (lambda lines: _replaced(lines, 8, b'"attempt":1', b'"attempt":1' + b"0" * 99), 9, "attempt"),
    "a key of its own": (lambda lines: _replaced(lines, 8, b'"round":2', b'"round":2,"age":4'), 9, "no entry"),
    "an empty line": (lambda lines: [*lines[:6], b"\n", *lines[6:]], 7, "no entry"),
    "Windows line ends": (lambda lines: [line[:-1] + b"\r\n" for line in lines], 1, "no entry"),
    "something behind the end": (lambda lines: [*lines, lines[6]], 16, "removed"),
}


@pytest.mark.parametrize(("change", "number", "words"), CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_record_is_refused_at_its_first_wrong(
    whole: bytes, change: LINES, number: int, words: str
) -> None:
    with pytest.raises(AuditError) as caught:
        read(b"".join(change(whole.splitlines(keepends=True))))
    assert caught.value.message.startswith(f"entry {number} is wrong: ")
    assert words in caught.value.message
    assert caught.value.message.isprintable()


OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(
    number=st.integers(1, 2**63 - 1),
    time=st.datetimes(timezones=st.just(UTC) | OFFSETS),
    purpose=st.sampled_from([CONNECTION, *Purpose]),
    what=st.sampled_from(MessageKind),
    digest=st.binary(min_size=32, max_size=32),
    closing=st.booleans(),
)
def test_what_a_keeper_writes_is_the_one_spelling_of_it(
    number: int, time: datetime, purpose: SumPurpose, what: MessageKind, digest: bytes, closing: bool
) -> None:
    size, about = number // 2, (purpose, number // 3, number // 5)
    body = message_body(number, time, PLAN, about, what, size, digest)
    fields = dict(zip(("purpose", "round", "attempt"), about, strict=True))
    told = Message(entry=number, time=time, plan=PLAN, **fields, what=what, bytes=size, sha256=digest.hex())
    assert body == body_of(told)
    signed = Signed(entry=number, time=time, messages=size, bytes=number, closing=closing)
    assert signed_body(number, time, size, number, closing=closing) == body_of(signed)


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_no_byte_of_a_record_can_be_another_one(whole: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda value: value != whole[place]))
    changed = whole[:place] + bytes([other]) + whole[place + 1 :]
    try:
        found = read(changed)
    except AuditError:
        return
    # Only the very last line end can go: then the last line is one that was never finished, and is no entry.
    assert (place, found.entries, found.closed) == (len(whole) - 1, 14, False)
    assert found.tail


def test_somebody_who_computes_the_chain_anew_cannot_sign_it(whole: bytes, tmp_path: Path) -> None:
    forged = kept(tmp_path / "forged.jsonl", [(raw[:1], what, when) for raw, what, when in ROUNDS])
    lines, theirs = forged.splitlines(keepends=True), whole.splitlines(keepends=True)
    with pytest.raises(AuditError, match="entry 3 is wrong: its signature was not made with ed25519"):
        read(b"".join(_signature_from(lines, theirs)))


def test_an_end_that_was_cut_off_is_noticed_by_what_is_missing_there(whole: bytes) -> None:
    lines = whole.splitlines(keepends=True)
    for count in range(1, len(lines)):
        found = read(b"".join(lines[:count]))
        assert not found.closed, "a process that shut down cleanly says so in its last entry"
    before, full = read(b"".join(lines[:11])), read(whole)
    read(whole, (before.entries, before.chain))
    read(whole, (full.entries, full.chain))
    with pytest.raises(AuditError, match="ends with entry 11, it once had 15: its end was cut off"):
        read(b"".join(lines[:11]), (full.entries, full.chain))


def test_a_record_that_was_written_anew_is_not_the_one_of_the_checkpoint(whole: bytes, tmp_path: Path) -> None:
    anew = kept(tmp_path / "anew.jsonl", ROUNDS[:-1])
    with pytest.raises(AuditError, match="entry 14 is wrong: it is not the entry that the checkpoint tells of"):
        read(anew, (14, read(b"".join(whole.splitlines(keepends=True)[:14])).chain))


def test_a_part_of_another_site_or_key_cannot_be_appended(whole: bytes, tmp_path: Path) -> None:
    for other in (ownership("clinic-b"), ownership(keeper="aggregator"), ownership(key=OTHER_KEY)):
        path = tmp_path / f"{other.participant}-{other.keeper}-{other.key is KEY}.jsonl"
        with pytest.raises(AuditError, match="entry 16 is wrong: it has number 1"):
            read(whole + kept(path, owner=other))


def test_an_empty_file_is_nobodys_record() -> None:
    with pytest.raises(AuditError, match="the record is empty"):
        _ = read(b"").names


@given(raw=st.binary(min_size=12), what=st.sampled_from(MessageKind), number=st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_an_entry_tells_length_and_digest_of_a_message_and_nothing_of_its_content(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, what: MessageKind, number: int
) -> None:
    content = kept(
        tmp_path_factory.mktemp("one") / "a.jsonl", [(raw, what, Occasion(Purpose.TRAINING, number, 1))]
    )
    line = content.splitlines(keepends=True)[1]
    told = parse_line(line).entry.model_dump(mode="json")
    assert (told.pop("bytes"), told.pop("sha256")) == (len(raw), hashlib.sha256(raw).hexdigest())
    assert told == {
        "entry": 2, "kind": "message", "time": "2026-01-31T12:00:01Z", "plan": PLAN, "purpose": "training",
        "round": number, "attempt": 1, "what": what.value,
    }  # fmt: skip
    assert len(line) < MAX_LINE_BYTES


@given(
    junk=st.lists(
        st.one_of(
            st.binary(max_size=80), st.sampled_from([b"\n", b"~\n", b'{"entry":1', b"}", b'"kind":"opened",'])
        ),
        max_size=20,
    ),
    place=st.integers(0, 15),
)
@settings(max_examples=70, deadline=None)
def test_whatever_a_file_holds_there_is_one_refusal(whole: bytes, junk: list[bytes], place: int) -> None:
    lines = whole.splitlines(keepends=True)
    for content in (b"".join(junk), b"".join([*lines[:place], *junk, *lines[place:]])):
        try:
            found = read(content)
        except AuditError:
            continue
        assert found.entries <= 15


def test_a_key_that_is_none_is_refused_like_any_other_change(whole: bytes) -> None:
    opened, rest = whole.split(b"\n", 1)
    fields = json.loads(opened)
    # The same 32 bytes in another spelling of base64, with a chain that fits.
    fields["key"] = fields["key"][:-2] + chr(ord(fields["key"][-2]) + 1) + "="
    body = json.dumps({name: value for name, value in fields.items() if name != "chain"}, separators=(",", ":"))
    line = line_of(body.encode(), next_chain(START, body.encode()), None)
    with pytest.raises(AuditError, match="entry 1 is wrong: its key is no signing key"):
        read(line + rest)


def _replaced(lines: list[bytes], index: int, old: bytes, new: bytes) -> list[bytes]:
    assert old in lines[index]
    return [*lines[:index], lines[index].replace(old, new, 1), *lines[index + 1 :]]


def _signature(line: bytes) -> bytes:
    return line[line.index(b',"signature"') :]


def _signature_of(lines: list[bytes], index: int, other: int) -> list[bytes]:
    own = _signature(lines[index])
    return [*lines[:index], lines[index].replace(own, _signature(lines[other])), *lines[index + 1 :]]


def _signature_from(lines: list[bytes], theirs: list[bytes]) -> list[bytes]:
    return [
        line.replace(_signature(line), _signature(other)) if b'"signature"' in line else line
        for line, other in zip(lines, theirs, strict=True)
    ]


def _signed(lines: list[bytes], index: int) -> list[bytes]:
    return _replaced(lines, index, b"}\n", b',"signature":"' + b"00" * 64 + b'"}\n')


# ---- what a message is called: every frame that a collaborator has, and whatever else may arrive

FRAMES: dict[type[CollaboratorFrame], tuple[CollaboratorFrame, MessageKind]] = {
    Hello: (Hello(1, "0", bytes(32), b"{}", bytes(64)), MessageKind.INTRODUCTION),
    UploadStart: (UploadStart(SumNumber(1), 9, bytes(32)), MessageKind.PLAIN_ANNOUNCEMENT),
    Chunk: (Chunk(b"piece"), MessageKind.OUT_OF_PLACE),
    Abstain: (Abstain(SumNumber(1), RefusalReason.POLICY), MessageKind.ABSTENTION),
    SecaggMessage: (SecaggMessage(begin(Kind.CONSISTENCY_CHECK).done()), MessageKind.VOTE),
    Ended: (Ended(bytes(32)), MessageKind.END),
    Witnessed: (Witnessed(b"{}"), MessageKind.CHECKPOINT),
}


def test_every_frame_that_a_collaborator_has_is_called_something() -> None:
    assert set(typing.get_args(CollaboratorFrame)) == FRAMES.keys()
    for frame, item in FRAMES.values():
        assert StreamItems().next(frame) is item


def test_a_chunk_is_a_piece_of_what_was_announced_before_it() -> None:
    items, chunk = StreamItems(), Chunk(b"piece")
    upload = SecaggMessage(begin(Kind.UPLOAD).done(), 9)
    said = (chunk, upload, chunk, chunk, FRAMES[UploadStart][0], chunk, chunk, FRAMES[Abstain][0], chunk)
    assert [items.next(frame) for frame in said] == [
        MessageKind.OUT_OF_PLACE, MessageKind.SEALED_SHARES, MessageKind.MASKED_VECTOR,
        MessageKind.MASKED_VECTOR, MessageKind.PLAIN_ANNOUNCEMENT, MessageKind.PLAIN_CONTRIBUTION,
        MessageKind.PLAIN_CONTRIBUTION, MessageKind.ABSTENTION, MessageKind.OUT_OF_PLACE,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", Kind)
def test_what_only_the_aggregator_says_is_out_of_place_in_a_collaborator_s_mouth(kind: Kind) -> None:
    own = {
        Kind.KEY_ADVERTISEMENT, Kind.REVEAL, Kind.CONFIRM, Kind.UPLOAD, Kind.PAIR_MASKS,
        Kind.CONSISTENCY_CHECK, Kind.UNMASK_SHARES,
    }  # fmt: skip
    item = StreamItems().next(SecaggMessage(begin(kind).done()))
    assert (item is MessageKind.OUT_OF_PLACE) == (kind not in own)


@given(message=st.binary(min_size=1, max_size=40))
def test_junk_is_called_something_too(message: bytes) -> None:
    assert StreamItems().next(SecaggMessage(message)) in MessageKind
    assert StreamItems().next(None) is MessageKind.OUT_OF_PLACE


def test_every_word_is_explained_and_can_be_printed() -> None:
    assert all(kind.content for kind in MessageKind)
    assert all(item.value.isprintable() and item.value.isascii() for item in MessageKind)


# ---- a site's record beside the aggregator's mirror: what arrived, what was lost, and what should not be there

MIRROR = ownership(keeper="aggregator")
NOTHING = MessageTally(0, 0)


def mirrored(path: Path, said: tuple[Said, ...], plan: str = PLAN) -> RecordReader:
    return read(kept(path, said, MIRROR, plan))


def test_what_arrived_as_it_was_sent_agrees_in_any_order(tmp_path: Path) -> None:
    site = read(kept(tmp_path / "a.jsonl"))
    found = compare(site, [mirrored(tmp_path / "m.jsonl", ROUNDS[::-1])])
    assert (found.agreed, found.lost, found.foreign, found.plans) == (site.total, NOTHING, NOTHING, (PLAN,))
    assert "every message that is recorded arrived" in list(comparison(found))


@given(
    sent=st.lists(st.binary(max_size=3), max_size=8),
    arrived=st.lists(st.binary(max_size=3), min_size=1, max_size=8),
)
@settings(max_examples=25, deadline=None)
def test_equal_messages_are_counted_and_not_taken_for_one(
    tmp_path_factory: pytest.TempPathFactory, sent: list[bytes], arrived: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("two")

    def messages(raws: list[bytes]) -> tuple[Said, ...]:
        return tuple((raw, MessageKind.VOTE, AT_CONNECTION) for raw in raws)

    found = compare(
        read(kept(folder / "a.jsonl", messages(sent))), [mirrored(folder / "m.jsonl", messages(arrived))]
    )
    # The slow way: cross out, one by one.
    lost, foreign = list(sent), []
    for raw in arrived:
        if raw in lost:
            lost.remove(raw)
        else:
            foreign.append(raw)
    assert found.lost == MessageTally(len(lost), len(b"".join(lost)))
    assert found.foreign == MessageTally(len(foreign), len(b"".join(foreign)))
    assert found.agreed.messages == (Counter(sent) & Counter(arrived)).total()


def test_a_record_whose_end_was_cut_off_lacks_what_arrived(tmp_path: Path) -> None:
    lines = kept(tmp_path / "a.jsonl").splitlines(keepends=True)
    mirror = mirrored(tmp_path / "m.jsonl", ROUNDS)
    found = compare(read(b"".join(lines[:11])), [mirror])
    assert found.foreign == MessageTally(3, sum(len(raw) for raw, _, _ in ROUNDS[-3:]))


def test_a_record_over_several_plans_is_compared_over_those_of_the_mirrors(tmp_path: Path) -> None:
    kept(tmp_path / "a.jsonl")
    site = read(kept(tmp_path / "a.jsonl", ROUNDS[:4], plan=OTHER_PLAN))
    first, second = (
        mirrored(tmp_path / "m.jsonl", ROUNDS[1:]),
        mirrored(tmp_path / "n.jsonl", ROUNDS[:4], OTHER_PLAN),
    )
    assert compare(site, [first]).lost == MessageTally(1, len(ROUNDS[0][0]))
    both = compare(site, [first, second])
    assert (both.lost.messages, both.foreign, both.plans) == (1, NOTHING, (PLAN, OTHER_PLAN))
    # The same bytes under another plan are another message.
    assert compare(site, [mirrored(tmp_path / "o.jsonl", ROUNDS, OTHER_PLAN)]).foreign.messages == len(ROUNDS) - 4


def test_two_files_that_are_not_both_sides_of_the_same_messages_are_not_compared(tmp_path: Path) -> None:
    site, mirror = read(kept(tmp_path / "a.jsonl")), mirrored(tmp_path / "m.jsonl", ROUNDS)
    of_another = read(kept(tmp_path / "b.jsonl", owner=ownership("clinic-b", "aggregator")))
    for first, second, words in (
        (mirror, mirror, "is a mirror itself"),
        (site, site, "kept by clinic-a; the record is of clinic-a"),
        (site, of_another, "about clinic-b of 'heart'"),
        (site, mirrored(tmp_path / "e.jsonl", ()), "holds no message"),
    ):
        with pytest.raises(AuditError, match=words):
            compare(first, [second])


def test_rows_are_by_purpose_or_by_sum_and_add_up(tmp_path: Path) -> None:
    retried = (b"again", MessageKind.MASKED_VECTOR, Occasion(Purpose.TRAINING, 3, 2))
    found = read(kept(tmp_path / "a.jsonl", (*ROUNDS, retried)))
    by_purpose = list(rows(found.groups, by_round=False))
    assert [(row.purpose, row.rounds, row.what, row.total.messages) for row in by_purpose] == [
        ("connection", "", "introduction", 1),
        ("training", "1 to 3", "sealed shares", 3),
        ("training", "1 to 3", "masked vector", 4),
        ("training", "1 to 3", "mask shares", 3),
    ]
    by_sum = list(rows(found.groups, by_round=True))
    assert [row.rounds for row in by_sum if row.what == "masked vector"] == ["1", "2", "3", "3, attempt 2"]
    for shown in (by_purpose, by_sum):
        assert sum(row.total.bytes for row in shown) == found.total.bytes
    assert [what for what, _ in explanations(found.groups)] == [row.what for row in by_purpose]
