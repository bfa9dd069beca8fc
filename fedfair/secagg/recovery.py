"""The aggregator's side of one round: what arrived, and how the sum is opened.

Every upload is checked and added to the running sum at once, then dropped; what stays is its signed head. A long
one is added while it arrives (`arriving`), and counts once it has been checked like any other.
Survivors hand over their masks with the missing, each under its own mask. Own masks are rebuilt from exactly t
members' shares (`collected_shares`). Each mask is checked against what its owner promised before it is used.
Decides no order of events; that is `server`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.secagg.arriving import ArrivingVector
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.client import commitment
from fedfair.secagg.collected_shares import CollectedShares
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
from fedfair.secagg.sealing import ENVELOPE_BYTES, SHARE_DIGEST_BYTES, wrap_pair_masks
from fedfair.secagg.session_graph import SessionGraph
from fedfair.secagg.shape import SumShape
from fedfair.secagg.signing import Roster


@dataclass(frozen=True, slots=True)
class Announcement:
    """The words by which every site of a cohort learns its opened sum.

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
    """One round as the aggregator sees it: one running sum, and the signed head of each upload.

    Args:
        roster: the pinned keys of all members.
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
        shares: that arrived to open the sum.
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
        self._added = Contributors(self.graph)
        self._tags = MemberTable(self.graph.holders, TAG_BYTES)
        self._envelopes = MemberTable(self.graph.holders, ENVELOPE_BYTES)
        self._promised = MemberTable(self.graph.holders, SHARE_DIGEST_BYTES)
        self.shares = CollectedShares(self.transcript, self._added, self._promised)
        self._wrapped: dict[int, dict[int, bytes]] = {}
        self._contradictions: set[Pair] = set()
        self._once_more: dict[int, UploadHead] = {}
        self.votes: dict[int, bytes] = {}
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

    def add_upload(self, sender: int, raw: bytes, vector: MaskedVector) -> None:
        """Check one upload; add its vector where no earlier upload contradicts it, and forget it.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, TRANSCRIPT, ENVELOPE, SIGNATURE, DUPLICATE, VECTOR or LATE; nothing
                changed.
        """
        upload = Upload.decode(raw)
        self._check_author(sender, upload.member, upload.transcript, self.graph.cohort)
        _check_form(upload, self.graph, self._roster.name(sender))
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
        """Continue without those whom the others contradict; return who of the others must upload once more.

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
        """Return whom a sum must continue without, because too few of those survive who hold shares of its mask.

        Args:
            without: who is left out in any case.
        """
        present = {*self.uploads} - {*without}
        found = self.graph.lonely(present)
        return tuple(sorted(found))

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
        self.shares.add(answer, self._roster.name(sender))

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
            What the sum says, and what the sites are to receive.

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
            own = self._own_seed(survivor)
            found.append(SignedSeed(own, False))
            found += self._pair_seeds(survivor, own)
        return found

    def _own_seed(self, survivor: int) -> Secret:
        """Return b of a survivor; it has signed the digest of every share that is used."""
        name = self._roster.name(survivor)
        try:
            seed = Secret(self.shares.combined(survivor))
        except SecaggError as fault:
            words = f"the shares that {name} promised are of no mask: {fault.message}"
            raise SecaggError(fault.check, words, liar=survivor) from fault
        if commitment(seed, self.transcript, survivor) != self.uploads[survivor].commitment:
            words = f"the shares of {name}'s mask combine to another one than it promised"
            raise SecaggError(Check.COMMITMENT, words, liar=survivor)
        return seed

    def _pair_seeds(self, survivor: int, own: Secret) -> list[SignedSeed]:
        """Return s of a survivor and each member that is missing; it has handed them over under its own."""
        found = list[SignedSeed]()
        wrapped = self._wrapped.get(survivor)
        if not wrapped:
            return found
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


def _check_form(upload: Upload, graph: RoundGraph, name: str) -> None:
    """Refuse an upload that does not have one value of the right length for each neighbour of its author."""
    holders, peers = graph.holders(upload.member), graph.peers(upload.member)
    expected = ((upload.tags, peers), (upload.envelopes, peers), (upload.share_digests, holders))
    everyone = all(tuple(member for member, _ in pairs) == whom for pairs, whom in expected)
    require(everyone, Check.ENVELOPE, f"{name} did not seal shares for exactly its cohort")
    for what, pairs, length in (
        ("an envelope", upload.envelopes, ENVELOPE_BYTES),
        ("a digest of a share", upload.share_digests, SHARE_DIGEST_BYTES),
    ):
        right_length = all(len(found) == length for _, found in pairs)
        require(right_length, Check.ENVELOPE, f"{what} of {name} does not have {length} bytes")
