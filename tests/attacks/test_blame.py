"""A lying minority is found and named; the honest are never blamed for it, and their sum is opened."""

import itertools
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Self

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.secagg.checks import Check, SecaggError
from fedfair.secagg.disputes import Disputes
from fedfair.secagg.effects import Contradicted, Send, SendTo, ServerEffect
from fedfair.secagg.keys import Chain, Secret
from fedfair.secagg.masking import MaskedSum
from fedfair.secagg.messages import Kind, kind_of
from fedfair.secagg.params import Suite
from fedfair.secagg.round_messages import UnmaskShares, Upload
from fedfair.secagg.server_state import ServerState
from fedfair.secagg.setup_messages import Confirm, KeyAdvertisement, KeyAdvertisements, sealed_digest
from fedfair.secagg.signing import sign
from fedfair.secagg.transcript import digest
from tests.attacks.harness import Lies, refused
from tests.secagg.federation_in_memory import MODEL, Wire, arrived_of, shape_of, signing_key, terms_of, unit_update
from tests.secagg.shares import share_digest
from tests.secagg.test_sparse_sessions import MEMBERS, NEIGHBOURS, ring_of

CHEAP = settings(deadline=None, max_examples=12)
PRIME = 2**255 - 19
LOW_ORDER = (
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    PRIME - 1,
    PRIME,
    PRIME + 1,
)
"""Every form of a point whose order divides 8 that is below 2^255. Source: cr.yp.to/ecdh.html."""


class LyingWire(Wire):
    """Some members alter what they send, and sign it again; whom the aggregator refuses, it does without."""

    def __init__(self, members: int, colluders: int = 0, suite: Suite = Suite.X25519) -> None:
        shapes = {"training": shape_of(members), "evaluation": shape_of(0, 2)}
        super().__init__(members, terms_of(members, colluders, suite=suite), shapes)
        self.lie: Callable[[int, Send], Send] = lambda _, send: send
        self.refused: list[tuple[int, SecaggError]] = []
        self.accusations: list[tuple[int, SecaggError]] = []
        self.contradicted: list[Contradicted] = []

    @classmethod
    def in_session(cls, *arguments: int, **options: object) -> Self:
        """Return a federation whose members have agreed on keys."""
        wire = cls(*arguments, **options)
        wire.set_up()
        return wire

    def to_server(self, member: int, send: Send) -> list[ServerEffect]:
        try:
            return super().to_server(member, self.lie(member, send))
        except SecaggError as fault:
            self.refused.append((member, fault))
            return self.server.gone(member)

    def deliver(self, effects: list[ServerEffect]) -> None:
        pending = list(effects)
        while pending:
            effect = pending.pop(0)
            if isinstance(effect, Contradicted):
                self.contradicted.append(effect)
                if effect.proven or effect.left_out:
                    pending += self.server.gone(effect.member)
            elif isinstance(effect, SendTo):
                pending += self.answer_of(effect.member, effect.message)
            else:
                super().deliver([effect])

    def answer_of(self, member: int, message: bytes) -> list[ServerEffect]:
        """Hand a message over; a site that refuses an envelope says whose it is, and answers nothing."""
        try:
            sends = self.carry_out(member, self.hand_over(member, message))
        except SecaggError as fault:
            if not fault.accused:
                raise
            self.accusations.append((member, fault))
            late = self.server.state is not ServerState.ANSWERS
            return (self.server.accuse_late if late else self.server.accuse)(member, fault.accused)
        return [effect for send in sends for effect in self.to_server(member, send)]

    def sum_of(self, *, members: tuple[int, ...] = (), purpose: str = "training") -> tuple[int, ...] | None:
        """Run one round; return who is in the sum by the sum itself, None where it was not opened."""
        chosen = members or self.server.members
        self.updates = {member: unit_update(member, self.members) for member in chosen}
        opened = self.round(self.updates, purpose=purpose)
        if opened is None:
            return None
        counted = np.rint(opened.body).astype(int)
        assert set(counted) <= {0, 1}
        assert np.abs(opened.body - counted).max() < opened.errors[0]
        return tuple(int(member) for member in np.flatnonzero(counted) + 1)

    def proven(self) -> set[int]:
        return {effect.member for effect in self.contradicted if effect.proven}


def resigned_upload(upload: Upload, send: Send) -> Send:
    signature = sign(signing_key(upload.member), "upload", *upload.signed_fields())
    return Send(replace(upload, signature=signature).encode(), send.vector)


def of_kind(kind: Kind, liars: tuple[int, ...], change: Callable[[Send], Send]) -> Callable[[int, Send], Send]:
    return lambda member, send: change(send) if member in liars and kind_of(send.message) is kind else send


# ---------------------------------------------------------------- keys


def with_key(key: bytes, proposal: Callable[[], bytes]) -> Callable[[Send], Send]:
    def change(send: Send) -> Send:
        advert = replace(KeyAdvertisement.decode(send.message), public_key=key)
        signature = sign(signing_key(advert.member), "advert", *advert.signed_fields(proposal()))
        return Send(replace(advert, signature=signature).encode())

    return change


@pytest.mark.parametrize("high_bit", [0, 1 << 255])
@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_key_of_low_order_in_any_form_costs_its_signer_its_place(point: int, high_bit: int) -> None:
    wire, key = LyingWire(5), (point | high_bit).to_bytes(32, "little")
    wire.lie = of_kind(Kind.KEY_ADVERTISEMENT, (3,), with_key(key, lambda: wire.server._set_up.proposal))
    wire.deliver(wire.server.open_session(wire.roster.indices))
    ((member, fault),) = wire.refused
    assert (member, fault.check) == (3, Check.KEY)
    assert fault.message == f"clinic-3 advertises a public key of low order ({key.hex()})"
    assert (wire.server.members, wire.sum_of()) == ((1, 2, 4, 5), (1, 2, 4, 5))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (bytes([9]) + bytes(31), "a public key of 32 bytes, X25519_MLKEM768 has 1216"),
        (bytes([9]) + bytes(31) + b"\xff" * 1184, "a malformed ML-KEM-768 key"),
        (bytes(32 + 1184), "a public key of low order"),
    ],
    ids=["half a key", "coefficients out of range", "low order"],
)
def test_a_malformed_hybrid_key_costs_its_signer_its_place(key: bytes, words: str) -> None:
    wire = LyingWire(4, suite=Suite.X25519_MLKEM768)
    wire.lie = of_kind(Kind.KEY_ADVERTISEMENT, (2,), with_key(key, lambda: wire.server._set_up.proposal))
    wire.deliver(wire.server.open_session(wire.roster.indices))
    assert [(member, fault.check) for member, fault in wire.refused] == [(2, Check.KEY)]
    assert f"clinic-2 advertises {words}" in wire.refused[0][1].message
    assert wire.server.members == (1, 3, 4)


def test_a_copy_of_another_members_key_costs_the_later_one_its_place() -> None:
    wire, seen = LyingWire(4), []

    def copied(member: int, send: Send) -> Send:
        if kind_of(send.message) is not Kind.KEY_ADVERTISEMENT:
            return send
        seen.append(KeyAdvertisement.decode(send.message).public_key)
        return with_key(seen[0], lambda: wire.server._set_up.proposal)(send) if member == 4 else send

    wire.lie = copied
    wire.deliver(wire.server.open_session(wire.roster.indices))
    assert [fault.message for _, fault in wire.refused] == ["clinic-4 and clinic-1 advertise the same public key"]
    assert wire.server.members == (1, 2, 3)


def test_sealed_keys_for_others_than_are_due_cost_their_signer_its_place() -> None:
    def without(send: Send) -> Send:
        confirm = Confirm.decode(send.message)
        confirm = replace(confirm, ciphertexts=confirm.ciphertexts[1:])
        confirm = replace(confirm, sealed_digest=sealed_digest(confirm.ciphertexts))
        signature = sign(signing_key(confirm.member), "confirm", *confirm.signed_fields())
        return Send(replace(confirm, signature=signature).encode())

    def other_digest(send: Send) -> Send:
        confirm = Confirm.decode(send.message)
        confirm = replace(confirm, sealed_digest=digest("other", confirm.sealed_digest))
        signature = sign(signing_key(confirm.member), "confirm", *confirm.signed_fields())
        return Send(replace(confirm, signature=signature).encode())

    for change in (without, other_digest):
        wire = LyingWire(4, suite=Suite.X25519_MLKEM768)
        wire.lie = of_kind(Kind.CONFIRM, (1,), change)
        wire.deliver(wire.server.open_session(wire.roster.indices))
        assert [(member, fault.check) for member, fault in wire.refused] == [(1, Check.CONFIRM)]
        assert "clinic-1" in wire.refused[0][1].message
        assert wire.server.members == (2, 3, 4)


def test_a_site_that_is_shown_a_bad_key_names_its_signer() -> None:
    lies = Lies()
    effects, adverts = lies.server.open_session(lies.roster.indices), {}
    for effect in effects:
        (_, send) = lies.sites[effect.member].receive(effect.message, MODEL)
        adverts[effect.member] = send.message
    low = with_key(bytes(32), lambda: lies.server._set_up.proposal)(Send(adverts[4])).message
    bundle = KeyAdvertisements(lies.roster.indices, tuple(sorted({**adverts, 4: low}.items()))).encode()
    with pytest.raises(SecaggError, match="clinic-4 advertises a public key of low order"):
        lies.sites[1].receive(bundle, MODEL)
    assert refused(lies.sites[1], bundle) is Check.KEY


# ---------------------------------------------------------------- tags


def wrong_tags(towards: set[int]) -> Callable[[Send], Send]:
    def change(send: Send) -> Send:
        upload = Upload.decode(send.message)
        tags = tuple((peer, bytes(16) if peer in towards else tag) for peer, tag in upload.tags)
        return resigned_upload(replace(upload, tags=tags), send)

    return change


def other_keys(wire: Wire, liar: int, towards: set[int]) -> None:
    """Have a liar use keys of its own towards some others, for its tags, masks and sealed shares alike."""
    session = wire.sites[liar].session
    assert session is not None
    for peer in towards:
        session.chains[peer] = Chain(Secret(secrets.token_bytes(32)), session.last_round)


@pytest.mark.parametrize("liar", [1, 3, 5], ids=["first", "in the middle", "last"])
def test_a_liar_with_other_keys_than_the_others_know_is_left_out_and_named_wherever_it_comes(liar: int) -> None:
    wire = LyingWire.in_session(5)
    honest = tuple(member for member in range(1, 6) if member != liar)
    wire.lie = of_kind(Kind.UPLOAD, (liar,), wrong_tags(set(honest)))
    assert (wire.sum_of(), wire.refused) == (honest, [])
    (found,) = wire.contradicted
    others = ", ".join(f"clinic-{member}" for member in honest)
    assert found == Contradicted(liar, f"clinic-{liar} has other keys than {others}", proven=True, left_out=True)


def test_uploads_that_must_come_once_more_are_the_same_bytes_and_come_only_where_they_must() -> None:
    for liar, expected in ((1, {2: 2, 3: 2, 4: 2, 5: 2, 1: 1}), (5, {1: 1, 2: 1, 3: 1, 4: 1, 5: 1})):
        wire, sent = LyingWire(5), []
        wire.set_up()
        wrong = of_kind(Kind.UPLOAD, (liar,), wrong_tags({1, 2, 3, 4, 5}))

        def noted(member: int, send: Send, wrong: Callable[[int, Send], Send] = wrong, sent: list = sent) -> Send:  # type: ignore[type-arg]
            if kind_of(send.message) is Kind.UPLOAD:
                sent.append((member, send.message, bytes(send.vector)))
            return wrong(member, send)

        wire.lie = noted
        assert wire.sum_of() == tuple(member for member in range(1, 6) if member != liar)
        times = {member: sum(one == member for one, *_ in sent) for member in range(1, 6)}
        assert (times, len({(member, message, vector) for member, message, vector in sent})) == (expected, 5)


def test_the_aggregator_holds_one_running_sum_however_many_uploads_are_disputed() -> None:
    wire = LyingWire.in_session(7)
    wire.lie = of_kind(Kind.UPLOAD, (1, 4), wrong_tags(set(range(1, 8))))
    held = [0]

    def watched(member: int, send: Send) -> Send:
        if wire.server._summing is not None:
            vectors = [value for value in vars(arrived_of(wire.server)).values() if isinstance(value, MaskedSum)]
            held.append(len(vectors))
            kept = [bytes(v) for v in vars(arrived_of(wire.server)).values() if isinstance(v, bytes | bytearray)]
            assert all(len(one) <= 32 for one in kept)
        return of_kind(Kind.UPLOAD, (1, 4), wrong_tags(set(range(1, 8))))(member, send)

    wire.lie = watched
    assert (wire.sum_of(), max(held)) == ((2, 3, 5, 6, 7), 1)


def test_of_two_that_contradict_only_each_other_each_is_left_out_in_turn_and_nobody_is_named() -> None:
    wire = LyingWire.in_session(5)
    other_keys(wire, 2, {4})
    assert ([wire.sum_of() for _ in range(4)], wire.proven()) == ([(1, 2, 3, 5), (1, 3, 4, 5)] * 2, set())


def test_a_tag_that_does_not_fit_its_owners_own_shares_names_the_owner_when_the_other_is_done_without() -> None:
    wire = LyingWire.in_session(5)
    wire.lie = of_kind(Kind.UPLOAD, (2,), wrong_tags({4}))
    assert wire.sum_of() is None
    assert (wire.proven(), wire.sum_of(members=(1, 3, 4, 5))) == ({2}, (1, 3, 4, 5))


def test_a_liar_that_contradicts_another_honest_member_each_time_is_named_after_a_majority_of_them() -> None:
    wire = LyingWire.in_session(5)
    for victim in (1, 3, 4):
        wire.set_up()
        other_keys(wire, 2, {victim})
        assert wire.proven() == set()
        assert wire.sum_of() is not None
    assert wire.proven() == {2}


def test_an_upload_that_comes_once_more_in_another_form_is_refused() -> None:
    wire = LyingWire.in_session(4)
    times = {3: 0}

    def twofaced(member: int, send: Send) -> Send:
        if kind_of(send.message) is not Kind.UPLOAD or member not in (1, 3):
            return send
        if member == 1:
            return wrong_tags({2, 3, 4})(send)
        times[3] += 1
        changed = replace(Upload.decode(send.message), commitment=secrets.token_bytes(32))
        return send if times[3] == 1 else resigned_upload(changed, send)

    wire.lie = twofaced
    # Two liars of four are no minority, and three are needed: the round is lost, and both are known.
    assert wire.sum_of() is None
    assert [(member, fault.check) for member, fault in wire.refused] == [(3, Check.DUPLICATE)]


@CHEAP
@given(data=st.data(), members=st.integers(3, 9))
def test_no_honest_member_is_ever_named_or_gives_way_to_a_lone_liar(data: st.DataObject, members: int) -> None:
    everybody = range(1, members + 1)
    liars = data.draw(st.sets(st.sampled_from(everybody), max_size=(members - 1) // 2))
    disputes = Disputes(members)
    for _ in range(data.draw(st.integers(1, 4))):
        order = data.draw(st.permutations(list(everybody)))
        possible = [pair for pair in itertools.combinations(everybody, 2) if liars & set(pair)]
        pairs = data.draw(st.sets(st.sampled_from(possible))) if possible else set()
        disputes.add(pairs)
        without = disputes.settle(order, pairs)
        assert disputes.liars <= liars
        assert all(set(pair) & set(without) for pair in pairs)
        kept = set(everybody) - set(without)
        assert not any(set(pair) <= kept for pair in pairs)
        if len(liars) == 1 and len(pairs) >= 2:
            assert set(without) == liars


def test_where_the_liars_are_no_minority_nobody_is_proven_to_lie() -> None:
    disputes = Disputes(2)
    disputes.add([(1, 2)])
    assert disputes.liars == frozenset()
    disputes = Disputes(4)
    disputes.add([(1, 3), (1, 4), (2, 3), (2, 4)])
    assert disputes.liars == frozenset()
    disputes.convict(2)
    assert disputes.liars == frozenset({2})


# ---------------------------------------------------------------- shares


def wrong_shares_of(owners: set[int]) -> Callable[[Send], Send]:
    def change(send: Send) -> Send:
        answer = UnmaskShares.decode(send.message)
        lied = tuple(
            (owner, held[:31] + bytes([held[31] ^ 1]) + held[32:] if owner in owners else held)
            for owner, held in answer.shares
        )
        return Send(replace(answer, shares=lied).encode())

    return change


@pytest.mark.parametrize("gone", [(), (5,)], ids=["everybody uploads", "one is missing"])
def test_a_wrong_share_of_every_mask_names_its_sender_and_the_sum_is_opened(gone: tuple[int, ...]) -> None:
    wire = LyingWire.in_session(5)
    wire.silent = {(member, Kind.UPLOAD) for member in gone}
    wire.lie = of_kind(Kind.UNMASK_SHARES, (1,), wrong_shares_of({2, 3, 4, 5}))
    assert wire.sum_of() == tuple(member for member in range(1, 6) if member not in gone)
    assert wire.proven() == {1}
    assert wire.contradicted[0].reason.startswith("clinic-1 answers with other shares than clinic-2, clinic-3")


def test_two_wrong_answers_of_five_leave_the_three_that_are_needed() -> None:
    wire = LyingWire.in_session(5)
    wire.lie = of_kind(Kind.UNMASK_SHARES, (1, 3), wrong_shares_of({1, 2, 3, 4, 5}))
    assert (wire.sum_of(), wire.proven()) == ((1, 2, 3, 4, 5), {1, 3})


@pytest.mark.parametrize("owners", [{2}, {1}, {2, 3, 4}], ids=["another's", "its own", "everybody else's"])
def test_where_every_answer_is_needed_a_wrong_share_is_named_all_the_same(owners: set[int]) -> None:
    wire = LyingWire.in_session(4, colluders=2)
    wire.lie = of_kind(Kind.UNMASK_SHARES, (1,), wrong_shares_of(owners))
    assert wire.sum_of() is None
    assert wire.aborted.reason == f"3 right shares of clinic-{min(owners)}'s mask, 4 are needed"
    assert wire.proven() == (set() if owners == {2} else {1})
    assert {effect.member for effect in wire.contradicted} == {1}
    assert wire.aborted.missing in ((1,), (2,))


def test_an_owner_whose_promises_are_of_another_mask_is_named_by_its_own_signature() -> None:
    wire = LyingWire.in_session(5)

    def other_promise(send: Send) -> Send:
        upload = replace(Upload.decode(send.message), commitment=secrets.token_bytes(32))
        return resigned_upload(upload, send)

    wire.lie = of_kind(Kind.UPLOAD, (4,), other_promise)
    assert wire.sum_of() is None
    assert wire.aborted.reason == "the shares of clinic-4's mask combine to another one than it promised"
    assert (wire.aborted.missing, wire.proven()) == ((4,), {4})
    assert wire.sum_of(members=(1, 2, 3, 5)) == (1, 2, 3, 5)


def test_an_owner_that_promises_others_wrong_digests_is_contradicted_by_all_of_them() -> None:
    wire = LyingWire.in_session(5)

    def lied(send: Send) -> Send:
        upload = Upload.decode(send.message)
        promised = tuple(
            (holder, found if holder == 4 else share_digest(upload.transcript, 4, holder, secrets.token_bytes(32)))
            for holder, found in upload.share_digests
        )
        return resigned_upload(replace(upload, share_digests=promised), send)

    wire.lie = of_kind(Kind.UPLOAD, (4,), lied)
    assert wire.sum_of() is None
    assert wire.proven() == {4}
    assert {effect.member for effect in wire.contradicted if not effect.proven} <= {1, 2, 3, 5}


@pytest.mark.slow
@CHEAP
@given(data=st.data(), members=st.integers(4, 7))
def test_a_lone_liar_costs_nobody_its_name_and_what_is_opened_is_right(data: st.DataObject, members: int) -> None:
    liar, others = data.draw(st.integers(1, members)), st.sets(st.integers(1, members))
    wire = LyingWire.in_session(members)
    for _ in range(3):
        tags, shares = data.draw(others) - {liar}, data.draw(others)

        def lie(member: int, send: Send, tags: set[int] = tags, shares: set[int] = shares) -> Send:
            sent = of_kind(Kind.UPLOAD, (liar,), wrong_tags(tags))(member, send)
            return of_kind(Kind.UNMASK_SHARES, (liar,), wrong_shares_of(shares))(member, sent)

        wire.lie = lie
        counted = wire.sum_of()
        if len(tags) >= 2:
            assert counted == tuple(member for member in range(1, members + 1) if member != liar)
        assert counted is not None or wire.proven() == {liar}
        assert wire.proven() <= {liar}
        assert (wire.refused, wire.server.state) == ([], ServerState.READY)
        for member in range(1, members + 1):
            wire.server.returned(member)


# ---- a site that lies to its neighbours in a sparse graph is found, left out and named; the others' sum is opened

LIAR = 4


@pytest.fixture
def sparse_wire() -> LyingWire:
    sparse_wire = LyingWire(MEMBERS)
    sparse_wire.terms = replace(sparse_wire.terms, neighbours=NEIGHBOURS)
    sparse_wire.__post_init__()
    sparse_wire.set_up()
    assert ring_of(sparse_wire).terms.neighbours == NEIGHBOURS
    return sparse_wire


def survivors_of(sparse_wire: LyingWire) -> tuple[int, ...] | None:
    opened = sparse_wire.round({member: unit_update(member, MEMBERS) for member in sparse_wire.roster.indices})
    return None if opened is None else opened.survivors


def with_other_tags(send: Send) -> Send:
    upload = Upload.decode(send.message)
    return resigned_upload(replace(upload, tags=tuple((peer, bytes(16)) for peer, _ in upload.tags)), send)


def with_other_shares(send: Send) -> Send:
    answer = UnmaskShares.decode(send.message)
    others = tuple((owner, share if owner == LIAR else bytes(32)) for owner, share in answer.shares)
    return replace(send, message=replace(answer, shares=others).encode())


def test_a_site_with_other_keys_than_its_neighbours_is_left_out_and_named(sparse_wire: LyingWire) -> None:
    sparse_wire.lie = of_kind(Kind.UPLOAD, (LIAR,), with_other_tags)
    assert survivors_of(sparse_wire) == tuple(member for member in sparse_wire.roster.indices if member != LIAR)
    [found] = sparse_wire.contradicted
    assert (found.member, found.left_out, found.proven) == (LIAR, True, False)


def test_wrong_shares_are_done_without_and_their_sender_is_named(sparse_wire: LyingWire) -> None:
    sparse_wire.lie = of_kind(Kind.UNMASK_SHARES, (LIAR,), with_other_shares)
    assert survivors_of(sparse_wire) == tuple(sparse_wire.roster.indices)
    assert {found.member for found in sparse_wire.contradicted} <= {LIAR}


def test_an_upload_for_others_than_its_neighbours_is_refused(sparse_wire: LyingWire) -> None:
    def foreign(send: Send) -> Send:
        upload = Upload.decode(send.message)
        stranger = next(
            m for m in sparse_wire.roster.indices if m not in (LIAR, *ring_of(sparse_wire).neighbours(LIAR))
        )
        tags = tuple(sorted((*upload.tags[1:], (stranger, bytes(16)))))
        return resigned_upload(replace(upload, tags=tags), send)

    sparse_wire.lie = of_kind(Kind.UPLOAD, (LIAR,), foreign)
    assert survivors_of(sparse_wire) == tuple(member for member in sparse_wire.roster.indices if member != LIAR)
    [(member, fault)] = sparse_wire.refused
    assert member == LIAR
    assert isinstance(fault, SecaggError)
    assert fault.check is Check.ENVELOPE


def test_garbage_for_neighbours_is_named_by_them(sparse_wire: LyingWire) -> None:
    def garbage(send: Send) -> Send:
        upload = Upload.decode(send.message)
        first = tuple((peer, bytes(48)) for peer, _ in upload.envelopes[:1])
        return resigned_upload(replace(upload, envelopes=(*first, *upload.envelopes[1:])), send)

    sparse_wire.lie = of_kind(Kind.UPLOAD, (LIAR,), garbage)
    assert (survivors_of(sparse_wire), {found.member for found in sparse_wire.contradicted}) == (
        tuple(sparse_wire.roster.indices),
        {LIAR},
    )
    [(holder, _)] = sparse_wire.accusations
    assert holder in ring_of(sparse_wire).neighbours(LIAR)
