"""A federation that stands, in memory: its members' keys, a record, and acts of each."""

import functools
import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedfair.consortium.acts import Act, ActKind, StudyOutcome, sign_act
from fedfair.consortium.members import Consortium, parse_consortium, sign_consortium
from fedfair.consortium.record import ActRecord, sign_entry
from fedfair.identity.signing import format_signing_key
from fedfair.ids import FederationName, ParticipantId
from fedfair.plan.approval import approve

HEART = FederationName("heart")
ROLES = {
    "anna": "lead",
    "bert": "researcher",
    "carl": "researcher",
    "dora": "observer",
    "clinic-a": "site",
    "clinic-b": "site",
    "clinic-c": "site",
}
SITES = ("clinic-a", "clinic-b", "clinic-c")
PLAN = bytes(range(32))
AT = "2026-01-31T12:00:00+00:00"


@functools.cache
def key_of(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def public(name: str) -> str:
    return format_signing_key(key_of(name).public_key())


def listed(number: int = 1, signed_by: str = "anna", roles: dict[str, str] = ROLES, **other: object) -> bytes:
    values = {
        "format": "fedfair/consortium/1",
        "federation": "heart",
        "number": number,
        "hub": {"host": "localhost", "port": 8443, "key": public("aggregator")},
        "members": {name: {"role": role, "key": public(name)} for name, role in roles.items()},
    }
    return sign_consortium({**values, **other}, key_of(signed_by))


def consortium(**changes: object) -> Consortium:
    return parse_consortium(listed(**changes))  # type: ignore[arg-type]


class Play:
    """A hub's record, and acts that come into it."""

    def __init__(self, first: bytes | None = None) -> None:
        self.record = ActRecord()
        self.lines: list[bytes] = []
        self.add(self.act(ActKind.MEMBERS, "anna", payload=first or listed()))

    def act(self, kind: ActKind, by: str, *, signed_by: str = "", **fields: object) -> bytes:
        told = {"study": "stroke", "plan_digest": PLAN, "words": "why not"} if kind is not ActKind.MEMBERS else {}
        if kind is ActKind.SUBMITTED:
            told |= {"archive_digest": bytes(32), "archive_bytes": 7, "sites": SITES, "needed": 3}
        if kind is ActKind.APPROVED:
            told["payload"] = approval_of(by)
        if kind is ActKind.ENDED:
            told["outcome"] = StudyOutcome.FINISHED
        values = {"seen": self.record.head, "federation": HEART, "at": AT, **told, **fields}
        return sign_act(Act(kind=kind, by=by, **values), key_of(signed_by or by))  # type: ignore[arg-type]

    def entry(self, act: bytes, signed_by: str = "aggregator") -> bytes:
        number, digest = self.record.head
        return sign_entry(number + 1, digest, act, HEART, key_of(signed_by))

    def add(self, act: bytes) -> bytes:
        entry = self.entry(act)
        self.record.extend(entry)
        self.lines.append(entry)
        return entry

    def done(self, kind: ActKind, by: str, **fields: object) -> bytes:
        return self.add(self.act(kind, by, **fields))

    def approved(self, *names: str) -> None:
        for name in names:
            self.done(ActKind.APPROVED, name)


def approval_of(name: str, plan: bytes = PLAN) -> bytes:
    return approve(plan, HEART, ParticipantId(name), key_of(name), approved_at=AT)
