"""Nothing that a collaborator may send could hold a number for each of its records.

Two proofs. The schema: every field of every message that it may send is on a list, with the greatest length that
it can have, which follows from the plan alone or is a constant. The lengths: sites of 10, 1 000 and 20 000
records send the same messages, of the lengths that were computed before from the plan, byte for byte.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fedfair.aggregation.masked_encoding import sum_shapes
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.cli.loopback import Workspace, prepare
from fedfair.ids import FederationName, ParticipantId, SumNumber
from fedfair.plan.approval import MAX_BYTES as MAX_APPROVAL
from fedfair.plan.derived import is_masked
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.rounds.continued import first_block
from fedfair.secagg.check_seed import SEALED_SEED_BYTES
from fedfair.secagg.keys import TAG_BYTES
from fedfair.secagg.messages import MAX_MESSAGE_BYTES
from fedfair.secagg.round_messages import UnmaskShares, Upload
from fedfair.secagg.sealing import ENVELOPE_BYTES, SHARE_DIGEST_BYTES
from fedfair.secagg.setup_messages import Confirm, KeyAdvertisement
from fedfair.training.assembly import flat_model
from fedfair.training.binding import plan_binding
from fedfair.transcript.statement import MAX_BYTES as MAX_STATEMENT
from fedfair.transcript.statement import SiteStatement, StatementKind, sign_statement
from fedfair.wire.chunking import masked_frames, upload_frames
from fedfair.wire.codec import encode_collaborator_frame
from fedfair.wire.frames import CollaboratorFrame, Ended, Witnessed
from fedfair.wire.limits import MAX_APPROVAL_BYTES, MAX_NAME_CHARACTERS, MAX_STATEMENT_BYTES, MAX_TEXT_CHARACTERS
from fedfair.wire.v1 import federation_pb2 as pb
from tests.interop.federation_kit import Federation, play
from tests.plans import small_plan

FIRST = SumNumber(first_block(1_800_000_000.0, SumNumber(0)) + 1)
"""A sum number of any year from 2020 on takes as many bytes."""

TWO = ("clinic-a", "clinic-b")
MASKED: Mapping[str, object] = {"mode": "malicious", "most_records": 200_000}
RECORDS = (10, 1_000, 20_000)


# ------------------------------------------------------------------ the schema


@dataclass(frozen=True)
class PlanFacts:
    """What a plan fixes about lengths, for every site alike.

    Attributes:
        members: collaborators.
        vector_bytes: of the longest contribution.
    """

    members: int
    vector_bytes: int


VARINT = 10
"""The longest spelling of any whole number in protobuf."""

TEXT = 4 * MAX_TEXT_CHARACTERS
Length = Callable[[PlanFacts], int]


def constant(length: int) -> Length:
    return lambda _: length


STATED = (
    "signed: where the opened sums have brought the run, by digests and counts, and which approval is the site's"
)

ALLOWED: Mapping[str, tuple[str, Length]] = {
    "Hello.protocol_version": ("of the software", constant(VARINT)),
    "Hello.software_version": ("of the software", constant(4 * MAX_NAME_CHARACTERS)),
    "Hello.plan_digest": ("a digest of what everybody has", constant(32)),
    "Hello.approval": ("signed before any training; names, a digest, a time, a signature", constant(MAX_APPROVAL)),
    "Hello.certificate_binding": ("a signature", constant(64)),
    "Hello.state": ("a digest of what the opened sums have made of the plan", constant(32)),
    "Hello.session": ("a digest that the aggregator knows", constant(32)),
    "Hello.last_sum_number": ("given by the aggregator", constant(VARINT)),
    "Hello.run_id": ("given by the aggregator", constant(32)),
    "Hello.rounds_done": ("of the last question of the aggregator", constant(VARINT)),
    "UploadStart.sum_number": ("given by the aggregator", constant(VARINT)),
    "UploadStart.length": ("fixed by the plan, refused otherwise", constant(VARINT)),
    "UploadStart.sha256": ("a digest of the contribution", constant(32)),
    "Chunk.data": (
        "a piece of a contribution, whose length in all is fixed by the plan",
        lambda f: f.vector_bytes,
    ),
    "Abstain.sum_number": ("given by the aggregator", constant(VARINT)),
    "Abstain.reason": ("one of a closed list, in place of a contribution", constant(1)),
    "Abstain.leaving": ("one bit, in place of every later contribution", constant(1)),
    "Abstain.accused": ("a place in the roster, in place of a contribution", constant(VARINT)),
    "Ended.state": ("a digest of what the opened sums have made of the plan", constant(32)),
    "Ended.statement": (STATED, constant(MAX_STATEMENT)),
    "Witnessed.statement": (STATED, constant(MAX_STATEMENT)),
    "SecaggMessage.message": (
        "keys, signatures, shares of masks: about the members, never about records",
        lambda facts: 512 + facts.members * (TAG_BYTES + 64 + ENVELOPE_BYTES + SHARE_DIGEST_BYTES + 1200),
    ),
    "SecaggMessage.vector_length": ("fixed by the plan, refused otherwise", constant(VARINT)),
    "CheckRequest.protocol_version": ("of the software", constant(VARINT)),
    "CheckRequest.software_version": ("of the software", constant(4 * MAX_NAME_CHARACTERS)),
    "CheckRequest.plan_digest": ("a digest of what everybody has", constant(32)),
    "CheckRequest.approval": ("as in Hello", constant(MAX_APPROVAL)),
    "CheckRequest.certificate_binding": ("a signature", constant(64)),
    "CheckRequest.clock_seconds": ("the time of day", constant(8)),
}
"""Every field that a collaborator can fill: why it may, and the most that it can hold under a plan."""


def fields_of(message: Descriptor) -> Iterator[FieldDescriptor]:
    """Yield every field below a message that holds a value."""
    for field in message.fields:
        if field.message_type is None:
            yield field
        else:
            yield from fields_of(field.message_type)


def test_every_field_that_a_collaborator_can_fill_is_on_the_list_with_its_reason() -> None:
    sent = [*fields_of(pb.CollaboratorFrame.DESCRIPTOR), *fields_of(pb.CheckRequest.DESCRIPTOR)]
    assert {f"{field.containing_type.name}.{field.name}" for field in sent} == ALLOWED.keys()
    assert not any(field.is_repeated for field in sent), "a list could grow with the records"
    assert all(reason for reason, _ in ALLOWED.values())
    # And the service offers no other way to say anything.
    (offered,) = pb.DESCRIPTOR.services_by_name.values()
    assert {method.input_type.name for method in offered.methods} == {"CollaboratorFrame", "CheckRequest"}


def test_what_the_schema_allows_beside_a_contribution_does_not_grow_with_anything_but_members() -> None:
    few, many = PlanFacts(3, 1_000), PlanFacts(3, 1_000_000)
    grows = {name for name, (_, length) in ALLOWED.items() if length(few) != length(many)}
    assert grows == {"Chunk.data"}
    assert MAX_APPROVAL == MAX_APPROVAL_BYTES
    assert MAX_STATEMENT == MAX_STATEMENT_BYTES
    assert ALLOWED["SecaggMessage.message"][1](PlanFacts(200, 0)) <= MAX_MESSAGE_BYTES


# ------------------------------------------------------------------ the lengths


def agreed(rounds: int, protection: Mapping[str, object] | None) -> dict[str, object]:
    plan = small_plan(rounds=rounds, protection=protection, names=TWO, local_steps=1)
    plan["task"] = {
        "data": {"csv": {"label": "died", "numeric": ["age", "pressure"], "categorical": {"sex": ["F", "M"]}}},
        "test_fraction": 0.2,
        "standardize": "secure",
        "model": {"name": "linear", "init": "zeros"},
    }
    return plan


def patients(path: Path, count: int) -> str:
    """Write a site's records; return its file's name."""
    generator = np.random.default_rng(count)
    age, pressure = generator.integers(18, 99, count), generator.normal(120, 15, count).round(3)
    died = (age + generator.normal(0, 20, count) > 60).astype(int)
    sexes = np.array(["F", "M"])[generator.integers(0, 2, count)]
    rows = "\n".join(f"{a},{p},{s},{d}" for a, p, s, d in zip(age, pressure, sexes, died, strict=True))
    path.write_text(f"age,pressure,sex,died\n{rows}\n")
    return path.name


def run_with(folder: Path, records: int, protection: Mapping[str, object] | None) -> Workspace:
    """Run a federation in which clinic-a has so many records, and clinic-b has 50."""
    workspace = prepare(folder, agreed(2, protection))
    for name, count in (("clinic-a", records), ("clinic-b", 50)):
        file = folder / f"{name}.yaml"
        site = yaml.safe_load(file.read_text()) | {"data": {"train": patients(folder / f"{name}.csv", count)}}
        file.write_text(yaml.safe_dump(site))

    assert play(workspace, Federation.everybody).state.value == "finished"
    return workspace


Message = tuple[str, int, int, str, int]


def messages(workspace: Workspace) -> list[Message]:
    """Return purpose, round, attempt, kind and length of everything that clinic-a has sent, in order."""
    lines = (workspace.folder / "egress" / "clinic-a.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    keys = ("purpose", "round", "attempt", "what", "bytes")
    return [tuple(entry[key] for key in keys) for entry in entries if entry["kind"] == "message"]


def site_figures(workspace: Workspace) -> list[dict[str, object]]:
    """Return how clinic-a's own records fare at each evaluation, as its own log says."""
    lines = (workspace.folder / "logs" / "clinic-a_own_figures.jsonl").read_text().splitlines()
    return [json.loads(line)["own"] for line in lines]


def lengths(frames: Iterator[CollaboratorFrame]) -> list[int]:
    return [len(encode_collaborator_frame(frame)) for frame in frames]


def signed_by_clinic_a(plan: Plan) -> Callable[[StatementKind], bytes]:
    """Return what makes a statement as long as those of clinic-a: of digests, and of counts with one digit."""
    federation, key = FederationName(plan.federation.name), Ed25519PrivateKey.from_private_bytes(bytes(32))

    def statement(kind: StatementKind) -> bytes:
        facts = (ParticipantId("clinic-a"), bytes(32), "0" * 32, kind, 2, bytes(32), bytes(32), 0.5, 7)
        return sign_statement(SiteStatement(federation, *facts, bytes(32), bytes(32)), key)

    return statement


def foreseen(plan: Plan, folder: Path) -> dict[tuple[str, str], set[int]]:
    """Return the length of every kind of message by purpose, from the plan alone: no site's records are read."""
    binding = plan_binding(plan, folder)
    layout = flat_model(plan, binding.schema, torch.device("cpu"), folder).layout
    members = range(1, len(plan.federation.collaborators) + 1)
    others, digest, signature = members[1:], bytes(32), bytes(64)
    statement = signed_by_clinic_a(plan)
    found = {
        ("evaluation", "end"): set(lengths(iter((Ended(digest, statement(StatementKind.FINAL)),)))),
        ("connection", "checkpoint"): set(lengths(iter((Witnessed(statement(StatementKind.CHECKPOINT)),)))),
    }
    if not is_masked(plan):
        for purpose, spec in sum_specs(plan, layout, binding.schema).items():
            first, *pieces = lengths(upload_frames(FIRST, bytes(spec.upload_bytes)))
            found[purpose.value, "announcement"] = {first}
            found[purpose.value, "plain contribution"] = set(pieces)
        return found
    sealed = bytes(ENVELOPE_BYTES)
    upload = Upload(
        digest, 1, digest, digest, tuple((one, bytes(TAG_BYTES)) for one in others),
        tuple((one, sealed) for one in others),
        tuple((one, bytes(SHARE_DIGEST_BYTES)) for one in members), signature,
    )  # fmt: skip
    answer = UnmaskShares(digest, 1, tuple(members), tuple((one, bytes(32)) for one in members))
    for word, shape in sum_shapes(plan, layout, binding.schema).items():
        vector = bytes(shape.vector_bytes(plan.secure_aggregation.ring_bits))
        first, *pieces = lengths(masked_frames(upload.encode(), vector))
        found[word, "sealed shares"] = {first}
        found[word, "masked vector"] = set(pieces)
        found[word, "mask shares"] = set(lengths(masked_frames(answer.encode(), b"")))
    advert = KeyAdvertisement(1, *[bytes(32)] * 4, signature)
    others = [one for one in members if one != 1]
    confirm = Confirm(1, digest, digest, tuple((one, bytes(SEALED_SEED_BYTES)) for one in others), signature)
    found["standardisation", "public key"] = set(lengths(masked_frames(advert.encode(), b"")))
    found["standardisation", "session confirmation"] = set(lengths(masked_frames(confirm.encode(), b"")))
    return found


Runs = Mapping[int, Workspace]


@pytest.fixture(scope="module", params=[MASKED, None], ids=["masked", "in the clear"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Finished federations by the number of clinic-a's records."""
    folder = tmp_path_factory.mktemp("runs")
    return {records: run_with(folder / str(records), records, request.param) for records in RECORDS}


def test_sites_of_any_number_of_records_send_the_same_messages_of_the_lengths_that_the_plan_fixes(
    runs: Runs,
) -> None:
    sent = {records: messages(workspace) for records, workspace in runs.items()}
    assert sent[10] == sent[1_000] == sent[20_000]
    # Each of these sites was told other figures of its own records; nothing of what it sent shows it.
    told = [site_figures(workspace) for workspace in runs.values()]
    assert {len(figures) for figures in told} == {2}
    assert all(one != other for one, other in itertools.combinations(told, 2))
    workspace = runs[10]
    by_kind: dict[tuple[str, str], set[int]] = {}
    for purpose, _, _, what, length in sent[10]:
        by_kind.setdefault((purpose, what), set()).add(length)
    greeting = by_kind.pop(("connection", "introduction"))
    assert by_kind == foreseen(load_plan(workspace.plan), workspace.folder)
    approval = (workspace.folder / "approvals" / "clinic-a.json").stat().st_size
    assert greeting <= set(range(approval, approval + 200))


def test_no_value_and_no_word_of_a_site_s_file_is_in_its_record_of_what_it_sent(runs: Runs) -> None:
    workspace = runs[1_000]
    kept = (workspace.folder / "egress" / "clinic-a.jsonl").read_text()
    rows = (workspace.folder / "clinic-a.csv").read_text().splitlines()
    values = {value for row in rows for value in row.split(",") if "." in value or value.isalpha()}
    assert len(values) > 900
    # Between quotes or after a colon stand whole words and numbers; a digest could hold a short one by chance.
    assert not any(f'"{value}"' in kept or f":{value}," in kept for value in values)
    # No entry but the messages that the other test has accounted for has room for anything.
    kinds = {json.loads(line)["kind"] for line in kept.splitlines()}
    assert kinds == {"opened", "message", "signed"}
    assert len(messages(workspace)) > 8
    figures = {str(value) for split in site_figures(workspace)[-1].values() for value in split.values() if value}
    assert len(figures) > 3
    assert not any(f'"{figure}"' in kept or f":{figure}," in kept for figure in figures if "." in figure)
