"""A site's signed consent to exactly one plan.

    {"format": "fedfair/approval/1", "federation": "heart", "participant": "clinic-a",
     "plan_digest": "sha256:...", "approved_at": "2026-01-31T12:00:00+00:00", "signature": "<base64>"}

The signature is Ed25519 by the site's long-lived key, over the label and the five other fields, each with its
length in front: never over JSON, which has many spellings. The file itself has one spelling too (keys sorted, no
spaces), so that no byte of it is outside what was checked. Who holds which key is the plan's roster. The
site, when it starts, and the aggregator, when it is connected to, verify the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedfair.errors import ApprovalError
from fedfair.file_formats import REMEDY, other_version
from fedfair.ids import FederationName, ParticipantId
from fedfair.plan.digest import format_digest
from fedfair.signed_message import labelled_message

FORMAT = "fedfair/approval/1"
LABEL = "fedfair/approval/v1"
MAX_BYTES = 4096
MAX_TIME_LENGTH = 64

_SIGNED = ("format", "federation", "participant", "plan_digest", "approved_at")
_FIELDS = frozenset({*_SIGNED, "signature"})
_REMEDY = "the site makes a new one with `fedfair plan approve`"


def approve(
    plan_digest: bytes,
    federation: FederationName,
    participant: ParticipantId,
    signing_key: Ed25519PrivateKey,
    *,
    approved_at: str,
) -> bytes:
    """Return a site's approval, at most 4096 bytes.

    Args:
        plan_digest: 32 bytes, of the plan.
        federation: its federation.
        participant: who approves.
        signing_key: the key that the roster pins for the participant.
        approved_at: when, in ISO 8601 and at most 64 characters; for people, not compared.

    Raises:
        ApprovalError: the time is too long.
    """
    if len(approved_at) > MAX_TIME_LENGTH:
        raise ApprovalError(
            f"the time of an approval has {len(approved_at)} characters, at most {MAX_TIME_LENGTH}"
        )
    fields = {
        "format": FORMAT,
        "federation": str(federation),
        "participant": str(participant),
        "plan_digest": format_digest(plan_digest),
        "approved_at": approved_at,
    }
    signature = signing_key.sign(_message(fields))
    return _canonical({**fields, "signature": base64.b64encode(signature).decode("ascii")})


def verify_approval(
    raw: bytes,
    *,
    plan_digest: bytes,
    federation: FederationName,
    participant: ParticipantId,
    public_key: Ed25519PublicKey,
) -> None:
    """Check that a participant has approved exactly this plan.

    Args:
        raw: the approval as it came.
        plan_digest: 32 bytes, of the plan in use.
        federation: the plan's federation.
        participant: who must have approved.
        public_key: the key that the roster pins for the participant.

    Raises:
        ApprovalError: the approval is malformed, for somebody or something else, or its signature does not verify.
    """
    fields = _parse(raw)
    for name, expected in (("federation", federation), ("participant", participant)):
        if fields[name] != expected:
            raise ApprovalError(f"the approval is for {name} {fields[name]!r}, not for {expected!r}", _REMEDY)
    if fields["plan_digest"] != format_digest(plan_digest):
        raise ApprovalError(
            f"{participant} has approved plan {fields['plan_digest']}, this plan is {format_digest(plan_digest)}",
            "compare the plans, then approve this one with `fedfair plan approve`, or use the approved one",
        )
    try:
        public_key.verify(_signature(fields["signature"]), _message(fields))
    except InvalidSignature as error:
        raise ApprovalError(
            f"the approval of {participant} was not signed with the key that the roster pins for {participant}",
            _REMEDY,
        ) from error


def _parse(raw: bytes) -> dict[str, str]:
    if len(raw) > MAX_BYTES:
        raise ApprovalError(f"the approval has {len(raw)} bytes, at most {MAX_BYTES}", _REMEDY)
    try:
        fields = json.loads(raw.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise ApprovalError("the approval is not JSON in ASCII", _REMEDY) from error
    if fault := other_version(raw, FORMAT, "the approval"):
        raise ApprovalError(fault, REMEDY)
    if not isinstance(fields, dict) or fields.keys() != _FIELDS:
        raise ApprovalError(f"the approval does not have exactly the fields {', '.join(sorted(_FIELDS))}", _REMEDY)
    # Printable only: these texts end up on terminals and in logs.
    if not all(isinstance(value, str) and value.isascii() and value.isprintable() for value in fields.values()):
        raise ApprovalError("a field of the approval is not a printable text", _REMEDY)
    if fields["format"] != FORMAT:
        raise ApprovalError(f"the approval has format {fields['format'][:80]!r}, expected {FORMAT!r}", _REMEDY)
    # Refuses duplicate keys, other orders, spaces and trailing bytes at once.
    if _canonical(fields) != raw:
        raise ApprovalError("the approval is not in its canonical form", _REMEDY)
    return fields


def _signature(text: str) -> bytes:
    try:
        signature = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ApprovalError("the signature of the approval is not base64", _REMEDY) from error
    # The last digit before the padding holds bits that nothing is decoded from.
    if base64.b64encode(signature).decode("ascii") != text:
        raise ApprovalError("the signature of the approval is not in its canonical form", _REMEDY)
    return signature


def _message(fields: dict[str, str]) -> bytes:
    return labelled_message(LABEL, [fields[name].encode() for name in _SIGNED])


def _canonical(fields: dict[str, str]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii")
