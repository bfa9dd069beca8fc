"""Writes the examples of the corpus, by the code that makes them in a federation.

`python -m tests.fuzz.examples` does it again after a form has changed; what was found by fuzzing stays.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator.journal import Journal
from fedfair.aggregation import evaluation_file, model_file
from fedfair.certificate import document as certificates
from fedfair.consortium.acts import ActKind
from fedfair.ids import FederationName, ParticipantId
from fedfair.plan.approval import approve
from fedfair.secagg.log import Record, frame
from fedfair.wire.hub import PutRequest, encode_reply, encode_request
from fedfair.workspace.archive import pack

CORPUS = Path(__file__).parent / "corpus"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PLAN_DIGEST = bytes(range(32))


def messages() -> Iterator[tuple[str, bytes]]:
    """Yield the kind and the bytes of each message."""
    from tests.secagg.test_secagg_messages import BYTES
    from tests.wire.test_codec import AGGREGATOR, COLLABORATOR, ONE_OF_EACH, REPLY
    from tests.wire.test_hub_messages import REPLIES

    for way, one in ONE_OF_EACH:
        names = {id(COLLABORATOR): "to-the-aggregator", id(AGGREGATOR): "to-a-site", id(REPLY): "check-reply"}
        yield names.get(id(way), "check-request"), way[0](one)
    for raw in BYTES:
        yield "secagg-message", raw
    yield "hub-put", encode_request(PutRequest(PLAN_DIGEST, 9, 4, b"five!"))
    for reply in REPLIES:
        yield "hub-reply", encode_reply(reply)


def documents() -> Iterator[tuple[str, bytes]]:
    """Yield the kind and the bytes of each file that is text."""
    from tests import plans
    from tests.audit.record_makers import kept
    from tests.certificate import certificate_makers as made
    from tests.conftest import REPOSITORY
    from tests.consortium.consortium_makers import Play, listed

    yield "plan", yaml.safe_dump(plans.small_plan()).encode()
    for path in sorted((REPOSITORY / "examples").rglob("plan.yaml")):
        yield "plan", path.read_bytes()
    policy = {"min_collaborators": 3, "max_rounds": 300, "max_attempts": 5, "training_cohort": "same"}
    yield "policy", yaml.safe_dump({"collaborator": "clinic-a", "policy": policy}).encode()
    # A policy whose digest a reader must fill in first is none yet.
    sites = [path.read_bytes() for path in sorted((REPOSITORY / "examples").rglob("collaborator*.yaml"))]
    for raw in [raw for raw in sites if b"CODE" not in raw][:2]:
        yield "collaborator", raw
    yield (
        "collaborator",
        yaml.safe_dump({"collaborator": "clinic-a", "data": {"train": "a.csv"}, "policy": policy}).encode(),
    )
    approval = approve(
        PLAN_DIGEST,
        FederationName("heart"),
        ParticipantId("clinic-a"),
        KEY,
        approved_at="2031-05-04T10:00:00+00:00",
    )
    yield "approval", approval
    play = Play()
    play.done(ActKind.SUBMITTED, "bert")
    yield from (("act", play.act(ActKind.APPROVED, "clinic-a")), ("act", play.act(ActKind.ENDED, "aggregator")))
    yield "record-entry", play.lines[1]
    yield "consortium", listed()
    losses = np.linspace(0.05, 2.0, 40)
    yield "certificate", certificates.to_text(made.make_sealed(losses)).encode()
    yield "evaluation", evaluation_file.to_text(made.make_record(test=losses)).encode()
    for name in ("deployed-exact-masked", "deployed-privacy-of-records", "deployed-site-means", "evaluated"):
        kept_result = REPOSITORY / "tests" / "results" / "kept" / f"{name}.json"
        yield "result", json.dumps(json.loads(kept_result.read_text())).encode()
    with tempfile.TemporaryDirectory() as folder:
        yield "egress-record", kept(Path(folder) / "clinic-a.jsonl")


def stores() -> Iterator[tuple[str, bytes]]:
    """Yield the kind and the bytes of each file that is not text."""
    from fedfair.rounds.events import Departed
    from tests import plans
    from tests.actors.ledger_makers import LOOK, STEP, entry, written
    from tests.actors.test_journal import entry as journal_entry
    from tests.aggregation.test_model_file import LAYOUT

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        journal = Journal.open(folder / "journal.sqlite", PLAN_DIGEST, "ab" * 16, 1_800_000_000.0)
        journal.record(journal_entry())
        journal.rows.add_departure(Departed(ParticipantId("clinic-a"), 3, "it left"))
        journal.close()
        yield "journal", (folder / "journal.sqlite").read_bytes()
        written(folder / "ledger.sqlite", [entry(STEP), entry(LOOK), entry(STEP)])
        yield "ledger", (folder / "ledger.sqlite").read_bytes()
        (folder / "plan").mkdir()
        (folder / "plan" / "plan.yaml").write_text(yaml.safe_dump(plans.small_plan()))
        yield "workspace", pack(folder)
        model_file.save(folder / "model.safetensors", LAYOUT, np.arange(8, dtype=np.float32), {"plan": "x"})
        yield "model", (folder / "model.safetensors").read_bytes()
    yield (
        "write-ahead-log",
        frame(Record.HISTORY, b"rows" * 30) + frame(Record.VOTE, b"vote" * 30) + frame(Record.ANSWER, b"answer"),
    )


def main() -> None:
    """Write every example that is not there."""
    counts: dict[str, int] = {}
    for kind, raw in (*messages(), *documents(), *stores()):
        counts[kind] = counts.get(kind, 0) + 1
        path = CORPUS / kind / f"example-{counts[kind]:02d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
    sys.stdout.write("".join(f"{count:>4} {kind}\n" for kind, count in counts.items()))


if __name__ == "__main__":
    main()
