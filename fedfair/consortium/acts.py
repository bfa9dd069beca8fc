"""An act: what one member of a federation has done, signed with the member's own key.

    {"at": "2026-01-31T12:00:00+00:00", "by": "clinic-a", "federation": "heart", "format": "fedfair/act/1",
     "kind": "refused", "plan_digest": "sha256:...", "seen": "41 sha256:...", "signature": "<base64>",
     "study": "stroke-2", "words": "our ethics committee has not met yet"}

A kind has exactly the fields that `FIELDS` gives it. The signature is Ed25519 over a label and every other field
in the order of their names, each with its name and its length in front: never over JSON. The text itself has one
spelling too (keys sorted, no spaces), so that no byte of it is outside what was checked.

`seen` is the newest entry of the record that the author knew, by number and digest. So a hub that shows two
members different pasts is found as soon as an act of one comes into the record of the other.

    raw = sign_act(Act(ActKind.REFUSED, federation, by="clinic-a", at=..., seen=record.head, study="stroke-2",
                       plan_digest=..., words="..."), signing_key)
    act = parse_act(raw); verify_act(raw, act, public_key)
"""

from __future__ import annotations

import base64
import enum
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.errors import FedfairError, IdentityError
from fedfair.file_formats import REMEDY, other_version
from fedfair.identity.signing import decode_base64
from fedfair.ids import FederationName
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.process.printable import printable
from fedfair.signed_message import labelled_message

FORMAT = "fedfair/act/1"
LABEL = "fedfair/act/v1"
MAX_BYTES = 1 << 18
"""Of one act; the longest one names a thousand sites, or carries a list of a thousand members."""
MAX_WORDS = 2000
MAX_TIME_LENGTH = 64
MAX_SITES = 1000
MAX_FILE_BYTES = 1 << 40

STUDY_NAME = re.compile(r"[a-z0-9-]{1,40}")
NO_ENTRY: Final = (0, bytes(32))
"""What the author of an act has seen before the record has an entry."""

_MAKE_AGAIN = "make it again with the same version of fedfair on both sides"


class ActKind(enum.Enum):
    """The kind of an act; the value is the word in it."""

    MEMBERS = "members"
    SUBMITTED = "submitted"
    APPROVED = "approved"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    STARTED = "started"
    ENDED = "ended"


class StudyOutcome(enum.Enum):
    """How a study ended."""

    FINISHED = "finished"
    ABORTED = "aborted"


_OF_ALL = frozenset({"format", "federation", "kind", "by", "at", "seen"})
_OF_STUDY = frozenset({"study", "plan_digest", "words"})
FIELDS: Mapping[ActKind, frozenset[str]] = MappingProxyType(
    {
        ActKind.MEMBERS: frozenset({"payload"}),
        ActKind.SUBMITTED: _OF_STUDY | {"archive_digest", "archive_bytes", "sites", "needed"},
        ActKind.APPROVED: _OF_STUDY | {"payload"},
        ActKind.REFUSED: _OF_STUDY,
        ActKind.WITHDRAWN: _OF_STUDY,
        ActKind.STARTED: _OF_STUDY,
        ActKind.ENDED: _OF_STUDY | {"outcome", "result_digest", "result_bytes"},
    }
)
"""The fields of each kind, beside those of all acts and the signature."""


@dataclass(frozen=True, slots=True)
class Act:
    """One act, without its signature. What its kind has no field for keeps its default.

    Attributes:
        kind: of the act.
        federation: in which it is done.
        by: the member's name; "aggregator" for the hub.
        at: when, in ISO 8601 and at most 64 characters; for people, not compared.
        seen: number and digest of the newest entry of the record that the author knew.
        study: its name.
        plan_digest: 32 bytes; what the study is.
        words: the author's, at most 2000 characters.
        archive_digest: SHA-256 of the study's archive, 32 bytes.
        archive_bytes: its length.
        sites: the collaborators of the plan, in its order.
        needed: how many of them must approve; all where the plan says no number.
        payload: `approved`: the site's own `fedfair/approval/1`; `members`: the signed consortium.yaml.
        outcome: how the study ended.
        result_digest: SHA-256 of the archive of its result, 32 bytes; empty where there is none.
        result_bytes: its length.
    """

    kind: ActKind
    federation: FederationName
    by: str
    at: str
    seen: tuple[int, bytes] = NO_ENTRY
    study: str = ""
    plan_digest: bytes = b""
    words: str = ""
    archive_digest: bytes = b""
    archive_bytes: int = 0
    sites: tuple[str, ...] = ()
    needed: int = 0
    payload: bytes = field(default=b"", repr=False)
    outcome: StudyOutcome | None = None
    result_digest: bytes = b""
    result_bytes: int = 0


def sign_act(act: Act, signing_key: Ed25519PrivateKey) -> bytes:
    """Return the signed bytes of an act.

    Args:
        act: what was done.
        signing_key: of its author.

    Raises:
        ConsortiumError: a value of the act is out of its bounds.
    """
    values = _values(act)
    signature = base64.b64encode(signing_key.sign(_message(values))).decode("ascii")
    raw = _canonical({**values, "signature": signature})
    parse_act(raw)
    return raw


def parse_act(raw: bytes) -> Act:
    """Return the act that bytes say, which may still be signed by anybody.

    Raises:
        ConsortiumError: they are not the one spelling of an act of this version.
    """
    values = _parsed(raw)
    try:
        return _act(values)
    except (FedfairError, ValueError, TypeError, KeyError) as error:
        _refuse(f"a value of the act is wrong: {error}", error)


def verify_act(raw: bytes, public_key: Ed25519PublicKey) -> None:
    """Check who has signed an act.

    Args:
        raw: an act that `parse_act` takes.
        public_key: of the member that the act names.

    Raises:
        ConsortiumError: somebody else has signed it, or nobody.
    """
    values = _parsed(raw)
    try:
        signature = decode_base64(str(values.pop("signature")), "the signature of the act")
        public_key.verify(signature, _message(values))
    except (InvalidSignature, IdentityError) as error:
        raise ConsortiumError(
            RecordCheck.SIGNATURE,
            f"the act {values['kind']!r} was not signed with the key of {values['by']}",
            "somebody speaks in another's name, or uses an older key: ask the lead",
        ) from error


def check_study_name(name: str) -> None:
    """Refuse what cannot be the name of a study.

    Raises:
        ConsortiumError: it is not 1 to 40 of a-z, 0-9 and '-'.
    """
    if not STUDY_NAME.fullmatch(name):
        raise ConsortiumError(
            RecordCheck.FORM,
            f"{name[:80]!r} cannot name a study",
            "use 1 to 40 of a-z, 0-9 and '-', such as stroke-2",
        )


def _values(act: Act) -> dict[str, object]:
    number, digest = act.seen
    values: dict[str, object] = {
        "format": FORMAT,
        "federation": str(act.federation),
        "kind": act.kind.value,
        "by": act.by,
        "at": act.at,
        "seen": f"{number} {format_digest(digest)}",
    }
    spelt: dict[str, object] = {
        "study": act.study,
        "words": act.words,
        "plan_digest": _spelt(act.plan_digest),
        "archive_digest": _spelt(act.archive_digest),
        "archive_bytes": act.archive_bytes,
        "sites": list(act.sites),
        "needed": act.needed,
        "payload": base64.b64encode(act.payload).decode("ascii"),
        "outcome": act.outcome.value if act.outcome else "",
        "result_digest": _spelt(act.result_digest),
        "result_bytes": act.result_bytes,
    }
    return {**values, **{name: spelt[name] for name in FIELDS[act.kind]}}


def _spelt(digest: bytes) -> str:
    return format_digest(digest) if digest else ""


def _parsed(raw: bytes) -> dict[str, object]:
    if len(raw) > MAX_BYTES:
        _refuse(f"an act of {len(raw)} bytes; at most {MAX_BYTES} are read")
    try:
        values = json.loads(raw.decode("ascii"))
    except (ValueError, RecursionError) as error:
        _refuse("the act is not JSON in ASCII", error)
    if fault := other_version(raw, FORMAT, "the act"):
        raise ConsortiumError(RecordCheck.FORM, fault, REMEDY)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        _refuse(f"the act does not say that it is {FORMAT}")
    kinds = {kind.value: kind for kind in ActKind}
    kind = kinds.get(values["kind"]) if isinstance(values.get("kind"), str) else None
    if kind is None:
        _refuse(f"the act is of no known kind: {str(values.get('kind'))[:40]!r}")
    expected = _OF_ALL | FIELDS[kind] | {"signature"}
    if values.keys() != expected:
        _refuse(f"an act of the kind {kind.value} has exactly the fields {', '.join(sorted(expected))}")
    if not all(_is_plain(value) for value in values.values()):
        _refuse("a field of the act is neither a printable text, a number nor a list of names")
    # Refuses duplicate keys, other orders, spaces and trailing bytes at once.
    if _canonical(values) != raw:
        _refuse("the act is not in its one spelling")
    return values


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= MAX_SITES and all(isinstance(item, str) and _is_plain(item) for item in value)
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, str) and printable(value) == value)


def _act(values: Mapping[str, object]) -> Act:
    """Return the act of values whose keys are known; faults of their types are any of four exceptions."""
    kind = ActKind(values["kind"])
    text = {name: _text(values[name], name) for name in ("by", "at", "federation", "seen")}
    if len(text["at"]) > MAX_TIME_LENGTH or not text["by"]:
        raise ValueError("the time is too long, or there is no author")
    number, _, digest = text["seen"].partition(" ")
    found: dict[str, object] = {}
    for name in FIELDS[kind]:
        found[name] = _READ[name](values[name])
    if "study" in found:
        check_study_name(str(found["study"]))
    seen = (_count(int(number)), parse_digest(digest))
    if f"{seen[0]} {format_digest(seen[1])}" != text["seen"]:
        raise ValueError("what the author has seen is not in its one spelling")
    return Act(kind, FederationName(text["federation"]), text["by"], text["at"], seen, **found)  # type: ignore[arg-type]


def _text(value: object, name: str = "words", limit: int = MAX_WORDS) -> str:
    if not isinstance(value, str) or len(value) > limit:
        raise ValueError(f"{name} is no text of at most {limit} characters")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value <= MAX_FILE_BYTES:
        raise ValueError(f"{str(value)[:40]} is not a number from 0 to {MAX_FILE_BYTES}")
    return value


def _digest(value: object) -> bytes:
    return parse_digest(_text(value))


def _digest_or_none(value: object) -> bytes:
    return parse_digest(_text(value)) if value else b""


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or len(set(value)) != len(value):
        raise ValueError("sites is no list of names, each once")
    return tuple(value)


def _payload(value: object) -> bytes:
    return decode_base64(_text(value, "payload", MAX_BYTES), "the payload of the act")


_READ: Mapping[str, Callable[[object], object]] = MappingProxyType(
    {
        "study": _text,
        "words": _text,
        "plan_digest": _digest,
        "archive_digest": _digest,
        "archive_bytes": _count,
        "sites": _names,
        "needed": _count,
        "payload": _payload,
        "outcome": StudyOutcome,
        "result_digest": _digest_or_none,
        "result_bytes": _count,
    }
)


def _message(values: Mapping[str, object]) -> bytes:
    """Return the bytes to sign: every field by name and value, lists item by item with their length in front."""
    parts: list[bytes] = []
    for name in sorted(values):
        value = values[name]
        items = [str(item).encode() for item in value] if isinstance(value, list) else [str(value).encode()]
        parts += [name.encode("ascii"), str(len(items)).encode("ascii"), *items]
    return labelled_message(LABEL, parts)


def _canonical(values: Mapping[str, object]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")


def _refuse(message: str, cause: BaseException | None = None) -> NoReturn:
    raise ConsortiumError(RecordCheck.FORM, message, _MAKE_AGAIN) from cause
