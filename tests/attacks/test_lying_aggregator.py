"""One test for every lie of an aggregator that must be stopped; each asserts which check fired."""

import hashlib
import secrets
from dataclasses import replace

import numpy as np
import pytest

from fedfair.errors import TrainingError
from fedfair.secagg.check_seed import seal_seed
from fedfair.secagg.checks import Check
from fedfair.secagg.effects import SendTo
from fedfair.secagg.keys import Secret
from fedfair.secagg.masking import MaskedSum, SignedSeed, Update
from fedfair.secagg.params import Mode, SecaggPolicy, Suite
from fedfair.secagg.round_messages import PairMasks, UnmaskRequest, UnmaskShares, Upload
from fedfair.secagg.sealing import wrap_pair_masks
from fedfair.secagg.server_state import Move, Resting
from fedfair.secagg.setup_messages import (
    Confirm,
    Confirms,
    KeyAdvertisement,
    KeyAdvertisements,
    Proposal,
    sealed_digest,
)
from fedfair.secagg.signing import sign
from fedfair.secagg.transcript import RoundSubject
from tests.attacks.harness import Lies, carried, check_of, noise, refused, refused_by_server
from tests.secagg.federation_in_memory import MODEL, draws_of, signing_key, unit_update
from tests.secagg.shares import combine_shares


def _adverts(lies: Lies) -> tuple[bytes, dict[int, bytes]]:
    """Return the proposal and every site's real advert."""
    adverts, proposal = {}, b""
    for effect in lies.server.open_session(lies.roster.indices):
        proposal = effect.message
        (_, reply) = lies.sites[effect.member].receive(proposal, MODEL)
        adverts[effect.member] = reply.message
    return proposal, adverts


def _bundle(adverts: dict[int, bytes]) -> bytes:
    return KeyAdvertisements(tuple(sorted(adverts)), tuple(sorted(adverts.items()))).encode()


def _confirms(lies: Lies, adverts: dict[int, bytes]) -> dict[int, bytes]:
    """Return what every site says to all adverts."""
    said = {index: site.receive(_bundle(adverts), MODEL) for index, site in lies.sites.items()}
    return {index: reply.message for index, (reply,) in said.items()}


# ---------------------------------------------------------------- swapped keys


def other_key(key: bytes, of: KeyAdvertisement, signer: int = 0, proposal: bytes = b"") -> bytes:
    """Return an advertisement with another key; signed again where somebody is to have signed it."""
    forged = replace(of, public_key=key)
    if signer:
        forged = replace(forged, signature=sign(signing_key(signer), "advert", *forged.signed_fields(proposal)))
    return forged.encode()


@pytest.mark.parametrize("suite", Suite)
def test_an_advertisement_with_another_key_is_refused_whoever_signs_it(suite: Suite) -> None:
    lies = Lies(suite=suite)
    proposal, adverts = _adverts(lies)
    known = {member: KeyAdvertisement.decode(raw) for member, raw in adverts.items()}
    size = len(known[1].public_key)
    stolen = noise() + bytes(known[2].public_key[32:])
    for member, lie, check in (
        (2, other_key(stolen, known[2]), Check.SIGNATURE),
        (2, other_key(stolen, known[2], 99, proposal), Check.SIGNATURE),  # not the pinned key
        (2, other_key(known[2].public_key[: size // 2], known[2]), Check.SIGNATURE),
        (1, other_key(stolen, known[1]), Check.OWN_ADVERT),
        # Of a colluder: the key of another member, one of low order, and half a key.
        (3, other_key(known[2].public_key, known[3], 3, proposal), Check.KEY),
        (3, other_key(bytes(32) + known[3].public_key[32:], known[3], 3, proposal), Check.KEY),
        (3, other_key(known[3].public_key[: size // 2], known[3], 3, proposal), Check.KEY),
    ):
        assert refused(lies.sites[1], _bundle({**adverts, member: lie})) is check
    assert refused(lies.sites[1], _bundle({i: a for i, a in adverts.items() if i != 1})) is Check.OWN_ADVERT


# ---------------------------------------------------------------- replayed adverts, invented members


def test_adverts_of_an_older_proposal_do_not_verify() -> None:
    lies = Lies()
    _, old = _adverts(lies)
    _, new = _adverts(lies)
    assert refused(lies.sites[1], _bundle({**old, 1: new[1]})) is Check.SIGNATURE


def test_replayed_adverts_of_the_very_same_proposal_lack_confirms() -> None:
    # The aggregator replays a whole set-up, its own proposal included, to a site that has restarted.
    lies = Lies()
    proposal, adverts = _adverts(lies)
    confirms = {}
    for index, site in lies.sites.items():
        (reply,) = site.receive(_bundle(adverts), MODEL)
        confirms[index] = reply.message
    lies.restart(1)
    (_, advert) = lies.sites[1].receive(proposal, MODEL)
    (confirm,) = lies.sites[1].receive(_bundle({**adverts, 1: advert.message}), MODEL)
    session_id = Confirm.decode(confirm.message).session_id
    replayed = Confirms(session_id, tuple((i, c) for i, c in confirms.items() if i != 1)).encode()
    assert refused(lies.sites[1], replayed) is Check.CONFIRM


def test_a_confirm_for_another_session_in_this_sessions_name_is_refused() -> None:
    lies = Lies()
    _, adverts = _adverts(lies)
    (reply,) = lies.sites[1].receive(_bundle(adverts), MODEL)
    session_id = Confirm.decode(reply.message).session_id
    forged = Confirm(2, session_id, bytes(32), (), sign(signing_key(99), "confirm", session_id))
    assert refused(lies.sites[1], Confirms(session_id, ((2, forged.encode()),)).encode()) is Check.SIGNATURE
    assert refused(lies.sites[1], Confirms(noise(), ()).encode()) is Check.SESSION


def test_a_hybrid_key_altered_on_its_way_is_noticed() -> None:
    lies = Lies(3, suite=Suite.X25519_MLKEM768)
    _, adverts = _adverts(lies)
    replies = {}
    for index, site in lies.sites.items():
        (reply,) = site.receive(_bundle(adverts), MODEL)
        replies[index] = Confirm.decode(reply.message)
    session_id = replies[1].session_id
    altered = replace(replies[1], ciphertexts=((3, bytes(1136)),))
    missing = replace(replies[1], ciphertexts=())
    honest = Confirm.decode(replies[2].forwarding()(3))
    seed_alone = replace(replies[1], ciphertexts=((3, bytes(1088) + replies[1].ciphertext_for(3)[1088:]),))
    for lie in (altered, missing, seed_alone):
        bundle = Confirms(session_id, ((1, lie.encode()), (2, honest.encode()))).encode()
        assert refused(lies.sites[3], bundle) is Check.CONFIRM


def test_a_hybrid_session_cannot_be_talked_down_to_one_key_agreement() -> None:
    lies = Lies(3, suite=Suite.X25519_MLKEM768)
    honest = Proposal.decode(_adverts(lies)[0])
    weaker = replace(honest, terms=replace(honest.terms, suite=Suite.X25519))
    assert refused(lies.sites[1], weaker.encode()) is Check.POLICY


def test_a_colluder_that_seals_nonsense_for_another_is_left_with_other_keys_than_that_one() -> None:
    lies = Lies(3, suite=Suite.X25519_MLKEM768)
    _, adverts = _adverts(lies)
    confirms = {}
    for index, site in lies.sites.items():
        (reply,) = site.receive(_bundle(adverts), MODEL)
        confirms[index] = reply.message
    honest, agreed = Confirm.decode(confirms[1]), lies.sites[1]._setup
    nonsense = tuple(
        (
            peer,
            bytes(1088)
            + seal_seed(agreed.seed, agreed.peers[peer].shared, honest.session_id, (1, peer), bytes(1088)),
        )
        for peer, _ in honest.ciphertexts
    )
    lie = replace(honest, sealed_digest=sealed_digest(nonsense), ciphertexts=nonsense)
    lie = replace(lie, signature=sign(signing_key(1), "confirm", *lie.signed_fields()))
    for index, raw in adverts.items():
        lies.server.receive(index, raw)
    for index, raw in {**confirms, 1: lie.encode()}.items():
        lies.deliver(lies.server.receive(index, raw))
    lies.updates = lies.fresh_updates()
    starts = lies.server.start_round("training", MODEL, (1.0,), lies.roster.indices)
    uploads = {
        start.member: lies.carry_out(start.member, lies.hand_over(start.member, start.message))[0]
        for start in starts
        if isinstance(start, SendTo)
    }
    lies.server.receive(1, uploads[1].message, uploads[1].vector)
    lies.server.receive(2, uploads[2].message, uploads[2].vector)
    assert (lies.round_state.contradictions, lies.round_state.survivors) == (((1, 2),), (1,))


def test_an_invented_member_is_not_in_the_pinned_roster() -> None:
    lies = Lies()
    proposal, adverts = _adverts(lies)
    sybil = KeyAdvertisement(9, noise(), noise(), noise(), noise(), b"")
    sybil = replace(sybil, signature=sign(signing_key(9), "advert", *sybil.signed_fields(proposal)))
    assert refused(lies.sites[1], _bundle({**adverts, 9: sybil.encode()})) is Check.MEMBERSHIP


def test_a_roster_or_layout_that_was_not_approved_is_refused() -> None:
    lies = Lies()
    proposal, _ = _adverts(lies)
    honest = Proposal.decode(proposal)
    assert refused(lies.sites[1], replace(honest, roster_digest=noise()).encode()) is Check.LAYOUT
    assert refused(lies.sites[1], replace(honest, layout_digest=noise()).encode()) is Check.LAYOUT


def test_a_cohort_with_a_member_that_never_confirmed_is_refused() -> None:
    lies = Lies.in_session()
    del lies.sites[1].session.chains[5]  # type: ignore[union-attr]  # as if 5's confirm had been withheld
    assert refused(lies.sites[1], lies.start()) is Check.MEMBERSHIP


# ---------------------------------------------------------------- weak terms


@pytest.mark.parametrize(
    "terms",
    [
        {"colluders": 0, "threshold": 3}, {"colluders": 2}, {"mode": Mode.SEMI_HONEST, "threshold": 3},
        {"ring_bits": 16}, {"greatest_weight": 1}, {"greatest_weight": 1001}, {"greatest_weight": 0},
        {"suite": Suite.X25519_MLKEM768},
    ],
    ids=str,
)  # fmt: skip
def test_terms_that_are_not_exactly_those_of_the_plan_are_refused(terms: dict[str, object]) -> None:
    lies = Lies(5, 1)
    (effect, *_) = lies.server.open_session(lies.roster.indices)
    honest = Proposal.decode(effect.message)
    forged = replace(honest, terms=replace(honest.terms, **terms))  # type: ignore[arg-type]
    assert refused(lies.sites[1], forged.encode()) is Check.POLICY


def test_a_session_for_another_approved_plan_is_refused_and_two_plans_are_two_sessions() -> None:
    # Same roster, same shapes, same terms: nothing but the plan's digest tells the two apart.
    lies = Lies()
    proposal, adverts = _adverts(lies)
    other = replace(Proposal.decode(proposal), plan_digest=noise())
    assert refused(lies.sites[1], other.encode()) is Check.PLAN
    # The members that approved the other plan sign a proposal that nobody here has seen.
    lies.plan = replace(lies.plan, digest=other.plan_digest)
    (_, stranger) = lies.site(2).receive(other.encode(), MODEL)
    assert refused(lies.sites[1], _bundle({**adverts, 2: stranger.message})) is Check.SIGNATURE


def test_a_proposal_or_a_round_with_a_lower_threshold_is_refused() -> None:
    lies = Lies.in_session()
    honest = Proposal.decode(lies.server._set_up.proposal)
    lower = replace(honest, terms=replace(honest.terms, threshold=honest.terms.threshold - 1))
    assert refused(lies.sites[1], lower.encode()) is Check.THRESHOLD
    assert refused(lies.sites[1], lies.start(threshold=2)) is Check.THRESHOLD


def test_a_cohort_smaller_than_the_site_allows_is_refused() -> None:
    lies = Lies.in_session(policy=SecaggPolicy(least_members=4))
    assert refused(lies.sites[1], lies.start(cohort=(1, 2, 3), threshold=2)) is Check.POLICY


def test_a_session_smaller_than_the_site_allows_is_refused() -> None:
    lies = Lies(policy=SecaggPolicy(least_members=4))
    _, adverts = _adverts(lies)
    assert refused(lies.sites[1], _bundle({i: adverts[i] for i in (1, 2, 3)})) is Check.POLICY


def test_a_clip_wider_than_the_site_allows_is_refused() -> None:
    lies = Lies.in_session(policy=SecaggPolicy(greatest_clip=2.0))
    assert refused(lies.sites[1], lies.start(clips=(2.5,))) is Check.POLICY
    assert refused(lies.sites[1], lies.start(clips=(0.0,))) is Check.POLICY
    assert refused(lies.sites[1], lies.start(clips=())) is Check.LAYOUT


def test_any_clip_but_the_one_that_the_plan_states_is_refused() -> None:
    lies = Lies.in_session(policy=SecaggPolicy(greatest_clip=2.0, fixed_clip=True))
    for clip in (0.0, 2.0**-30, 1.9, 2.1):
        assert refused(lies.sites[1], lies.start(clips=(clip,))) is Check.POLICY
    lies.sites[1].receive(lies.start(clips=(2.0,)), MODEL)


def test_a_purpose_that_the_site_does_not_know_is_refused() -> None:
    lies = Lies.in_session()
    assert refused(lies.sites[1], lies.start(purpose="curiosity")) is Check.POLICY


# ---------------------------------------------------------------- rounds


@pytest.mark.parametrize(("number", "accepted"), [(0, False), (3, False), (4, True), (1003, True), (1004, False)])
def test_an_old_replayed_or_huge_round_number_is_refused(number: int, accepted: bool) -> None:
    lies = Lies.in_session()
    for _ in range(3):
        lies.round(lies.fresh_updates())
    raw = lies.start(round=number, subject=RoundSubject(noise(), MODEL.request_digest))
    expected = Check.STATE if accepted else Check.ROUND_ORDER  # the wrong model proves that the number passed
    assert refused(lies.sites[1], raw) is expected


def test_a_round_of_another_session_is_refused() -> None:
    lies = Lies.in_session()
    assert refused(lies.sites[1], lies.start(session_id=noise())) is Check.SESSION


def test_a_session_is_not_used_for_more_than_a_hundred_rounds() -> None:
    lies = Lies.in_session()
    lies.sites[1].session.rounds = 100  # type: ignore[union-attr]
    assert refused(lies.sites[1], lies.start()) is Check.SESSION_EXPIRED


def test_a_model_that_the_site_does_not_hold_is_refused() -> None:
    lies = Lies.in_session()
    assert refused(lies.sites[1], lies.start(subject=RoundSubject(noise(), MODEL.request_digest))) is Check.STATE


def test_another_sum_round_or_run_than_the_site_was_asked_for_is_refused() -> None:
    lies = Lies.in_session()
    assert refused(lies.sites[1], lies.start(subject=RoundSubject(MODEL.state_digest, noise()))) is Check.REQUEST


def test_two_models_shown_to_two_sites_end_in_different_keys() -> None:
    # Each site is shown a model and a matching digest, so neither can notice by itself.
    lies = Lies.in_session()
    lies.server.start_round("training", MODEL, (1.0,), lies.roster.indices)
    lies.server.round -= 1
    other = RoundSubject(hashlib.sha256(b"another model").digest(), MODEL.request_digest)
    uploads = {}
    for index, model in ((1, MODEL), (2, other)):
        lies.updates = lies.fresh_updates()
        effects = lies.sites[index].receive(lies.start(subject=model), model)
        uploads[index] = lies.carry_out(index, effects)[0]
    lies.round_state.add_upload(1, uploads[1].message, uploads[1].vector)
    # An honest aggregator sees another transcript; overlooking it neither cancels masks nor opens envelopes.
    assert refused_by_server(lies, 2, uploads[2]) is Check.TRANSCRIPT
    theirs, ours = Upload.decode(uploads[2].message), Upload.decode(uploads[1].message)
    assert dict(ours.tags)[2] != dict(theirs.tags)[1]
    moved = replace(theirs, transcript=lies.transcript)
    moved = replace(moved, signature=sign(signing_key(2), "upload", *moved.signed_fields()))
    lies.round_state.add_upload(2, moved.encode(), uploads[2].vector)
    assert (lies.round_state.contradictions, lies.round_state.survivors) == (((1, 2),), (1,))
    lies.round_state._envelopes.put(2, theirs.envelopes)
    for index in (3, 4, 5):
        effects = lies.sites[index].receive(lies.start(), MODEL)
        send = lies.carry_out(index, effects)[0]
        lies.round_state._envelopes.put(index, Upload.decode(send.message).envelopes)
    assert refused(lies.sites[1], lies.request(1, lies.roster.indices)) is Check.ENVELOPE


def test_too_many_attempts_about_one_model_are_refused_even_in_a_new_session() -> None:
    lies = Lies.in_session(policy=SecaggPolicy(greatest_attempts=2))
    lies.round(lies.fresh_updates())
    lies.set_up()
    lies.round(lies.fresh_updates())
    assert refused(lies.sites[1], lies.start()) is Check.ATTEMPTS


# ---------------------------------------------------------------- survivors, votes, answers


def test_a_second_set_of_survivors_gets_no_vote() -> None:
    lies = Lies.after_uploads()
    lies.vote_of(1, (1, 2, 3, 4))
    assert refused(lies.sites[1], lies.survivors((1, 2, 3))) is Check.ONE_VOTE
    assert refused(lies.sites[1], lies.masks_request((1, 2, 3))) is Check.ONE_VOTE


def test_masks_that_were_handed_over_bind_to_the_set_or_a_part_of_it() -> None:
    lies = Lies.after_uploads(6)
    site = lies.sites[1]
    lies.masks_of(1, (1, 2, 3, 4, 5))
    assert refused(site, lies.request(1, lies.roster.indices)) is Check.ONE_VOTE
    for other in ((1, 2, 3, 4, 6), (1, 2, 3, 6)):
        assert refused(site, lies.masks_request(other)) is Check.ONE_VOTE
        assert refused(site, lies.survivors(other)) is Check.ONE_VOTE
    assert refused(site, lies.masks_request(lies.roster.indices)) is Check.SURVIVORS
    # One more has vanished: that is a part of the set.
    lies.masks_of(1, (1, 2, 3, 4))
    assert refused(site, lies.survivors((1, 2, 3, 4, 5))) is Check.ONE_VOTE
    lies.vote_of(1, (1, 2, 3, 4))


def test_masks_asked_for_another_set_of_each_site_open_nothing() -> None:
    lies = Lies.after_uploads(5)
    told = {1: (1, 2, 3, 4), 2: (1, 2, 3, 4), 3: (1, 2, 3, 5), 4: (2, 4, 5), 5: (1, 4, 5)}
    votes = {member: lies.vote_of(member, survivors) for member, survivors in told.items()}
    for member, own in told.items():
        # Two votes at most are for one set, and three are needed; nobody helps with another set, or with all.
        for survivors in {*told.values(), lies.roster.indices} - {own}:
            assert refused(lies.sites[member], lies.request(member, survivors)) is Check.ONE_VOTE
        same = {voter: vote for voter, vote in votes.items() if told[voter] == own}
        assert refused(lies.sites[member], lies.request(member, own, same)) is Check.VOTES
        assert refused(lies.sites[member], lies.request(member, own, votes)) in {Check.VOTES, Check.SIGNATURE}


def test_masks_are_handed_over_under_the_own_mask_and_are_those_with_the_missing_alone() -> None:
    lies = Lies.in_session()
    lies.server.start_round("training", MODEL, (1.0,), lies.roster.indices)
    lies.server.round -= 1
    lies.updates = lies.fresh_updates()
    effects, phase = lies.sites[1].receive(lies.start(), MODEL), lies.sites[1].phase
    with_5 = phase.seeds[5].reveal()
    drawn: list[bytes] = []

    def noted(size: int) -> bytes:
        drawn.append(secrets.token_bytes(size))
        return drawn[-1]

    lies.sites[1]._randomness = noted
    lies.carry_out(1, effects)
    ((gone, wrapped),) = PairMasks.decode(lies.masks_of(1, (1, 2, 3, 4))).masks
    assert gone == 5
    assert wrapped != with_5
    # b is drawn first.
    assert wrap_pair_masks(Secret(drawn[0]), lies.transcript, 1, {5: wrapped}) == {5: with_5}


def test_two_sets_of_survivors_shown_to_two_halves_both_stay_closed() -> None:
    # n = 5, t = 3: one half votes for a set with member 5, the other half for one without.
    lies = Lies.after_uploads()
    one = {member: lies.vote_of(member, (1, 2, 5)) for member in (1, 2)}
    two = {member: lies.vote_of(member, (1, 2, 3, 4)) for member in (3, 4)}
    assert refused(lies.sites[1], lies.request(1, (1, 2, 5), one)) is Check.VOTES
    assert refused(lies.sites[3], lies.request(3, (1, 2, 3, 4), two)) is Check.VOTES


def test_a_vote_binds_its_author_even_against_the_whole_cohort() -> None:
    lies = Lies.after_uploads()
    votes = {member: lies.vote_of(member, (1, 2, 3, 4)) for member in (1, 2, 3, 4)}
    assert refused(lies.sites[1], lies.request(1, lies.roster.indices)) is Check.ONE_VOTE
    assert refused(lies.sites[1], lies.request(1, (1, 2, 3), votes)) is Check.ONE_VOTE


def test_a_part_of_the_cohort_is_not_opened_without_a_vote() -> None:
    lies = Lies.after_uploads()
    assert refused(lies.sites[1], lies.request(1, (1, 2, 3, 4))) is Check.VOTES
    assert refused(lies.sites[1], lies.survivors((1, 2, 3, 4))) is Check.OUT_OF_ORDER
    lies.masks_of(1, (1, 2, 3, 4))
    assert refused(lies.sites[1], lies.request(1, (1, 2, 3, 4))) is Check.VOTES


def test_both_shares_of_one_member_are_never_given() -> None:
    # First every member survives, so shares of b; then member 5 is said to be gone, so masks with it would follow.
    lies = Lies.after_uploads()
    lies.answer(1, lies.request(1, lies.roster.indices))
    assert refused(lies.sites[1], lies.masks_request((1, 2, 3, 4))) is Check.ONE_ANSWER
    assert refused(lies.sites[1], lies.survivors((1, 2, 3, 4))) is Check.ONE_ANSWER
    assert refused(lies.sites[1], lies.request(1, (1, 2, 3, 4))) is Check.ONE_ANSWER


def test_the_dropped_are_computed_by_the_site_so_no_pair_of_survivors_is_opened() -> None:
    lies = Lies.after_uploads(without=(5,))
    votes = {member: lies.vote_of(member, (1, 2, 3, 4)) for member in (1, 2, 3, 4)}
    answer = UnmaskShares.decode(lies.answer(1, lies.request(1, (1, 2, 3, 4), votes)))
    # For each survivor one share of its own mask; the masks with 5, the only one dropped, came from itself.
    assert [(member, len(shares)) for member, shares in answer.shares] == [(i, 32) for i in (1, 2, 3, 4)]
    for member in (1, 2, 3, 4):
        handed_over = PairMasks.decode(lies.masks_of(member, (1, 2, 3, 4)))
        assert [gone for gone, _ in handed_over.masks] == [5]


def test_a_late_upload_of_a_member_declared_dropped_stays_closed() -> None:
    lies = Lies.after_uploads(without=(5,))
    survivors = (1, 2, 3, 4)
    votes = {member: lies.vote_of(member, survivors) for member in survivors}
    answers = {m: UnmaskShares.decode(lies.answer(m, lies.request(m, survivors, votes))) for m in survivors}
    # The aggregator now knows every pair mask of member 5 and holds its late upload; only b is missing.
    seeds = []
    for member in survivors:
        own = Secret(combine_shares({h: dict(a.shares)[member] for h, a in list(answers.items())[:3]}))
        wrapped = dict(PairMasks.decode(lies.masks_of(member, survivors)).masks)
        read = wrap_pair_masks(own, lies.transcript, member, wrapped)[5]
        seeds.append(SignedSeed(Secret(read), member < 5))
    late, upload = MaskedSum(lies.shapes["training"], 32), Upload.decode(lies.uploads[5].message)
    late.add(lies.uploads[5].vector, upload.vector_digest)
    late.remove(seeds)
    assert late.header[0] > 5  # a weight of 1 would be there if b were known
    # Nobody gives a share of b: 5 sees a set without itself, the others have answered.
    assert refused(lies.sites[5], lies.masks_request(survivors)) is Check.SURVIVORS
    lies.round_state._envelopes.put(5, upload.envelopes)
    assert refused(lies.sites[1], lies.request(1, lies.roster.indices)) is Check.ONE_ANSWER


def test_survivors_without_the_target_or_too_few_or_strangers_are_refused() -> None:
    lies = Lies.after_uploads()
    for claim in ((2, 3, 4, 5), (1, 2), (1, 2, 3, 9)):
        assert refused(lies.sites[1], lies.masks_request(claim)) is Check.SURVIVORS
    assert refused(lies.sites[1], lies.request(1, (2, 3, 4, 5))) is Check.SURVIVORS


def test_votes_that_are_too_few_duplicate_or_of_others_do_not_count() -> None:
    lies = Lies.after_uploads()
    chosen = (1, 2, 3, 4)
    votes, site = {member: lies.vote_of(member, chosen) for member in chosen}, lies.sites[1]
    few = {member: votes[member] for member in (1, 2)}
    assert refused(site, lies.request(1, chosen, few)) is Check.VOTES
    raw = lies.request(1, chosen, {**few, 5: votes[3]})
    assert refused(site, raw) is Check.VOTES  # 5 is no survivor
    assert refused(site, lies.request(1, chosen, {**few, 3: votes[4]})) is Check.SIGNATURE


def test_the_same_vote_twice_is_one_vote() -> None:
    lies = Lies.after_uploads()
    chosen = (1, 2, 3, 4)
    votes = {member: lies.vote_of(member, chosen) for member in (1, 2)}
    honest = UnmaskRequest.decode(lies.request(1, chosen, votes))
    twice = replace(honest, votes=((1, votes[1]), (2, votes[2]), (2, votes[2])))
    assert refused(lies.sites[1], twice.encode()) is Check.ENCODING


def test_votes_of_another_round_or_session_do_not_count() -> None:
    lies = Lies.after_uploads()
    chosen = (1, 2, 3, 4)
    old = {member: lies.vote_of(member, chosen) for member in chosen}
    old_request = lies.request(1, chosen, old)
    lies.server.deadline()
    lies.server.deadline()
    lies.server._phases.enter(Move(Resting(lies.server.state.READY)))
    lies.collect(lies.fresh_updates())
    lies.vote_of(1, chosen)
    assert refused(lies.sites[1], lies.request(1, chosen, old)) is Check.SIGNATURE
    assert refused(lies.sites[1], old_request) is Check.TRANSCRIPT
    lies.set_up()
    lies.collect(lies.fresh_updates())
    lies.vote_of(1, chosen)
    assert refused(lies.sites[1], lies.request(1, chosen, old)) is Check.SIGNATURE


def test_two_requests_for_one_round_get_one_answer_byte_for_byte() -> None:
    lies = Lies.after_uploads()
    request = lies.request(1, lies.roster.indices)
    first = lies.answer(1, request)
    assert lies.answer(1, request) == first  # the very same request after a reconnection
    envelopes = UnmaskRequest.decode(lies.request(1, lies.roster.indices)).envelopes
    assert (
        refused(lies.sites[1], lies.request(1, lies.roster.indices, envelopes=envelopes[:-1])) is Check.ONE_ANSWER
    )


def test_a_request_before_the_upload_opens_nothing() -> None:
    lies = Lies.in_session()
    raw = UnmaskRequest(noise(), lies.roster.indices, (), ()).encode()
    assert refused(lies.sites[1], raw) is Check.OUT_OF_ORDER
    lies.sites[1].receive(lies.start(), MODEL)
    assert refused(lies.sites[1], raw) is Check.OUT_OF_ORDER


# ---------------------------------------------------------------- envelopes


def test_truncated_swapped_reflected_and_missing_envelopes_are_refused() -> None:
    lies = Lies.after_uploads()
    site, everybody = lies.sites[1], lies.roster.indices
    honest = dict(UnmaskRequest.decode(lies.request(1, everybody)).envelopes)
    to_two, own = lies.round_state._envelopes.get(3, 2), lies.round_state._envelopes.get(1, 2)
    for lie in (
        {**honest, 2: honest[2][:-1]},  # truncated
        {**honest, 2: honest[3], 3: honest[2]},  # swapped between senders
        {**honest, 3: to_two},  # for another receiver
        {**honest, 2: own},  # reflected to its author
        {**honest, 2: bytes(len(honest[2]))},  # invented
        {i: box for i, box in honest.items() if i != 2},  # missing
    ):
        raw = lies.request(1, everybody, envelopes=tuple(sorted(lie.items())))
        assert refused(site, raw) is Check.ENVELOPE
    lies.answer(1, lies.request(1, everybody))  # and the site still answers the truth


def test_an_envelope_of_an_earlier_round_does_not_open() -> None:
    lies = Lies.after_uploads()
    old = lies.round_state._envelopes.get(2, 1)
    lies.server._phases.enter(Move(Resting(lies.server.state.READY)))
    lies.collect(lies.fresh_updates())
    honest = dict(UnmaskRequest.decode(lies.request(1, lies.roster.indices)).envelopes)
    raw = lies.request(1, lies.roster.indices, envelopes=tuple(sorted({**honest, 2: old}.items())))
    assert refused(lies.sites[1], raw) is Check.ENVELOPE


# ---------------------------------------------------------------- vectors and updates


def test_an_update_of_an_answered_attempt_is_never_contributed_again() -> None:
    # Two sums over S and S without u, of the same updates, would differ by exactly u's update.
    lies = Lies.after_uploads()
    update = lies.updates[1]
    lies.answer(1, lies.request(1, lies.roster.indices))
    lies.server._phases.enter(Move(Resting(lies.server.state.READY)))
    lies.sites[1].receive(lies.start(cohort=(1, 2, 3, 4), threshold=3), MODEL)
    before = lies.sites[1].phase
    assert check_of(lies.sites[1].contribute, update, draws_of(update)) is Check.REUSED_UPDATE
    assert lies.sites[1].phase is before
    lies.sites[1].contribute(unit_update(1, 5), bytes(32))


def test_an_update_whose_sum_others_may_have_opened_is_not_contributed_again() -> None:
    # Members 1, 2 and 3 suffice to open the sum; 4 and 5 are asked nothing, and then for a sum of the two of them.
    lies = Lies.after_uploads()
    update = lies.updates[4]
    lies.server._phases.enter(Move(Resting(lies.server.state.READY)))
    lies.sites[4].receive(lies.start(cohort=(4, 5), threshold=2), MODEL)
    assert check_of(lies.sites[4].contribute, update, draws_of(update)) is Check.REUSED_UPDATE


@pytest.mark.parametrize("answered", [False, True])
def test_a_repeatable_sum_is_repeated_only_while_this_site_has_not_answered(answered: bool) -> None:
    lies = Lies.after_uploads(policy=SecaggPolicy(repeatable=frozenset({"training"})))
    update = lies.updates[1]
    if answered:
        lies.answer(1, lies.request(1, lies.roster.indices))
    lies.server._phases.enter(Move(Resting(lies.server.state.READY)))
    lies.sites[1].receive(lies.start(), MODEL)
    if not answered:
        lies.sites[1].contribute(update, draws_of(update))
        return
    assert check_of(lies.sites[1].contribute, update, draws_of(update)) is Check.REUSED_UPDATE


@pytest.mark.parametrize("weight", [0, -1, 1001])
def test_a_weight_that_is_zero_negative_or_overflows_never_leaves_the_site(weight: int) -> None:
    lies = Lies.in_session()
    lies.sites[1].receive(lies.start(), MODEL)
    with pytest.raises(TrainingError, match="not one that the plan allows") as fault:
        lies.sites[1].contribute(Update(np.zeros(1), np.zeros(5), weight), bytes(32))
    assert not any(character.isdigit() for character in fault.value.message), "weights are numbers of records"


def test_a_sum_without_any_weight_is_aborted_in_words() -> None:
    lies = Lies.in_session(3)
    lies._contribute = lambda member: lies.sites[member].abstain(bytes(32))  # type: ignore[method-assign]
    lies.updates = lies.fresh_updates()
    (aborted,) = carried(lies, lies.server.start_round("training", MODEL, (1.0,), lies.roster.indices))
    assert aborted.answered
    assert "0 contributors of 3 survivors" in aborted.reason
