"""Approvals: made once, verified byte for byte, refused in every altered form."""

import base64
import json
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedfair.errors import ApprovalError
from fedfair.ids import FederationName, ParticipantId
from fedfair.plan.approval import MAX_BYTES, approve, verify_approval
from fedfair.plan.digest import format_digest

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
DIGEST = b"\x11" * 32
OTHER_DIGEST = b"\x22" * 32
HEART = FederationName("heart")
CLINIC_A = ParticipantId("clinic-a")
WHEN = "2026-01-31T12:00:00+00:00"
APPROVAL = approve(DIGEST, HEART, CLINIC_A, KEY, approved_at=WHEN)


def refusal(raw: bytes, digest: bytes = DIGEST) -> str:
    with pytest.raises(ApprovalError) as caught:
        verify_approval(
            raw, plan_digest=digest, federation=HEART, participant=CLINIC_A, public_key=KEY.public_key()
        )
    return caught.value.message


def altered(change: Callable[[dict[str, object]], object]) -> bytes:
    fields = json.loads(APPROVAL)
    change(fields)
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def test_an_approval_verifies_and_is_readable() -> None:
    verify_approval(
        APPROVAL, plan_digest=DIGEST, federation=HEART, participant=CLINIC_A, public_key=KEY.public_key()
    )
    fields = json.loads(APPROVAL)
    assert fields.pop("signature")
    assert fields == {
        "format": "fedfair/approval/1", "federation": "heart", "participant": "clinic-a",
        "plan_digest": "sha256:" + "11" * 32, "approved_at": WHEN,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (approve(DIGEST, HEART, ParticipantId("clinic-b"), KEY, approved_at=WHEN), "for participant 'clinic-b'"),
        (approve(DIGEST, FederationName("lungs"), CLINIC_A, KEY, approved_at=WHEN), "for federation 'lungs'"),
        (approve(DIGEST, HEART, CLINIC_A, OTHER_KEY, approved_at=WHEN), "was not signed with the key"),
        (altered(lambda fields: fields.update(approved_at="2027-01-31T12:00:00+00:00")), "was not signed with"),
        (altered(lambda fields: fields.update(signature="AAAA")), "was not signed with the key"),
        (altered(lambda fields: fields.update(signature="!")), "the signature of the approval is not base64"),
        (altered(lambda fields: fields.update(format="fedfair/approval/2")), "has the format fedfair/approval/2"),
        (altered(lambda fields: fields.update(note="x")), "does not have exactly the fields"),
        (altered(lambda fields: fields.pop("approved_at")), "does not have exactly the fields"),
        (altered(lambda fields: fields.update(approved_at=3)), "a field of the approval is not a printable text"),
        (altered(lambda fields: fields.update(approved_at="\ud800")), "is not a printable text"),
        (altered(lambda fields: fields.update(approved_at="\x1b[2J")), "is not a printable text"),
        (APPROVAL + b"\n", "is not in its canonical form"), (b" " + APPROVAL, "is not in its canonical form"),
        (json.dumps(json.loads(APPROVAL)).encode(), "is not in its canonical form"),
        (APPROVAL[:-1] + b',"federation":"heart"}', "is not in its canonical form"),
        (APPROVAL + APPROVAL, "is not JSON in ASCII"), (b"", "is not JSON in ASCII"),
        (b"\xff", "is not JSON in ASCII"), (b"[" * 4000, "is not JSON in ASCII"),
        (b"[]", "does not have exactly the fields"),
        (b"9" * 4096, "the approval does not have exactly the fields"),
        (APPROVAL + b" " * MAX_BYTES, f"at most {MAX_BYTES}"),
    ],
)  # fmt: skip
def test_an_approval_that_is_not_exactly_right_is_refused(raw: bytes, expected: str) -> None:
    assert expected in refusal(raw)


def test_approvals_of_another_plan_or_purpose_are_refused_and_long_names_fit() -> None:
    longest = "a" * 40
    raw = approve(DIGEST, FederationName(longest), ParticipantId(longest), KEY, approved_at="2" * 64)
    assert len(raw) < MAX_BYTES // 4
    with pytest.raises(ApprovalError, match="has 65 characters"):
        approve(DIGEST, HEART, CLINIC_A, KEY, approved_at="2" * 65)
    message = refusal(APPROVAL, OTHER_DIGEST)
    assert format_digest(DIGEST) in message
    assert format_digest(OTHER_DIGEST) in message
    raw = json.loads(APPROVAL)
    parts = [b"fedfair/request/v1", b"\0", (5).to_bytes(4, "big")]
    for name in ("format", "federation", "participant", "plan_digest", "approved_at"):
        parts += [len(raw[name]).to_bytes(4, "big"), raw[name].encode()]
    forged = base64.b64encode(KEY.sign(b"".join(parts))).decode()
    assert "was not signed with the key" in refusal(altered(lambda fields: fields.update(signature=forged)))


@given(st.integers(0, len(APPROVAL) - 1), st.integers(1, 255))
@example(APPROVAL.index(b"==") - 1, 2)  # Bits that the decoder of base64 does not look at.
@settings(deadline=None, max_examples=70)
def test_every_changed_byte_is_refused(index: int, difference: int) -> None:
    raw = bytearray(APPROVAL)
    raw[index] ^= difference
    refusal(bytes(raw))


@given(st.integers(0, len(APPROVAL) - 1))
@settings(deadline=None, max_examples=25)
def test_every_truncation_is_refused(length: int) -> None:
    refusal(APPROVAL[:length])
