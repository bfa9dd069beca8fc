"""A site that lies to its neighbours in a sparse graph is found, left out and named; the others' sum is opened."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.effects import Send
from fedfair.secagg.messages import Kind
from fedfair.secagg.round_messages import UnmaskShares, Upload
from tests.attacks.test_blame import LyingWire, of_kind, resigned_upload
from tests.secagg.federation_in_memory import unit_update
from tests.secagg.test_sparse_sessions import MEMBERS, NEIGHBOURS, ring_of

LIAR = 4


@pytest.fixture
def wire() -> LyingWire:
    wire = LyingWire(MEMBERS)
    wire.terms = replace(wire.terms, neighbours=NEIGHBOURS)
    wire.__post_init__()
    wire.set_up()
    assert ring_of(wire).terms.neighbours == NEIGHBOURS
    return wire


def run(wire: LyingWire) -> tuple[int, ...] | None:
    opened = wire.round({member: unit_update(member, MEMBERS) for member in wire.roster.indices})
    return None if opened is None else opened.survivors


def with_other_tags(send: Send) -> Send:
    upload = Upload.decode(send.message)
    return resigned_upload(replace(upload, tags=tuple((peer, bytes(16)) for peer, _ in upload.tags)), send)


def with_other_shares(send: Send) -> Send:
    answer = UnmaskShares.decode(send.message)
    others = tuple((owner, share if owner == LIAR else bytes(32)) for owner, share in answer.shares)
    return replace(send, message=replace(answer, shares=others).encode())


def test_a_site_with_other_keys_than_its_neighbours_is_left_out_and_named(wire: LyingWire) -> None:
    wire.lie = of_kind(Kind.UPLOAD, (LIAR,), with_other_tags)
    assert run(wire) == tuple(member for member in wire.roster.indices if member != LIAR)
    [found] = wire.contradicted
    assert (found.member, found.left_out, found.proven) == (LIAR, True, False)


def test_wrong_shares_are_done_without_and_their_sender_is_named(wire: LyingWire) -> None:
    wire.lie = of_kind(Kind.UNMASK_SHARES, (LIAR,), with_other_shares)
    assert run(wire) == tuple(wire.roster.indices)
    assert {found.member for found in wire.contradicted} <= {LIAR}


def test_an_upload_for_others_than_its_neighbours_is_refused(wire: LyingWire) -> None:
    def foreign(send: Send) -> Send:
        upload = Upload.decode(send.message)
        stranger = next(m for m in wire.roster.indices if m not in (LIAR, *ring_of(wire).neighbours(LIAR)))
        tags = tuple(sorted((*upload.tags[1:], (stranger, bytes(16)))))
        return resigned_upload(replace(upload, tags=tags), send)

    wire.lie = of_kind(Kind.UPLOAD, (LIAR,), foreign)
    assert run(wire) == tuple(member for member in wire.roster.indices if member != LIAR)
    [(member, fault)] = wire.refused
    assert member == LIAR
    assert isinstance(fault, SecaggError)
    assert fault.check is Check.ENVELOPE


def test_garbage_for_neighbours_is_named_by_them(wire: LyingWire) -> None:
    def garbage(send: Send) -> Send:
        upload = Upload.decode(send.message)
        first = tuple((peer, bytes(48)) for peer, _ in upload.envelopes[:1])
        return resigned_upload(replace(upload, envelopes=(*first, *upload.envelopes[1:])), send)

    wire.lie = of_kind(Kind.UPLOAD, (LIAR,), garbage)
    assert run(wire) == tuple(wire.roster.indices)
    assert {found.member for found in wire.contradicted} == {LIAR}
    [(holder, _)] = wire.accusations
    assert holder in ring_of(wire).neighbours(LIAR)
