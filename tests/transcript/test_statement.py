"""A site's statement: one spelling, one signature, and nothing in it that somebody else could have put there."""

from __future__ import annotations

import json
import struct
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.errors import AuditError
from fedfair.ids import ParticipantId
from fedfair.transcript.statement import (
    LABEL,
    MAX_BYTES,
    Release,
    ReleaseReason,
    ReleaseVerdict,
    SiteStatement,
    StatementKind,
    approval_digest,
    parse_statement,
    sign_statement,
    verify_statement,
)
from tests.transcript.played import APPROVALS, FEDERATION, KEYS, PLAN_DIGEST, RUN, SITES, Play, signatory

A, B = SITES
KEY = KEYS[A]
STATEMENT = SiteStatement(
    FEDERATION, A, PLAN_DIGEST, RUN, StatementKind.FINAL, 12, bytes([1]) * 32, bytes([2]) * 32, 0.75, 26,
    bytes([3]) * 32, bytes([4]) * 32,
    ReleaseVerdict(Release.WITHHELD, tuple(ReleaseReason)),
)  # fmt: skip
RAW = sign_statement(STATEMENT, KEY)
TOLD = json.loads(RAW)


def spelt(**other: object) -> bytes:
    return json.dumps({**TOLD, **other}, sort_keys=True, separators=(",", ":")).encode()


def test_what_is_signed_is_what_is_read() -> None:
    assert verify_statement(RAW, KEY.public_key()) == STATEMENT == parse_statement(RAW)
    assert len(RAW) < MAX_BYTES // 2
    signed = {name: value for name, value in TOLD.items() if name != "signature"}
    told = b"".join(
        struct.pack(">I", len(part)) + part
        for name, value in sorted(signed.items())
        for part in (name.encode(), json.dumps(value, separators=(",", ":")).encode())
    )
    message = LABEL.encode() + b"\0" + struct.pack(">I", 2 * len(signed)) + told
    KEY.public_key().verify(__import__("base64").b64decode(TOLD["signature"]), message)


def test_a_statement_of_anything_else_has_another_signature() -> None:
    others = {
        "participant": B, "plan_digest": bytes(32), "run": "a" * 32, "rounds": 13,
        "kind": StatementKind.CHECKPOINT, "state": bytes(32), "model": bytes(32), "threshold": 0.5,
        "leaves": 27, "root": bytes(32),
        "approval": bytes(32), "verdict": ReleaseVerdict(), "federation": "liver",
    }  # fmt: skip
    assert others.keys() == {one.name for one in fields(SiteStatement)}
    for name, value in others.items():
        other = sign_statement(replace(STATEMENT, **{name: value}), KEY)
        mixed = json.loads(other) | {"signature": TOLD["signature"]}
        with pytest.raises(AuditError, match="was not signed with the key"):
            verify_statement(json.dumps(mixed, sort_keys=True, separators=(",", ":")).encode(), KEY.public_key())
    with pytest.raises(AuditError, match="the statement of clinic-a was not signed"):
        verify_statement(RAW, KEYS[B].public_key())


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"[]", b"{}", b"\xff", b"[" * 5000, RAW + b" ", RAW[:-1], b" " + RAW, b"x" * (MAX_BYTES + 1),
        RAW.replace(b'"leaves":26', b'"leaves":26.0'), RAW.replace(b'"leaves":26', b'"leaves":026'),
        RAW.replace(b'"leaves":26', b'"leaves":NaN'), spelt(leaves=True), spelt(leaves=0), spelt(rounds=-1),
        spelt(leaves=1 << 53), spelt(threshold="7ff8000000000000"), spelt(threshold="3fe8"), spelt(threshold="x"),
        spelt(threshold="3FE8000000000000"), spelt(run="0F" * 16), spelt(kind="last"), spelt(release="agreed"),
        spelt(release="not asked"), spelt(release="withheld", reasons=[]), spelt(reasons=["none of yours"]),
        spelt(reasons=[ReleaseReason.NO_AUDIT.value] * 2), spelt(reasons={}), spelt(more=1), spelt(signature=7),
        spelt(signature="="), spelt(participant="Clinic A"), spelt(participant="aggregator"), spelt(federation=""),
        spelt(root="sha256:00"), spelt(format="fedfair/site-statement/2"),
        json.dumps({name: value for name, value in TOLD.items() if name != "run"}, sort_keys=True).encode(),
        RAW.replace(b'"run":', b'"run":"' + b"0" * 32 + b'","run":'),
    ],
)  # fmt: skip
def test_bytes_that_are_no_statement_are_refused(raw: bytes) -> None:
    with pytest.raises(AuditError):
        verify_statement(raw, KEY.public_key())


@given(st.integers(0, len(RAW) - 1), st.integers(1, 255))
def test_no_changed_byte_is_believed(place: int, change: int) -> None:
    changed = bytearray(RAW)
    changed[place] ^= change
    with pytest.raises(AuditError):
        verify_statement(bytes(changed), KEY.public_key())


def test_reasons_are_given_exactly_where_agreement_is_withheld() -> None:
    for release, reasons in (
        (Release.AGREED, (ReleaseReason.NO_AUDIT,)),
        (Release.WITHHELD, ()),
        (Release.NOT_ASKED, (ReleaseReason.NO_AUDIT,)),
        (Release.WITHHELD, (ReleaseReason.NO_AUDIT, ReleaseReason.NO_AUDIT)),
    ):
        with pytest.raises(ValueError, match="reasons"):
            ReleaseVerdict(release, reasons)


def test_two_sites_sign_the_same_state_and_each_its_own_approval() -> None:
    play = Play().finish()
    said = [
        parse_statement(
            signatory(name).statement(play.replica, StatementKind.FINAL, ReleaseVerdict(Release.AGREED))
        )
        for name in SITES
    ]
    assert said[0].same_state == said[1].same_state
    assert said[0].same_run == said[1].same_run
    assert [one.approval for one in said] == [approval_digest(APPROVALS[name]) for name in SITES]
    assert play.run.state.tree is not None
    assert (said[0].leaves, said[0].root) == (7, play.run.state.tree.root)
    assert (said[0].state, said[0].model) == (play.replica.digest, play.run.model.vector_sha256)
    assert said[0].verdict.release is Release.AGREED
    assert (
        parse_statement(signatory(ParticipantId("clinic-b")).statement(play.replica, StatementKind.FINAL)).verdict
        == ReleaseVerdict()
    )
