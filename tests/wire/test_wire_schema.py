"""The wire contract itself: every field is documented, and none can say anything about one record."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from fedfair.wire import service
from fedfair.wire.v1 import federation_pb2 as pb

PROTO = Path(__file__).parents[2] / "proto"

FIELDS = {
    "CollaboratorFrame": {"hello", "upload", "chunk", "abstain", "masked", "ended"},
    "Hello": {"protocol_version", "software_version", "plan_digest", "approval", "certificate_binding", "session"}
    | {"last_sum_number", "run_id", "rounds_done", "state"},
    "UploadStart": {"sum_number", "length", "sha256"},
    "Abstain": {"sum_number", "reason", "leaving", "accused"},
    "Ended": {"state"},
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
