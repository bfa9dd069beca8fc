"""A site's signed statement of where its own copy of a run stands: at checkpoints and at the end.

    {"approval": "sha256:...", "federation": "heart", "format": "fedfair/site-statement/1", "kind": "final",
     "leaves": 26, "model": "sha256:...", "participant": "clinic-a", "plan_digest": "sha256:...",
     "reasons": [], "release": "not asked", "root": "sha256:...", "rounds": 12, "run": "<32 hex digits>",
     "signature": "<base64>", "state": "sha256:...", "threshold": "3fe8000000000000"}

The threshold is a double in hexadecimal, the most significant byte first: so the length of a statement depends on
plan and place alone. The signature is Ed25519 by the site's long-lived key, over the label and every other field
in the order of their names, each with its name and its length in front. The text has one spelling (keys sorted, no
spaces), so no byte of it is outside what was checked. Whose key it is says the plan's roster, never the statement.

A site states what its own copy says, which began in the approved plan and was moved by opened sums alone. Nothing
is stated to it. `release` is the site's word on whether the model may leave, after the release audit.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import json
import math
import re
import struct
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.errors import AuditError, FedfairError
from fedfair.file_formats import REMEDY, other_version
from fedfair.ids import FederationName, ParticipantId, parse_federation_name, parse_participant_id
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.signed_message import labelled_message

FORMAT = "fedfair/site-statement/1"
LABEL = "fedfair/site-statement/v1"
MAX_BYTES = 4096
MAX_COUNT = 1 << 53
"""Of rounds and leaves: every reader of JSON has numbers below this exactly."""

_DOUBLE = struct.Struct(">d")
_RUN = re.compile(r"[0-9a-f]{32}")
_REMEDY = "the site makes a new one where its run ends; compare the versions of fedfair on both sides"
_DIGESTS = ("plan_digest", "state", "model", "root", "approval")


class StatementKind(enum.Enum):
    """When a statement was made."""

    CHECKPOINT = "checkpoint"
    FINAL = "final"


class Release(enum.Enum):
    """The word of a site on whether the model may leave."""

    NOT_ASKED = "not asked"
    AGREED = "agreed"
    WITHHELD = "withheld"


class ReleaseReason(enum.Enum):
    """Why a site withholds its agreement: the whole list, so that no statement holds words of a site's own."""

    MEMBERSHIP_TPR_AT_01 = "membership-tpr-at-01"
    MEMBERSHIP_TPR_AT_001 = "membership-tpr-at-001"
    EPSILON_LOWER_BOUND = "epsilon-lower-bound"
    BOUNDS_CONTRADICT = "bounds-contradict"
    NO_AUDIT = "no-audit"


@dataclass(frozen=True, slots=True)
class ReleaseVerdict:
    """The verdict of a site on the release of the model.

    Attributes:
        release: its word.
        reasons: why it withholds, each once; none with any other word.

    Raises:
        ValueError: reasons without withholding, or withholding without a reason.
    """

    release: Release = Release.NOT_ASKED
    reasons: tuple[ReleaseReason, ...] = ()

    def __post_init__(self) -> None:
        """Check that there are reasons exactly where agreement is withheld."""
        if (self.release is Release.WITHHELD) != bool(self.reasons) or len(set(self.reasons)) != len(self.reasons):
            raise ValueError(f"{self.release.value} with {len(self.reasons)} reasons")


NOT_ASKED = ReleaseVerdict()


@dataclass(frozen=True, slots=True)
class SiteStatement:
    """One statement, without its signature.

    Attributes:
        federation: of the plan.
        participant: the site.
        plan_digest: 32 bytes, of the plan.
        run: the run, 32 hexadecimal digits.
        kind: when it is made.
        rounds: training rounds done.
        state: 32 bytes, digest of the site's state of the run.
        model: 32 bytes, of the vector of its global model; at the end, of the model that the run gives out.
        threshold: of that model.
        leaves: of the transcript, at least 1.
        root: 32 bytes, of the transcript.
        approval: 32 bytes, SHA-256 of the site's signed approval of the plan.
        verdict: the site's word on the release.

    Raises:
        ValueError: a value is out of its range.
    """

    federation: FederationName
    participant: ParticipantId
    plan_digest: bytes
    run: str
    kind: StatementKind
    rounds: int
    state: bytes
    model: bytes
    threshold: float
    leaves: int
    root: bytes
    approval: bytes
    verdict: ReleaseVerdict = field(default=NOT_ASKED)

    def __post_init__(self) -> None:
        """Check ranges and lengths."""
        digests = all(len(getattr(self, name)) == hashlib.sha256().digest_size for name in _DIGESTS)
        counts = 0 <= self.rounds < MAX_COUNT and 1 <= self.leaves < MAX_COUNT
        whole = digests and counts and math.isfinite(self.threshold)
        if not whole or not _RUN.fullmatch(self.run):
            raise ValueError(f"a statement about run {self.run!r}, {self.leaves} leaves, {self.rounds} rounds")

    @property
    def same_run(self) -> tuple[FederationName, bytes, str]:
        """Return what all statements of one run share."""
        return self.federation, self.plan_digest, self.run

    @property
    def same_state(self) -> tuple[int, int, bytes, bytes, float, bytes]:
        """Return what the statements of all honest sites share at one place of the run."""
        return self.leaves, self.rounds, self.state, self.model, self.threshold, self.root


def sign_statement(statement: SiteStatement, signing_key: Ed25519PrivateKey) -> bytes:
    """Return the signed bytes of a statement, at most 4096.

    Args:
        statement: what the site states.
        signing_key: the key that the roster pins for it.
    """
    fields = _fields(statement)
    signature = signing_key.sign(_message(fields))
    return _canonical({**fields, "signature": base64.b64encode(signature).decode("ascii")})


def parse_statement(raw: bytes) -> SiteStatement:
    """Return what a statement says; who signed it is for `verify_statement`.

    Args:
        raw: the bytes; anything that somebody has sent.

    Raises:
        AuditError: they are no statement in its one spelling.
    """
    return _read(_parsed(raw))


def verify_statement(raw: bytes, public_key: Ed25519PublicKey) -> SiteStatement:
    """Return what a statement says, once its signature is checked.

    Args:
        raw: the bytes; anything that somebody has sent.
        public_key: the key that the roster pins for the site in whose name it is.

    Raises:
        AuditError: they are no statement, or the holder of the key has not signed it.
    """
    fields = _parsed(raw)
    statement = _read(fields)
    signature = fields.pop("signature")
    try:
        public_key.verify(base64.b64decode(str(signature)), _message(fields))
    except (InvalidSignature, ValueError) as error:
        raise AuditError(
            f"the statement of {statement.participant} was not signed with the key that the roster pins for "
            f"{statement.participant}",
            _REMEDY,
        ) from error
    return statement


def approval_digest(approval: bytes) -> bytes:
    """Return the 32 bytes by which a statement names a signed approval."""
    return hashlib.sha256(approval).digest()


def _fields(statement: SiteStatement) -> dict[str, object]:
    return {
        "format": FORMAT,
        "federation": str(statement.federation),
        "participant": str(statement.participant),
        "run": statement.run,
        "kind": statement.kind.value,
        "rounds": statement.rounds,
        "threshold": _DOUBLE.pack(statement.threshold).hex(),
        "leaves": statement.leaves,
        "release": statement.verdict.release.value,
        "reasons": [reason.value for reason in statement.verdict.reasons],
        **{name: format_digest(getattr(statement, name)) for name in _DIGESTS},
    }


def _parsed(raw: bytes) -> dict[str, object]:
    """Return the fields of a statement, signature included, as they stand in it."""
    if len(raw) > MAX_BYTES:
        raise _fault(f"{len(raw)} bytes, at most {MAX_BYTES}")
    try:
        fields = json.loads(raw.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise _fault("no JSON in ASCII") from error
    if fault := other_version(raw, FORMAT, "the statement"):
        raise AuditError(fault, REMEDY)
    # Refuses duplicate keys, other orders, spaces and trailing bytes at once.
    if (
        not isinstance(fields, dict)
        or not isinstance(fields.get("signature"), str)
        or not _is_canonical(fields, raw)
    ):
        raise _fault("not in its one spelling")
    return fields


def _is_canonical(fields: dict[str, object], raw: bytes) -> bool:
    try:
        return _canonical(fields) == raw
    except ValueError:  # NaN and infinity, which JSON does not have.
        return False


def _read(fields: dict[str, object]) -> SiteStatement:
    """Return the statement of fields; what they spell differently than `_fields` is refused."""
    texts = {name: str(fields.get(name)) for name in fields}
    reasons, counts = fields.get("reasons"), (fields.get("rounds"), fields.get("leaves"))
    if not isinstance(reasons, list) or not all(type(count) is int for count in counts):
        raise _fault("a field of another type")
    try:
        statement = SiteStatement(
            parse_federation_name(texts["federation"]),
            parse_participant_id(texts["participant"]),
            parse_digest(texts["plan_digest"]),
            texts["run"],
            StatementKind(texts["kind"]),
            int(texts["rounds"]),
            parse_digest(texts["state"]),
            parse_digest(texts["model"]),
            float(_DOUBLE.unpack(bytes.fromhex(texts["threshold"]))[0]),
            int(texts["leaves"]),
            parse_digest(texts["root"]),
            parse_digest(texts["approval"]),
            ReleaseVerdict(Release(texts["release"]), tuple(ReleaseReason(str(reason)) for reason in reasons)),
        )
    except (KeyError, ValueError, struct.error, FedfairError) as error:
        raise _fault("a field is missing or has a value that none has") from error
    signature = fields["signature"]
    if {**_fields(statement), "signature": signature} != fields or not _is_base64(str(signature)):
        raise _fault("a field has another spelling")
    return statement


def _is_base64(text: str) -> bool:
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode("ascii") == text
    except ValueError:
        return False


def _message(fields: dict[str, object]) -> bytes:
    signed = [part for name in sorted(fields) for part in (name.encode(), _canonical(fields[name]))]
    return labelled_message(LABEL, signed)


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _fault(why: str) -> AuditError:
    return AuditError(f"this is no statement of a site: {why}", _REMEDY)
