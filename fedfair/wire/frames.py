"""The frames of the wire as values that are valid from the moment they exist.

Each class is one message of `proto/fedfair/v1/federation.proto`. Constructing one checks everything that can be
known without the plan: sizes, ranges, presence. So a frame that this side builds wrongly is a
`LocalProtocolError` at the line that built it, and `codec` turns the same fault in received bytes into a
`RemoteProtocolError`. What depends on the plan (is this the digest, is this the length) is left to the actors
and to `chunking`.

Text is for people. It is made showable on construction: control characters become spaces, so that a peer cannot
drive the terminal it is printed on, and what is longer than its limit is cut.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass, field

from fedfair.errors import LocalProtocolError
from fedfair.ids import SumNumber
from fedfair.policy.refusal_reasons import ACCUSING, RefusalReason
from fedfair.process.printable import printable
from fedfair.statistics.table import Purpose
from fedfair.wire.limits import (
    MAX_APPROVAL_BYTES,
    MAX_ATTEMPT,
    MAX_CHECK_ITEMS,
    MAX_CHUNK_BYTES,
    MAX_LIST_BYTES,
    MAX_MASKED_MESSAGE_BYTES,
    MAX_MEMBER,
    MAX_NAME_CHARACTERS,
    MAX_ROUND,
    MAX_SECONDS,
    MAX_STATEMENT_BYTES,
    MAX_SUM_NUMBER,
    MAX_TEXT_CHARACTERS,
    MAX_VECTOR_BYTES,
)

DIGEST_BYTES = 32
BINDING_BYTES = 64
NO_SUM = SumNumber(0)
_RUN_ID = re.compile(r"[0-9a-f]{32}")


def showable(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Return `text` without control characters, at most `limit` characters long.

    Everything that is not printable becomes a space: the C0 and C1 controls with which an escape sequence begins,
    the marks that reverse the reading direction, lone surrogates, line ends.
    """
    shown = printable(text[: limit + 1], instead=" ")
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


# ------------------------------------------------------------------ collaborator -> aggregator


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame of every stream: which protocol, which plan, approved by whom, on which certificate.

    `session` names the masking session of which the sender holds keys; empty after a start. `last_sum_number`,
    `run_id` and `rounds_done` say what the sender's process was asked for last, and where that run stood then; 0
    and empty after a start. They repeat the aggregator's own words, so that it notices what it has forgotten.
    """

    protocol_version: int
    software_version: str
    plan_digest: bytes
    approval: bytes
    certificate_binding: bytes
    session: bytes = b""
    last_sum_number: SumNumber = NO_SUM
    run_id: str = ""
    rounds_done: int = 0
    state: bytes = b""

    def __post_init__(self) -> None:
        _check_introduction(self)
        if self.session:
            _exactly(self, "session", self.session, DIGEST_BYTES)
        _within(self, "last_sum_number", self.last_sum_number, 0, MAX_SUM_NUMBER)
        if self.run_id:
            _check_run_id(self, self.run_id)
        _within(self, "rounds_done", self.rounds_done, 0, MAX_ROUND)
        if self.state:
            _exactly(self, "state", self.state, DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class UploadStart:
    """One contribution follows in chunks, `length` bytes in all."""

    sum_number: SumNumber
    length: int
    sha256: bytes

    def __post_init__(self) -> None:
        _within(self, "sum_number", self.sum_number, 1, MAX_SUM_NUMBER)
        _within(self, "length", self.length, 1, MAX_VECTOR_BYTES)
        _exactly(self, "sha256", self.sha256, DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class Abstain:
    """Instead of an upload: this site takes no part in this sum, and in no later one where it is `leaving`.

    A site that leaves, or refuses to come, without having been asked for a sum says so about sum 0. The reason is
    from a closed list, because words of a site's own could tell of its records. `accused` is the place in the
    roster of the member whose sealed shares this site cannot open, 0 for none: what that member sealed decides.
    """

    sum_number: SumNumber
    reason: RefusalReason
    leaving: bool = False
    accused: int = 0

    def __post_init__(self) -> None:
        _within(self, "sum_number", self.sum_number, 0 if self.leaving else 1, MAX_SUM_NUMBER)
        if not isinstance(self.reason, RefusalReason):
            raise _fault(self, "reason", "is not from the closed list of reasons")
        _within(self, "accused", self.accused, 0, MAX_MEMBER)
        if self.accused and (self.leaving or self.reason not in ACCUSING):
            raise _fault(self, "accused", f"is {self.accused}, but the reason is about no sealed shares")


@dataclass(frozen=True, slots=True)
class Ended:
    """Answers `Finished`: this site has heard the end, and its copy of the run, of this digest, is on its disk.

    `statement` is what it signs of that copy; empty where a saved model is evaluated.
    """

    state: bytes
    statement: bytes = b""

    def __post_init__(self) -> None:
        _exactly(self, "state", self.state, DIGEST_BYTES)
        _within(self, "statement", len(self.statement), 0, MAX_STATEMENT_BYTES, " bytes")


@dataclass(frozen=True, slots=True)
class Witnessed:
    """Said on its own: where this site's copy of the run stands at a checkpoint, signed."""

    statement: bytes

    def __post_init__(self) -> None:
        _within(self, "statement", len(self.statement), 1, MAX_STATEMENT_BYTES, " bytes")


# ------------------------------------------------------------------ aggregator -> collaborator


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answers `Hello`: the names and numbers of this run, and whether it evaluates a saved model and no more.

    `model` names that model by its digest (`saved_model.model_digest`); the model itself never travels.
    """

    run_id: str
    rounds_done: int
    rounds_total: int
    evaluation_only: bool = False
    model: bytes = b""

    def __post_init__(self) -> None:
        _check_run_id(self, self.run_id)
        _exactly(self, "model", self.model, DIGEST_BYTES if self.evaluation_only else 0)
        _within(self, "rounds_total", self.rounds_total, 1, MAX_ROUND)
        _within(self, "rounds_done", self.rounds_done, 0, self.rounds_total)


class BroadcastKind(enum.Enum):
    """The kind of a broadcast."""

    STATE = "state of the run"
    TOTALS = "opened sum"


@dataclass(frozen=True, slots=True)
class BroadcastStart:
    """A state or an opened sum, which brings a site into step, follows in chunks."""

    kind: BroadcastKind
    length: int
    sha256: bytes

    def __post_init__(self) -> None:
        _within(self, "length", self.length, 1, MAX_VECTOR_BYTES)
        _exactly(self, "sha256", self.sha256, DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class SumStart:
    """Asks for one contribution. `round` counts from 1 in training; elsewhere it is the rounds done so far.

    `state` is the digest of the state of the run that the sum is about; `attempt` is for logs.
    """

    sum_number: SumNumber
    purpose: Purpose
    round: int
    attempt: int
    state: bytes
    deadline_seconds: int

    def __post_init__(self) -> None:
        _within(self, "sum_number", self.sum_number, 1, MAX_SUM_NUMBER)
        _within(self, "round", self.round, int(self.purpose.statistic.is_round), MAX_ROUND)
        _within(self, "attempt", self.attempt, 1, MAX_ATTEMPT)
        _exactly(self, "state", self.state, DIGEST_BYTES)
        _within(self, "deadline_seconds", self.deadline_seconds, 1, MAX_SECONDS)


@dataclass(frozen=True, slots=True)
class TrustUpdate:
    """The aggregator's present revocation list, and the fingerprint of the certificate that it shows from now on.

    `revocation_list` is DER; nobody but the authority can have signed what a site takes from it.
    """

    revocation_list: bytes
    certificate: bytes

    def __post_init__(self) -> None:
        _within(self, "revocation_list", len(self.revocation_list), 0, MAX_LIST_BYTES, " bytes")
        _exactly(self, "certificate", self.certificate, DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The upload is in the sum, or was already."""

    sum_number: SumNumber

    def __post_init__(self) -> None:
        _within(self, "sum_number", self.sum_number, 1, MAX_SUM_NUMBER)


@dataclass(frozen=True, slots=True)
class Finished:
    """Last frame of a finished run."""

    rounds: int
    outcome: str

    def __post_init__(self) -> None:
        _within(self, "rounds", self.rounds, 0, MAX_ROUND)
        _make_showable(self, "outcome", self.outcome)


@dataclass(frozen=True, slots=True)
class Refused:
    """Last frame of a stream that is not wanted, with the way out."""

    reason: str
    remedy: str
    try_again: bool

    def __post_init__(self) -> None:
        _make_showable(self, "reason", self.reason)
        _make_showable(self, "remedy", self.remedy)


# ------------------------------------------------------------------ both ways


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the vector that was announced last.

    Attributes:
        data: the piece.
        sha256: of the frame that carries it, on this side of the wire; empty where it was not computed.
    """

    data: bytes | memoryview
    sha256: bytes = field(default=b"", compare=False)

    def __post_init__(self) -> None:
        _within(self, "data", len(self.data), 1, MAX_CHUNK_BYTES, " bytes")


@dataclass(frozen=True, slots=True)
class SecaggMessage:
    """One message of secure aggregation; a vector of `vector_length` bytes follows in chunks.

    With an upload it is the masked one, with an opened sum the words of its body.
    """

    message: bytes
    vector_length: int = 0

    def __post_init__(self) -> None:
        _within(self, "message", len(self.message), 1, MAX_MASKED_MESSAGE_BYTES, " bytes")
        _within(self, "vector_length", self.vector_length, 0, MAX_VECTOR_BYTES)


# ------------------------------------------------------------------ preflight


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """The content of the `Hello` to come, and this side's clock in seconds since 1970."""

    protocol_version: int
    software_version: str
    plan_digest: bytes
    approval: bytes
    certificate_binding: bytes
    clock_seconds: float

    def __post_init__(self) -> None:
        _check_introduction(self)
        if not (math.isfinite(self.clock_seconds) and self.clock_seconds >= 0):
            raise _fault(self, "clock_seconds", f"is {self.clock_seconds}, expected seconds since 1970")


@dataclass(frozen=True, slots=True)
class CheckItem:
    """One thing that was looked at; `name` is a word such as plan, approval or clock."""

    name: str
    passed: bool
    detail: str

    def __post_init__(self) -> None:
        _make_showable(self, "name", self.name, MAX_NAME_CHARACTERS)
        _make_showable(self, "detail", self.detail)


@dataclass(frozen=True, slots=True)
class CheckReply:
    """Everything that was looked at, in order."""

    items: tuple[CheckItem, ...]

    def __post_init__(self) -> None:
        _within(self, "items", len(self.items), 1, MAX_CHECK_ITEMS, " entries")


CollaboratorFrame = Hello | UploadStart | Chunk | Abstain | SecaggMessage | Ended | Witnessed
AggregatorFrame = (
    Welcome | BroadcastStart | Chunk | SumStart | TrustUpdate | Accepted | Finished | Refused | SecaggMessage
)
Frame = CollaboratorFrame | AggregatorFrame | CheckRequest | CheckItem | CheckReply


# ------------------------------------------------------------------ checks


def _check_introduction(frame: Hello | CheckRequest) -> None:
    """Check the fields that `Hello` and `CheckRequest` share.

    A foreign protocol version is not refused here: the peer that answers says so in words, and can, because these
    five fields keep their numbers in every version.
    """
    _within(frame, "protocol_version", frame.protocol_version, 1, 2**32 - 1)
    _make_showable(frame, "software_version", frame.software_version, MAX_NAME_CHARACTERS)
    _exactly(frame, "plan_digest", frame.plan_digest, DIGEST_BYTES)
    _within(frame, "approval", len(frame.approval), 0, MAX_APPROVAL_BYTES, " bytes")
    _exactly(frame, "certificate_binding", frame.certificate_binding, BINDING_BYTES)


def _check_run_id(frame: Hello | Welcome, run_id: str) -> None:
    if not _RUN_ID.fullmatch(run_id):
        raise _fault(frame, "run_id", f"is {showable(run_id, 40)!r}, expected 32 lower-case hex digits")


def _fault(frame: Frame, field: str, complaint: str) -> LocalProtocolError:
    return LocalProtocolError(f"{type(frame).__name__}.{field} {complaint}")


def _within(frame: Frame, field: str, value: int, least: int, most: int, unit: str = "") -> None:
    if not least <= value <= most:
        raise _fault(frame, field, f"is {value}{unit}, expected {least} to {most}")


def _exactly(frame: Frame, field: str, value: bytes, size: int) -> None:
    if len(value) != size:
        raise _fault(frame, field, f"has {len(value)} bytes, expected {size}")


def _make_showable(frame: Frame, field: str, text: str, limit: int = MAX_TEXT_CHARACTERS) -> None:
    # A frozen value may finish its own construction: no other code has it yet.
    object.__setattr__(frame, field, showable(text, limit))
