"""Every kind of message and file that the product reads: its reader, its way to be broken, and its examples.

Examples lie in `corpus/<kind>/`, made by the code that makes them in a federation (`examples.py`), and beside them
whatever was ever found to break a reader. A reader may refuse with an error of the product and with nothing else.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aggregator.journal import Journal
from collaborator.ledger import Ledger
from fedfair.aggregation import model_file
from fedfair.aggregation.evaluation_file import parse_evaluation
from fedfair.audit.reader import RecordReader, bounded_lines
from fedfair.certificate.check import check_figures
from fedfair.certificate.document import parse_certificate
from fedfair.consortium.acts import parse_act
from fedfair.consortium.members import parse_consortium
from fedfair.consortium.record import parse_entry
from fedfair.ids import FederationName, ParticipantId
from fedfair.plan.approval import verify_approval
from fedfair.plan.loading import load_plan
from fedfair.policy.site_config import load_site_config
from fedfair.results.reading import parse_result
from fedfair.secagg import log as secagg_log
from fedfair.secagg.messages import kind_of
from fedfair.wire import codec, hub
from fedfair.workspace.archive import unpack
from tests.fuzz.mutation import (
    Mutation,
    broken_bytes,
    broken_fields,
    broken_json,
    broken_lines,
    broken_rows,
    broken_yaml,
    broken_zip,
)

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True, slots=True)
class FuzzedKind:
    """One kind.

    Attributes:
        name: of its folder in the corpus.
        read: reads bytes in an empty folder of its own, as the product does.
        mutate: breaks an example.
        is_message: whether a peer sends it; otherwise it is a file.
    """

    name: str
    read: Callable[[bytes, Path], object]
    mutate: Mutation
    is_message: bool = False

    def examples(self) -> list[bytes]:
        """Return the corpus of the kind, in an order that does not change."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).iterdir())]


def _secagg(raw: bytes, _: Path) -> object:
    from tests.secagg.test_secagg_messages import DECODERS

    return DECODERS[kind_of(raw)](raw)


@contextmanager
def _file(raw: bytes, folder: Path, name: str) -> Iterator[Path]:
    """Write a file, and remove everything afterwards that its reader has left beside it."""
    path = folder / name
    path.write_bytes(raw)
    try:
        yield path
    finally:
        for left in folder.iterdir():
            left.unlink()


def _plan(raw: bytes, folder: Path) -> object:
    with _file(raw, folder, "plan.yaml") as path:
        return load_plan(path)


def _site(raw: bytes, folder: Path) -> object:
    with _file(raw, folder, "collaborator.yaml") as path:
        return load_site_config(path)


def _approval(raw: bytes, _: Path) -> object:
    from tests.fuzz.examples import KEY, PLAN_DIGEST

    verify_approval(
        raw,
        plan_digest=PLAN_DIGEST,
        federation=FederationName("heart"),
        participant=ParticipantId("clinic-a"),
        public_key=KEY.public_key(),
    )
    return None


def _certificate(raw: bytes, _: Path) -> object:
    certificate = parse_certificate(raw, "certificate.json")
    check_figures(certificate)
    return certificate


def _record(raw: bytes, _: Path) -> object:
    reader = RecordReader()
    reader.read(bounded_lines(io.BytesIO(raw)))
    return reader.names


def _journal(raw: bytes, folder: Path) -> object:
    from tests.fuzz.examples import PLAN_DIGEST

    with _file(raw, folder, "journal.sqlite") as path:
        journal = Journal.open(path, PLAN_DIGEST, "ab" * 16, 1_800_000_000.0)
        try:
            return journal.latest(), journal.unfinished(), journal.rows.costs(), journal.rows.departures()
        finally:
            journal.close()


def _ledger(raw: bytes, folder: Path) -> object:
    with _file(raw, folder, "ledger.sqlite") as path:
        return Ledger(path).look()


def _archive(raw: bytes, folder: Path) -> object:
    target = folder / f"unpacked-{os.getpid()}"
    try:
        return unpack(raw, target)
    finally:
        if target.exists():
            for left in sorted(target.rglob("*"), reverse=True):
                left.rmdir() if left.is_dir() else left.unlink()
            target.rmdir()


def _model(raw: bytes, folder: Path) -> object:
    with _file(raw, folder, "model.safetensors") as path:
        layout, vector, _ = model_file.load(path)
        return layout, np.isfinite(vector).all()


def _log(raw: bytes, _: Path) -> object:
    return [(entry.record, len(entry.fields)) for entry in secagg_log.entries(raw)]


KINDS = (
    FuzzedKind("to-the-aggregator", lambda raw, _: codec.decode_collaborator_frame(raw), broken_fields, True),
    FuzzedKind("to-a-site", lambda raw, _: codec.decode_aggregator_frame(raw), broken_fields, True),
    FuzzedKind("check-request", lambda raw, _: codec.decode_check_request(raw), broken_fields, True),
    FuzzedKind("check-reply", lambda raw, _: codec.decode_check_reply(raw), broken_fields, True),
    FuzzedKind("secagg-message", _secagg, broken_bytes, True),
    FuzzedKind("plan", _plan, broken_yaml),
    FuzzedKind("policy", _site, broken_yaml),
    FuzzedKind("collaborator", _site, broken_yaml),
    FuzzedKind("workspace", _archive, broken_zip),
    FuzzedKind("approval", _approval, broken_json),
    FuzzedKind("hub-put", lambda raw, _: hub.decode_put_request(raw), broken_fields, True),
    FuzzedKind("hub-reply", lambda raw, _: hub.decode_reply(raw), broken_fields, True),
    FuzzedKind("act", lambda raw, _: parse_act(raw), broken_json),
    FuzzedKind("record-entry", lambda raw, _: parse_entry(raw), broken_json),
    FuzzedKind("consortium", lambda raw, _: parse_consortium(raw), broken_yaml),
    FuzzedKind("certificate", _certificate, broken_json),
    FuzzedKind("result", lambda raw, _: parse_result(raw, "result.json"), broken_json),
    FuzzedKind("evaluation", lambda raw, _: parse_evaluation(raw, "evaluation.json"), broken_json),
    FuzzedKind("model", _model, broken_bytes),
    FuzzedKind("journal", _journal, broken_rows),
    FuzzedKind("ledger", _ledger, broken_rows),
    FuzzedKind("egress-record", _record, broken_lines),
    FuzzedKind("write-ahead-log", _log, broken_bytes),
)
