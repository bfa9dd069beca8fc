"""The aggregator's side of one round: what arrived, and how the sum is opened.

Every upload is checked and added to the running sum at once, then dropped; what stays is its signed head. A long
one is added while it arrives (`arriving`), and counts once it has been checked like any other.
Survivors hand over their masks with the missing, each under its own mask. Own masks are rebuilt from exactly t
members' shares. Each share is compared with the digest that its owner signed, so
a wrong one is known when it arrives; each mask is checked against what its owner promised before it is used.
Decides no order of events; that is `server`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.secagg.arriving import ArrivingVector
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.client import commitment
from fedfair.secagg.disputes import Pair
from fedfair.secagg.fixedpoint import BLOCK_VALUES, packed_blocks, packed_body
from fedfair.secagg.keys import TAG_BYTES, Secret, confirmation_tag
from fedfair.secagg.masking import MaskedSum, MaskedVector, SignedSeed
from fedfair.secagg.member_table import MemberTable
from fedfair.secagg.opened_sum import OpenedSum, RoundLayout, decode_sum
from fedfair.secagg.params import SessionTerms
from fedfair.secagg.round_graph import Contributors, RoundGraph
from fedfair.secagg.round_messages import (
    ConsistencyCheck,
    OpenedMessage,
    PairMasks,
    RoundStart,
    UnmaskRequest,
    UnmaskShares,
    Upload,
    consistency_fields,
)
from fedfair.secagg.round_start import round_transcript
from fedfair.secagg.sealing import ENVELOPE_BYTES, SHARE_DIGEST_BYTES, share_digests, wrap_pair_masks
from fedfair.secagg.session_graph import SessionGraph
from fedfair.secagg.shamir import SHARE_BYTES, combine, lagrange_at_zero
from fedfair.secagg.shape import SumShape
from fedfair.secagg.signing import Roster


@dataclass(frozen=True, slots=True)
class Announcement:
    """The words in which every site of a cohort is told of its opened sum.

    Attributes:
        message: an `OpenedMessage`.
        vector: the words of the body, packed at ring width; empty where the sum has none.
    """

    message: bytes
    vector: bytes | memoryview


KeepBody = Callable[[Iterable[memoryview]], bytes | memoryview]
"""From the bytes of a body in parts to the whole of them, wherever it is kept."""


@dataclass(frozen=True, slots=True)
class UploadHead:
    """The part of an upload that stays once its vector is added and its other parts are in their tables.

    Attributes:
        commitment: to the own mask.
        signed: what the signature covers, digests of all parts among it.
        signature: of the member.
    """

    commitment: bytes
    signed: tuple[bytes, ...]
    signature: bytes


class RoundState:
    """One round as the aggregator sees it.

    Memory: one running sum, and the signed head of each upload. A vector that contradicts an earlier upload is not
    added; once it is decided who stays, whatever of it is lacking is asked for again, and a site sends the same
    bytes again.

    Args:
        roster: everybody's pinned keys.
        terms: of the session.
        start: the round start that was sent.
        shape: of every contribution.
        graph: of the session.
        spare: memory of an earlier round of this shape, to be written over; None where there is none.

    Attributes:
        start: the round start that was sent.
        graph: who shares masks with whom.
        transcript: T_r.
        uploads: the head of every upload that came, in the order of arrival, without those that were left out or
            must come once more.
        votes: the signatures of the voters.
        answers: the shares that came to open the sum, by member in order of those near it who survive.
    """

    def __init__(
        self,
        roster: Roster,
        terms: SessionTerms,
        start: RoundStart,
        shape: SumShape,
        graph: SessionGraph,
        spare: NDArray[np.uint32] | None = None,
    ) -> None:
        self.start = start
        self.graph = RoundGraph(start, terms.mode, graph)
        self.transcript = round_transcript(start, shape.digest())
        self.uploads: dict[int, UploadHead] = {}
        self._tags = MemberTable(self.graph.holders, TAG_BYTES)
        self._envelopes = MemberTable(self.graph.holders, ENVELOPE_BYTES)
        self._promised = MemberTable(self.graph.holders, SHARE_DIGEST_BYTES)
        self._wrapped: dict[int, dict[int, bytes]] = {}
        self._added = Contributors(self.graph)
        self._right: Counter[int] = Counter()  # how many right shares there are of whose mask
        self._enough: set[int] = set()  # of whose masks there are enough
        self._contradictions: set[Pair] = set()
        self._once_more: dict[int, UploadHead] = {}
        self.votes: dict[int, bytes] = {}
        self.answers: dict[int, bytes] = {}
        self._wrong: set[Pair] = set()
        self._unopened: set[Pair] = set()
        self._known_weights: dict[tuple[int, ...], list[int]] = {}
        self._roster = roster
        self._terms = terms
        self._shape = shape
        self._sum = MaskedSum(shape, terms.ring_bits, spare)

    def arriving(self) -> ArrivingVector | None:
        """Return what adds a vector to the running sum while it arrives; None where another one is arriving."""
        return self._sum.arriving()

    def take_spare(self) -> NDArray[np.uint32] | None:
        """Return memory for the next round of this shape; no vector that is arriving counts any more."""
        return self._sum.take_spare()

    @property
    def survivors(self) -> tuple[int, ...]:
        """Return whose upload is in the running sum, in order of the roster."""
        return self._added.ordered

    @property
    def contradictions(self) -> tuple[Pair, ...]:
        """Return the pairs of uploads whose tags differ: at least one of the two members lies."""
        return tuple(sorted(self._contradictions))

    @property
    def wrong_shares(self) -> tuple[Pair, ...]:
        """Return (holder, owner) of every share that is not the one that its owner promised: one of them lies."""
        return tuple(sorted(self._wrong))

    @property
    def unopened(self) -> tuple[Pair, ...]:
        """Return (holder, owner) where a holder says that what the owner sealed for it does not open."""
        return tuple(sorted(self._unopened))

    def add_upload(self, sender: int, raw: bytes, vector: MaskedVector) -> None:
        """Check one upload; add its vector where no earlier upload contradicts it, and forget it.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, TRANSCRIPT, ENVELOPE, SIGNATURE, DUPLICATE, VECTOR or LATE; nothing
                changed.
        """
        upload = Upload.decode(raw)
        self._check_author(sender, upload.member, upload.transcript, self.graph.cohort)
        self._check_form(sender, upload)
        head = UploadHead(upload.commitment, upload.signed_fields(), upload.signature)
        self._roster.verify(sender, head.signature, "upload", *head.signed)
        same = self._once_more.get(sender, head) == head
        require(same, Check.DUPLICATE, f"{self._roster.name(sender)} sends another upload than before")
        tags = dict(upload.tags)
        opposed = {peer for peer in tags if peer in self.uploads and self._tags.get(peer, sender) != tags[peer]}
        if opposed:
            self._sum.check(vector, upload.vector_digest)
        else:
            self._sum.add(vector, upload.vector_digest)
            self._added.add(sender)
        self._contradictions |= {(min(sender, peer), max(sender, peer)) for peer in opposed}
        self.uploads[sender] = head
        self._tags.put(sender, upload.tags)
        self._envelopes.put(sender, upload.envelopes)
        self._promised.put(sender, upload.share_digests)

    @property
    def is_repeated(self) -> bool:
        """Return whether the sum has begun again without somebody who had contributed."""
        return bool(self._once_more)

    def leave_out(self, members: Collection[int]) -> tuple[int, ...]:
        """Go on without those whom the others contradict; return who of the others must send its upload once more.

        Nothing can be taken out of the running sum, so it begins again where one of `members` is in it.
        """
        for member in members:
            del self.uploads[member]
        self._contradictions.clear()
        if not self._added.members <= self.uploads.keys():
            self._sum.clear()
            self._added.clear()
            self._wrapped.clear()
        lacking = sorted(self.uploads.keys() - self._added.members)
        self._once_more = {member: self.uploads.pop(member) for member in lacking}
        return tuple(lacking)

    def lonely(self, without: Collection[int]) -> tuple[int, ...]:
        """Return whom a sum must go on without, because too few of those survive who hold shares of its mask.

        Args:
            without: who is left out in any case.
        """
        present = {*self.uploads} - {*without}
        found = self.graph.lonely(present)
        return tuple(sorted(found))

    def _check_form(self, sender: int, upload: Upload) -> None:
        name, holders = self._roster.name(sender), self.graph.holders(sender)
        peers = self.graph.peers(sender)
        expected = ((upload.tags, peers), (upload.envelopes, peers), (upload.share_digests, holders))
        everyone = all(tuple(member for member, _ in pairs) == whom for pairs, whom in expected)
        require(everyone, Check.ENVELOPE, f"{name} did not seal shares for exactly its cohort")
        for what, pairs, length in (
            ("an envelope", upload.envelopes, ENVELOPE_BYTES),
            ("a digest of a share", upload.share_digests, SHARE_DIGEST_BYTES),
        ):
            right_length = all(len(found) == length for _, found in pairs)
            require(right_length, Check.ENVELOPE, f"{what} of {name} does not have {length} bytes")

    def add_pair_masks(self, sender: int, raw: bytes) -> None:
        """Check the masks that a survivor has in common with those who are missing.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, TRANSCRIPT or SURVIVORS; nothing changed.
        """
        message, name = PairMasks.decode(raw), self._roster.name(sender)
        self._check_author(sender, message.member, message.transcript, self._added.members)
        missing = self._added.missing_near(sender)
        same = message.survivors == self.survivors and [gone for gone, _ in message.masks] == missing
        require(same, Check.SURVIVORS, f"{name} handed over its masks with others than those who are missing")
        self._wrapped[sender] = dict(message.masks)

    @property
    def without_pair_masks(self) -> tuple[int, ...]:
        """Return which survivors have not handed over their masks with those who are missing."""
        whole = self._added.members == self.graph.cohort
        return () if whole else tuple(sorted(self._added.members - self._wrapped.keys()))

    @property
    def voters(self) -> tuple[int, ...]:
        """Return whose votes on the survivors are asked."""
        return tuple(member for member in self.graph.voters if member in self._added.members)

    def add_vote(self, sender: int, raw: bytes) -> None:
        """Check one vote.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, TRANSCRIPT, VOTES or SIGNATURE.
        """
        vote = ConsistencyCheck.decode(raw)
        self._check_author(sender, vote.member, vote.transcript, self.voters)
        require(vote.survivors == self.survivors, Check.VOTES, f"member {sender} signed another set of survivors")
        fields = consistency_fields(self.transcript, vote.survivors, sender)
        self._roster.verify(sender, vote.signature, "vote", *fields)
        self.votes[sender] = vote.signature

    def add_answer(self, sender: int, raw: bytes) -> None:
        """Check one answer; a share that its owner did not promise is noted and never used.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, TRANSCRIPT or SHARE.
        """
        answer = UnmaskShares.decode(raw)
        self._check_author(sender, answer.member, answer.transcript, self._added.members)
        about = tuple(member for member, _ in answer.shares)
        same = answer.survivors == self.survivors and about == self._added.near(sender)
        require(same, Check.SHARE, f"{self._roster.name(sender)} answered for another set")
        right_length = all(len(share) == SHARE_BYTES for _, share in answer.shares)
        require(
            right_length,
            Check.SHARE,
            f"an answer of {self._roster.name(sender)} does not have {SHARE_BYTES} bytes a survivor",
        )
        self.answers[sender] = b"".join(share for _, share in answer.shares)
        given = (((owner, sender), share) for owner, share in answer.shares)
        for (owner, _), found in share_digests(self.transcript, given):
            if found == self._promised.get(owner, sender):
                self._right[owner] += 1
                if self._right[owner] >= self.graph.shares_needed(owner):
                    self._enough.add(owner)
            else:
                self._wrong.add((sender, owner))

    def add_unopened(self, holder: int, owner: int) -> None:
        """Note that a survivor answers nothing, because what another one sealed for it does not open.

        Raises:
            SecaggError: MEMBERSHIP: `owner` has sealed nothing for `holder` in this sum.
        """
        sealed = holder != owner and {holder, owner} <= self._added.members and owner in self.graph.holders(holder)
        words = f"member {holder} accuses member {owner}, who has sealed nothing for it in this sum"
        require(sealed, Check.MEMBERSHIP, words)
        self._unopened.add((holder, owner))

    @property
    def fewest_shares(self) -> int:
        """Return how many right shares there are of the mask of which there are fewest."""
        return min((self._right[owner] for owner in self.survivors), default=0)

    @property
    def opens(self) -> bool:
        """Return whether there are enough right shares of every mask."""
        return len(self._enough) == len(self._added.members)

    def is_hopeless(self, missing: set[int], lost: Collection[int]) -> bool:
        """Return whether there are too few right shares of a mask, even if everybody who is missing answers.

        Args:
            missing: who may still answer.
            lost: who may just have failed to; since the last question nobody else has.
        """
        owners = {owner for member in lost for owner in self._added.near(member)} - self._enough
        needed = self.graph.shares_needed
        return any(
            self._right[one] + len(missing.intersection(self._added.near(one))) < needed(one) for one in owners
        )

    def holders(self, owner: int) -> list[int]:
        """Return whose answers have the shares that a survivor promised, in order of the roster."""
        answered = (holder for holder in self._added.near(owner) if holder in self.answers)
        return [holder for holder in answered if (holder, owner) not in self._wrong]

    def request_for(self, member: int, *, with_votes: bool) -> UnmaskRequest:
        """Return the request to open the survivors' masks, with the envelopes for one of them."""
        others = [sender for sender in self._added.near(member) if sender != member]
        envelopes = tuple((sender, self._envelopes.get(sender, member)) for sender in others)
        # As many as a site needs: each takes one verification.
        votes = tuple(sorted(self.votes.items())[: self.graph.votes_needed]) if with_votes else ()
        return UnmaskRequest(self.transcript, self.survivors, votes, envelopes)

    def open(
        self, dtype: np.dtype[np.floating], threads: int, keep: KeepBody | None = None
    ) -> tuple[OpenedSum, Announcement]:
        """Rebuild each mask from t of the shares that its owner promised, take all away, decode; use up the sum.

        Args:
            dtype: float32 or float64: width of the decoded body.
            threads: how many threads may take masks away.
            keep: where the body of the announcement is kept; None for memory.

        Returns:
            What the sum says, and what the sites are to be told of it.

        Raises:
            SecaggError: SHARE, COMMITMENT or TAG: a member promised other shares than those of its masks, and is
                named as the liar; PLAUSIBILITY: no honest contributions have such a total.
        """
        self._sum.take_spare()  # Nothing arrives any more, and opening needs memory of its own.
        self._sum.remove(self._masks(), threads)
        header = self._sum.header.astype("<u8", copy=False).tobytes()
        message = OpenedMessage(self.transcript, self.survivors, header).encode()
        # Decoding may use the memory of the words.
        body, ring_bits = self._sum.body, self._terms.ring_bits
        long = keep is not None and body.size > BLOCK_VALUES
        vector = keep(packed_blocks(body, ring_bits)) if keep and long else packed_body(body, ring_bits)
        announcement = Announcement(message, vector)
        layout = RoundLayout(self.start, self._terms, self._shape, dtype)
        return decode_sum(self._sum.header, self._sum.body, self.survivors, layout), announcement

    def _masks(self) -> list[SignedSeed]:
        found = []
        for survivor in self.survivors:
            responders = self.holders(survivor)[: self.graph.shares_needed(survivor)]
            weights = self._weights(tuple(responders))
            own = self._own_seed(survivor, weights, [self._share_of(survivor, member) for member in responders])
            found.append(SignedSeed(own, False))
            found += self._pair_seeds(survivor, own)
        return found

    def _share_of(self, owner: int, holder: int) -> bytes:
        place = bisect_left(self._added.near(holder), owner)
        return self.answers[holder][SHARE_BYTES * place : SHARE_BYTES * (place + 1)]

    def _weights(self, responders: tuple[int, ...]) -> list[int]:
        # Nearly always the same responders for every survivor.
        if responders not in self._known_weights:
            self._known_weights[responders] = lagrange_at_zero(responders)
        return self._known_weights[responders]

    def _own_seed(self, survivor: int, weights: list[int], shares: list[bytes]) -> Secret:
        """Return b of a survivor; it has signed the digest of every share that is used."""
        name = self._roster.name(survivor)
        try:
            seed = Secret(combine(weights, shares))
        except SecaggError as fault:
            words = f"the shares that {name} promised are of no mask: {fault.message}"
            raise SecaggError(fault.check, words, liar=survivor) from fault
        if commitment(seed, self.transcript, survivor) != self.uploads[survivor].commitment:
            words = f"the shares of {name}'s mask combine to another one than it promised"
            raise SecaggError(Check.COMMITMENT, words, liar=survivor)
        return seed

    def _pair_seeds(self, survivor: int, own: Secret) -> list[SignedSeed]:
        """Return s of a survivor and each member that is missing; it has handed them over under its own."""
        found = []
        wrapped = self._wrapped.get(survivor, {})
        for gone, seed in wrap_pair_masks(own, self.transcript, survivor, wrapped).items():
            found.append(SignedSeed(Secret(seed), gone < survivor))
            if confirmation_tag(found[-1].seed, self.transcript) != self._tags.get(survivor, gone):
                names = f"{self._roster.name(survivor)} handed over another mask with {self._roster.name(gone)}"
                raise SecaggError(Check.TAG, f"{names} than its upload names", liar=survivor)
        return found

    def _check_author(self, sender: int, member: int, transcript: bytes, allowed: Collection[int]) -> None:
        require(member == sender, Check.MEMBERSHIP, f"member {sender} speaks as member {member}")
        require(sender in allowed, Check.MEMBERSHIP, f"member {sender} has no part in this")
        same = transcript == self.transcript
        require(same, Check.TRANSCRIPT, f"member {sender} speaks of another round than {self.start.round}")
