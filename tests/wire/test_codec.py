"""The border: every frame goes there and back, and nothing but a frame gets in."""

import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.errors import RemoteProtocolError
from fedfair.ids import SumNumber
from fedfair.policy.refusal_reasons import ACCUSING, RefusalReason
from fedfair.statistics.table import Purpose
from fedfair.wire import codec, frames, service
from fedfair.wire.limits import (
    MAX_APPROVAL_BYTES,
    MAX_ATTEMPT,
    MAX_CHUNK_BYTES,
    MAX_FRAME_BYTES,
    MAX_MEMBER,
    MAX_ROUND,
    MAX_SECONDS,
    MAX_SUM_NUMBER,
    MAX_VECTOR_BYTES,
)
from fedfair.wire.v1 import federation_pb2 as pb

Codec = tuple[Callable[[frames.Frame], bytes], Callable[[bytes], frames.Frame]]

COLLABORATOR: Codec = (codec.encode_collaborator_frame, codec.decode_collaborator_frame)
AGGREGATOR: Codec = (codec.encode_aggregator_frame, codec.decode_aggregator_frame)
REQUEST: Codec = (codec.encode_check_request, codec.decode_check_request)
REPLY: Codec = (codec.encode_check_reply, codec.decode_check_reply)
CODECS = (COLLABORATOR, AGGREGATOR, REQUEST, REPLY)

digests = st.binary(min_size=32, max_size=32)
texts = st.text(st.characters(codec="utf-8"), max_size=600)
names = st.text(st.characters(codec="utf-8"), max_size=80)
sum_numbers = st.integers(1, MAX_SUM_NUMBER).map(SumNumber)
rounds = st.integers(1, MAX_ROUND)
approvals = st.binary(max_size=MAX_APPROVAL_BYTES)
bindings = st.binary(min_size=64, max_size=64)
versions = st.integers(1, 2**32 - 1)
lengths = st.integers(1, MAX_VECTOR_BYTES)

run_ids = st.binary(min_size=16, max_size=16).map(bytes.hex)
chunk_frames = st.builds(frames.Chunk, st.binary(min_size=1, max_size=300))
collaborator_frames = st.one_of(
    st.builds(frames.Hello, versions, names, digests, approvals, bindings),
    st.builds(
        lambda number, run, done, state: frames.Hello(
            1, "0", DIGEST, b"{}", bytes(64), b"", number, run, done, state
        ),
        sum_numbers,
        run_ids,
        rounds,
        digests,
    ),
    st.builds(frames.UploadStart, sum_numbers, lengths, digests),
    chunk_frames,
    st.builds(frames.Abstain, sum_numbers, st.sampled_from(RefusalReason), st.booleans()),
    st.builds(
        frames.Abstain,
        sum_numbers,
        st.sampled_from(sorted(ACCUSING, key=lambda reason: reason.name)),
        st.just(False),
        st.integers(0, MAX_MEMBER),
    ),
    st.builds(frames.Ended, digests, st.binary(max_size=80)),
    st.builds(frames.Witnessed, st.binary(min_size=1, max_size=80)),
)
aggregator_frames = st.one_of(
    st.builds(
        lambda run, total, model: frames.Welcome(run, total // 2, total, bool(model), model),
        run_ids,
        rounds,
        st.just(b"") | digests,
    ),
    st.builds(frames.BroadcastStart, st.sampled_from(frames.BroadcastKind), lengths, digests),
    chunk_frames,
    st.builds(
        frames.SumStart,
        sum_numbers,
        st.sampled_from(Purpose),
        rounds,
        st.integers(1, MAX_ATTEMPT),
        digests,
        st.integers(1, MAX_SECONDS),
    ),
    st.builds(frames.TrustUpdate, st.binary(max_size=300), digests),
    st.builds(frames.Accepted, sum_numbers),
    st.builds(frames.Finished, st.integers(0, MAX_ROUND), texts),
    st.builds(frames.Refused, texts, texts, st.booleans()),
)  # fmt: skip
clocks = st.floats(min_value=0, allow_infinity=False, allow_nan=False)
check_requests = st.builds(frames.CheckRequest, versions, names, digests, approvals, bindings, clocks)
check_items = st.builds(frames.CheckItem, names, st.booleans(), texts)
check_replies = st.lists(check_items, min_size=1, max_size=16).map(lambda items: frames.CheckReply(tuple(items)))
anything = st.one_of(
    st.tuples(st.just(COLLABORATOR), collaborator_frames),
    st.tuples(st.just(AGGREGATOR), aggregator_frames),
    st.tuples(st.just(REQUEST), check_requests),
    st.tuples(st.just(REPLY), check_replies),
)

DIGEST = bytes(range(32))
ONE_OF_EACH: tuple[tuple[Codec, frames.Frame], ...] = (
    (COLLABORATOR, frames.Hello(1, "0.1.0", DIGEST, b'{"plan": "x"}', bytes(range(64)))),
    (
        COLLABORATOR,
        frames.Hello(1, "0", DIGEST, b"{}", bytes(64), DIGEST, SumNumber(MAX_SUM_NUMBER), "0f" * 16, MAX_ROUND,
                     DIGEST),
    ),
    (COLLABORATOR, frames.UploadStart(SumNumber(300), 1 << 20, DIGEST)),
    (COLLABORATOR, frames.Chunk(bytes(range(200)))),
    (COLLABORATOR, frames.Abstain(SumNumber(7), RefusalReason.VALUES)),
    (COLLABORATOR, frames.Abstain(SumNumber(7), RefusalReason.BUDGET, leaving=True)),
    (COLLABORATOR, frames.Abstain(SumNumber(7), RefusalReason.SECAGG_ENVELOPE, accused=300)),
    (COLLABORATOR, frames.SecaggMessage(b"\x01\x07 and more", 488)),
    (COLLABORATOR, frames.Ended(DIGEST)),
    (COLLABORATOR, frames.Ended(DIGEST, b"{}")),
    (COLLABORATOR, frames.Witnessed(b"{}")),
    (AGGREGATOR, frames.SecaggMessage(b"\x01\x06 and more")),
    (AGGREGATOR, frames.Welcome("0123456789abcdef" * 2, 150, 300)),
    (AGGREGATOR, frames.Welcome("0123456789abcdef" * 2, 300, 300, evaluation_only=True, model=DIGEST)),
    (AGGREGATOR, frames.BroadcastStart(frames.BroadcastKind.STATE, 1 << 20, DIGEST)),
    (AGGREGATOR, frames.BroadcastStart(frames.BroadcastKind.TOTALS, 480, DIGEST)),
    (AGGREGATOR, frames.Chunk(bytes(range(200)))),
    (AGGREGATOR, frames.SumStart(SumNumber(300), Purpose.TRAINING, 290, 2, DIGEST, 600)),
    (AGGREGATOR, frames.SumStart(SumNumber(1), Purpose.STANDARDISATION, 0, 1, DIGEST, 600)),
    (AGGREGATOR, frames.SumStart(SumNumber(1), Purpose.EXACT_EVALUATION, 5, 1, DIGEST, 600)),
    (AGGREGATOR, frames.TrustUpdate(b"a list", DIGEST)),
    (AGGREGATOR, frames.Accepted(SumNumber(300))),
    (AGGREGATOR, frames.Finished(300, "all 300 rounds are done")),
    (AGGREGATOR, frames.Refused("another plan", "approve this one", try_again=True)),
    (REQUEST, frames.CheckRequest(1, "0.1.0", DIGEST, b"{}", bytes(64), 1.7e9)),
    (REPLY, frames.CheckReply((frames.CheckItem("clock", True, "2 s off"), frames.CheckItem("plan", False, "")))),
)  # fmt: skip


def names_of_frames(cases: Iterable[tuple[Codec, frames.Frame]]) -> list[str]:
    return [type(frame).__name__ for _, frame in cases]


def test_an_accepted_frame_has_the_bytes_worked_out_by_hand() -> None:
    # AggregatorFrame field 5, length-delimited: 5 << 3 | 2 = 0x2a, 3 bytes; Accepted field 1, varint: 0x08;
    # 300 = 0b10_0101100 -> 0xac 0x02.
    raw = bytes.fromhex("2a 03 08 ac02")
    assert codec.encode_aggregator_frame(frames.Accepted(SumNumber(300))) == raw
    assert codec.decode_aggregator_frame(raw) == frames.Accepted(SumNumber(300))


def test_every_class_of_frame_is_among_the_examples() -> None:
    declared = set(pb.DESCRIPTOR.message_types_by_name) - {"CollaboratorFrame", "AggregatorFrame", "CheckItem"}
    assert set(names_of_frames(ONE_OF_EACH)) == declared


@given(anything)
@settings(deadline=None, max_examples=100)
def test_a_frame_comes_back_as_it_went(case: tuple[Codec, frames.Frame]) -> None:
    (encode, decode), frame = case
    assert decode(encode(frame)) == frame


@pytest.mark.parametrize(("way", "frame"), ONE_OF_EACH, ids=names_of_frames(ONE_OF_EACH))
def test_a_frame_cut_off_anywhere_is_refused(way: Codec, frame: frames.Frame) -> None:
    encode, decode = way
    raw = encode(frame)
    for length in range(len(raw)):
        try:
            shorter = decode(raw[:length])
        except RemoteProtocolError:
            continue
        # The messages without an envelope may end after any field; what then comes out is itself a valid frame.
        assert way in (REQUEST, REPLY)
        assert encode(shorter) == raw[:length]


@pytest.mark.parametrize(("way", "frame"), ONE_OF_EACH, ids=names_of_frames(ONE_OF_EACH))
def test_bytes_after_a_frame_are_refused(way: Codec, frame: frames.Frame) -> None:
    encode, decode = way
    for garbage in (b"\x00", b"\x08\x01", b"\xfa\x01\x00", b"\x80\x7d\x07", bytes(40)):
        with pytest.raises(RemoteProtocolError):
            decode(encode(frame) + garbage)


@pytest.mark.parametrize(("way", "frame"), ONE_OF_EACH[:13], ids=names_of_frames(ONE_OF_EACH[:13]))
def test_an_unknown_field_inside_a_frame_is_refused(way: Codec, frame: frames.Frame) -> None:
    encode, decode = way
    raw = encode(frame)
    envelope = pb.CollaboratorFrame() if way == COLLABORATOR else pb.AggregatorFrame()
    envelope.ParseFromString(raw)
    inner = getattr(envelope, envelope.WhichOneof("body"))
    inner.MergeFromString(b"\xba\x3e\x03abc")  # field 999
    with pytest.raises(RemoteProtocolError, match="this version writes what they mean"):
        decode(envelope.SerializeToString())


def test_two_frames_in_one_are_refused() -> None:
    raw = codec.encode_collaborator_frame(frames.Abstain(SumNumber(1), RefusalReason.POLICY))
    other = codec.encode_collaborator_frame(frames.UploadStart(SumNumber(1), 8, DIGEST))
    for both in (raw + raw, raw + other):
        with pytest.raises(RemoteProtocolError):
            codec.decode_collaborator_frame(both)


def test_a_default_written_out_and_a_padded_number_are_refused() -> None:
    # Abstain{sum_number: 1, reason: 1} written once plainly, once with leaving: false spelled out, once with 1
    # padded to 2 bytes.
    plain = frames.Abstain(SumNumber(1), RefusalReason.PLAN_EVALUATION)
    assert codec.decode_collaborator_frame(bytes.fromhex("22 04 08011001")) == plain
    for raw in ("22 06 080110011800", "22 05 0881001001"):
        with pytest.raises(RemoteProtocolError, match="this version writes what they mean"):
            codec.decode_collaborator_frame(bytes.fromhex(raw))


@pytest.mark.parametrize(
    ("way", "raw"),
    [
        # Abstain{sum_number: 1, reason: 9, leaving: 2}: a truth value has one way to be true.
        (COLLABORATOR, "22 06 080110091802"),
        # The same with 1, its fields in another order.
        (COLLABORATOR, "22 06 100908011801"),
        # CheckItem{name: "a", passed: 7}
        (REPLY, "0a 05 0a01611007"),
    ],
)
def test_a_truth_value_above_one_and_fields_out_of_order_are_refused(way: Codec, raw: str) -> None:
    with pytest.raises(RemoteProtocolError, match="this version writes what they mean in other"):
        way[1](bytes.fromhex(raw))


# Text is made showable as it is read, so two texts may be one.
without_text = st.one_of(
    st.tuples(st.just(COLLABORATOR), st.builds(frames.UploadStart, sum_numbers, lengths, digests)),
    st.tuples(
        st.just(COLLABORATOR),
        st.builds(frames.Abstain, sum_numbers, st.sampled_from(RefusalReason), st.booleans()),
    ),
    st.tuples(
        st.just(AGGREGATOR),
        st.builds(frames.BroadcastStart, st.sampled_from(frames.BroadcastKind), lengths, digests),
    ),
    st.tuples(st.just(AGGREGATOR), st.builds(frames.Accepted, sum_numbers)),
    st.tuples(st.just(AGGREGATOR), st.builds(frames.TrustUpdate, st.binary(max_size=300), digests)),
)


@given(without_text, st.data())
@settings(deadline=None, max_examples=100)
def test_a_frame_has_one_encoding(case: tuple[Codec, frames.Frame], data: st.DataObject) -> None:
    """A byte that is changed is refused, or is another frame; no other bytes are this frame."""
    (encode, decode), frame = case
    raw = bytearray(encode(frame))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255))
    try:
        found = decode(bytes(raw))
    except RemoteProtocolError:
        return
    assert encode(found) == bytes(raw)


def test_a_frame_that_is_too_long_is_refused_unread() -> None:
    with pytest.raises(RemoteProtocolError, match=f"at most {MAX_FRAME_BYTES}"):
        codec.decode_collaborator_frame(bytes(MAX_FRAME_BYTES + 1))


def test_the_longest_chunk_fits_and_one_byte_more_does_not() -> None:
    longest = frames.Chunk(bytes(MAX_CHUNK_BYTES))
    assert codec.decode_collaborator_frame(codec.encode_collaborator_frame(longest)) == longest
    longer = pb.CollaboratorFrame(chunk=pb.Chunk(data=bytes(MAX_CHUNK_BYTES + 1)))
    with pytest.raises(RemoteProtocolError, match=r"Chunk\.data is 1048577 bytes"):
        codec.decode_collaborator_frame(longer.SerializeToString())


def test_an_announced_length_of_exabytes_allocates_nothing() -> None:
    huge = pb.CollaboratorFrame(upload=pb.UploadStart(sum_number=1, length=2**64 - 1, sha256=DIGEST))
    with pytest.raises(RemoteProtocolError, match=r"UploadStart\.length is 18446744073709551615"):
        codec.decode_collaborator_frame(huge.SerializeToString())


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (pb.AggregatorFrame(sum=pb.SumStart(sum_number=1, round=1, attempt=1)), "SumStart.purpose is 0"),
        (pb.AggregatorFrame(sum=pb.SumStart(sum_number=1, purpose=10)), "SumStart.purpose is 10"),
        (
            pb.AggregatorFrame(sum=pb.SumStart(sum_number=1, purpose=1, round=1, attempt=1)),
            "SumStart.state has 0 bytes",
        ),
        (
            pb.AggregatorFrame(welcome=pb.Welcome(run_id="0" * 32, rounds_total=1, evaluation_only=True)),
            "Welcome.model has 0 bytes",
        ),
        (pb.AggregatorFrame(broadcast=pb.BroadcastStart(kind=3, length=1)), "BroadcastStart.kind is 3"),
        (pb.AggregatorFrame(welcome=pb.Welcome(run_id="x" * 5000)), "Welcome.run_id"),
        (pb.AggregatorFrame(refused=pb.Refused(reason="x" * 501)), "Refused.reason has 501 characters"),
        (pb.AggregatorFrame(finished=pb.Finished(outcome="x" * 501)), "Finished.outcome has 501 characters"),
        (pb.AggregatorFrame(), "empty"),
    ],
)
def test_what_a_peer_must_not_say_is_refused_by_name(message: pb.AggregatorFrame, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        codec.decode_aggregator_frame(message.SerializeToString())


@pytest.mark.parametrize(
    ("frame", "stated"),
    [
        (frames.BroadcastStart(frames.BroadcastKind.STATE, 8, DIGEST), b"\x21" + struct.pack("<d", 0.5)),
        (frames.SumStart(SumNumber(1), Purpose.EXACT_EVALUATION, 5, 1, DIGEST, 600), b"\x38\x02"),
        (frames.SumStart(SumNumber(1), Purpose.EXACT_EVALUATION, 5, 1, DIGEST, 600), b"\x42\x02\x00\x09"),
    ],
    ids=["a threshold", "a step of a query", "prefixes of a query"],
)
def test_what_a_site_knows_from_its_own_state_cannot_be_stated(frame: frames.Frame, stated: bytes) -> None:
    """These were fields of version 1 of the wire; a site that believed them would compute what it is told."""
    envelope = pb.AggregatorFrame()
    envelope.ParseFromString(codec.encode_aggregator_frame(frame))
    getattr(envelope, envelope.WhichOneof("body")).MergeFromString(stated)
    with pytest.raises(RemoteProtocolError, match="this version writes what they mean"):
        codec.decode_aggregator_frame(envelope.SerializeToString())


def test_a_preflight_reply_without_an_end_is_refused() -> None:
    reply = pb.CheckReply(items=[pb.CheckItem(name="plan")] * 17)
    with pytest.raises(RemoteProtocolError, match="17 entries"):
        codec.decode_check_reply(reply.SerializeToString())


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        codec.decode_collaborator_frame(bytes.fromhex("22 05 0801 1201ff"))


@given(anything, st.data())
@settings(deadline=None, max_examples=50)
def test_damaged_frames_give_a_frame_or_one_error(case: tuple[Codec, frames.Frame], data: st.DataObject) -> None:
    (encode, decode), frame = case
    raw = bytearray(encode(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(bytes(raw))
    except RemoteProtocolError:
        return
    assert len(encode(decoded)) <= len(raw)


@pytest.mark.parametrize("size", [1, 124, 125, 126, 127, 128, 16379, 16380, 16383, 16384, 70000, MAX_CHUNK_BYTES])
def test_a_chunk_has_the_bytes_that_protobuf_gives_it_and_is_read_without_a_copy(size: int) -> None:
    data = bytes(index % 251 for index in range(size))
    theirs = (pb.CollaboratorFrame(chunk=pb.Chunk(data=data)), pb.AggregatorFrame(chunk=pb.Chunk(data=data)))
    for (encode, decode), message in zip((COLLABORATOR, AGGREGATOR), theirs, strict=True):
        raw = encode(frames.Chunk(memoryview(data)))
        assert raw == message.SerializeToString()
        read = decode(raw)
        assert read == frames.Chunk(data)
        assert isinstance(read, frames.Chunk)
        assert memoryview(read.data).obj is raw


@pytest.mark.parametrize(
    "raw",
    [
        b"\x1a\x85\x00\x0a\x03abc",  # a length written in more bytes than it needs
        b"\x1a\x05\x0a\x03ab",  # cut off
        b"\x1a\x05\x0a\x03abcd",  # a byte too many
        b"\x1a\x00",  # a chunk of nothing
        b"\x1a\x02\x0a\x00",
        b"\x1a\x05\x12\x03abc",  # another field
        b"\x1a\x05\x0a\x03abc\x1a\x05\x0a\x03abc",  # given twice
    ],
)
def test_bytes_that_are_nearly_a_chunk_are_refused_as_protobuf_would_have_them(raw: bytes) -> None:
    for _, decode in (COLLABORATOR, AGGREGATOR):
        with pytest.raises(RemoteProtocolError):
            decode(raw)


# ---- the wire contract itself: every field is documented, and none can say anything about one record

PROTO = Path(__file__).parents[2] / "proto"

FIELDS = {
    "CollaboratorFrame": {"hello", "upload", "chunk", "abstain", "masked", "ended", "witnessed"},
    "Hello": {"protocol_version", "software_version", "plan_digest", "approval", "certificate_binding", "session"}
    | {"last_sum_number", "run_id", "rounds_done", "state"},
    "UploadStart": {"sum_number", "length", "sha256"},
    "Abstain": {"sum_number", "reason", "leaving", "accused"},
    "Ended": {"state", "statement"},
    "Witnessed": {"statement"},
    "AggregatorFrame": {"welcome", "broadcast", "chunk", "sum", "accepted", "finished", "refused", "masked"}
    | {"trust"},
    "Welcome": {"run_id", "rounds_done", "rounds_total", "evaluation_only", "model"},
    "BroadcastStart": {"kind", "length", "sha256"},
    "SumStart": {"sum_number", "purpose", "round", "attempt", "state", "deadline_seconds"},
    "TrustUpdate": {"revocation_list", "certificate"},
    "Accepted": {"sum_number"},
    "Finished": {"rounds", "outcome"},
    "Refused": {"reason", "remedy", "try_again"},
    "SecaggMessage": {"message", "vector_length"},
    "Chunk": {"data"},
    "CheckRequest": {
        "protocol_version", "software_version", "plan_digest", "approval", "certificate_binding", "clock_seconds",
    },
    "CheckReply": {"items"},
    "CheckItem": {"name", "passed", "detail"},
}  # fmt: skip
"""Everything that can be said. Whoever adds a field must add it here, after asking what it tells about a site:
a count, a loss or a label of one site has no place on this list."""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> descriptor_pb2.FileDescriptorProto:
    """Return the contract as protoc reads it, comments included."""
    target = tmp_path_factory.mktemp("schema") / "federation.bin"
    name = "fedfair/v1/federation.proto"
    assert protoc.main(["", f"-I{PROTO}", "--include_source_info", f"-o{target}", name]) == 0
    return descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file[0]


def test_the_wire_says_exactly_what_is_on_the_list() -> None:
    declared = {
        name: {field.name for field in message.fields}
        for name, message in pb.DESCRIPTOR.message_types_by_name.items()
    }
    assert declared == FIELDS


def test_no_field_can_hold_a_number_for_each_record() -> None:
    double = pb.CheckRequest.DESCRIPTOR.fields_by_name["clock_seconds"].type
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        for field in message.fields:
            # Only the aggregator sends a list, of words, in the preflight. The only real number is a clock.
            assert not field.is_repeated or field.full_name == "fedfair.v1.CheckReply.items"
            assert field.type != double or field.name == "clock_seconds"
            assert not field.message_type or field.message_type.file is pb.DESCRIPTOR  # no Any, no Struct


def test_a_collaborator_sends_no_real_number_outside_its_contribution() -> None:
    body = pb.CollaboratorFrame.DESCRIPTOR.oneofs_by_name["body"]
    kinds = {field.type for frame in body.fields for field in frame.message_type.fields}
    fields = pb.DESCRIPTOR.message_types_by_name
    permitted = {
        fields["UploadStart"].fields_by_name["sum_number"].type,  # uint64
        fields["Hello"].fields_by_name["protocol_version"].type,  # uint32
        fields["Hello"].fields_by_name["software_version"].type,  # string
        fields["Chunk"].fields_by_name["data"].type,  # bytes
        fields["Abstain"].fields_by_name["reason"].type,  # enum
        fields["Abstain"].fields_by_name["leaving"].type,  # bool
        fields["Abstain"].fields_by_name["accused"].type,  # uint32
    }
    assert kinds == permitted


def test_every_field_and_value_is_documented(described: descriptor_pb2.FileDescriptorProto) -> None:
    comments = {
        tuple(location.path): location.leading_comments + location.trailing_comments
        for location in described.source_code_info.location
    }
    bare = [
        f"{message.name}.{field.name}"
        for number, message in enumerate(described.message_type)
        for index, field in enumerate(message.field)
        # 4: message_type of the file, 2: field of the message (descriptor.proto).
        if len(comments.get((4, number, 2, index), "").strip()) < len("as in Hello")
    ]
    assert bare == []


def test_the_service_is_named_as_the_contract_names_it() -> None:
    (declared,) = pb.DESCRIPTOR.services_by_name.values()
    assert declared.full_name == service.SERVICE
    assert {f"/{declared.full_name}/{method.name}" for method in declared.methods} == {
        service.CHECK,
        service.PARTICIPATE,
    }
    assert {method.name for method in declared.methods} == {service.CHECK_METHOD, service.PARTICIPATE_METHOD}
    participate = declared.methods_by_name[service.PARTICIPATE_METHOD]
    assert participate.client_streaming
    assert participate.server_streaming
