"""The aggregator's side of one round: what arrived, and how the sum is opened.

Every upload is checked and added to the running sum at once, then dropped; what stays is its signed head. A long
one is added while it arrives (`arriving`), and counts once it has been checked like any other.
Masks are rebuilt from exactly t members' shares. Each share is compared with the digest that its owner signed, so
a wrong one is known when it arrives; each mask is checked against what its owner promised before it is used.
Decides no order of events; that is `server`.
"""

from __future__ import annotations

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
from fedfair.secagg.keys import Secret, confirmation_tag
from fedfair.secagg.masking import MaskedSum, MaskedVector, SignedSeed
from fedfair.secagg.opened_sum import OpenedSum, RoundLayout, decode_sum
from fedfair.secagg.params import SessionTerms
from fedfair.secagg.round_messages import (
    ConsistencyCheck,
    OpenedMessage,
    RoundStart,
    UnmaskRequest,
    UnmaskShares,
    Upload,
    consistency_fields,
)
from fedfair.secagg.round_start import round_transcript
from fedfair.secagg.sealing import SHARE_DIGEST_BYTES, envelope_bytes, share_digest
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
        spare: memory of an earlier round of this shape, to be written over; None where there is none.

    Attributes:
        start: the round start that was sent.
        transcript: T_r.
        uploads: the head of every upload that came, in the order of arrival, without those that were left out or
            must come once more.
        votes: the signatures of the voters.
        answers: what came to open the sum.
    """

    def __init__(
        self,
        roster: Roster,
        terms: SessionTerms,
        start: RoundStart,
        shape: SumShape,
        spare: NDArray[np.uint32] | None = None,
    ) -> None:
        self.start = start
        self.transcript = round_transcript(start, shape.digest())
        self.uploads: dict[int, Upload] = {}
        self._tags: dict[int, dict[int, bytes]] = {}
        self._envelopes: dict[int, dict[int, bytes]] = {}
        self._promised: dict[int, dict[int, bytes]] = {}
        self._added: set[int] = set()
        self._contradictions: set[Pair] = set()
        self._once_more: dict[int, Upload] = {}
        self.votes: dict[int, bytes] = {}
        self.answers: dict[int, UnmaskShares] = {}
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
        return tuple(sorted(self._added))

    @property
    def dropped(self) -> tuple[int, ...]:
        """Return whose of the cohort is not."""
        return tuple(member for member in self.start.cohort if member not in self._added)

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
        self._check_author(sender, upload.member, upload.transcript, self.start.cohort)
        self._check_form(sender, upload)
        self._roster.verify(sender, upload.signature, "upload", *upload.signed_fields())
        same = self._once_more.get(sender, upload) == upload
        require(same, Check.DUPLICATE, f"{self._roster.name(sender)} sends another upload than before")
        tags = dict(upload.tags)
        opposed = {peer for peer in self.uploads if self._tags[peer][sender] != tags[peer]}
        if opposed:
            self._sum.check(vector, upload.vector_digest)
        else:
            self._sum.add(vector, upload.vector_digest)
            self._added.add(sender)
        self._contradictions |= {(min(sender, peer), max(sender, peer)) for peer in opposed}
        self.uploads[sender] = upload
        self._tags[sender], self._envelopes[sender] = tags, dict(upload.envelopes)
        self._promised[sender] = dict(upload.share_digests)

    def leave_out(self, members: Collection[int]) -> tuple[int, ...]:
        """Go on without those whom the others contradict; return who of the others must send its upload once more.

        Nothing can be taken out of the running sum, so it begins again where one of `members` is in it.
        """
        for member in members:
            del self.uploads[member]
        self._contradictions.clear()
        if not self._added <= self.uploads.keys():
            self._sum.clear()
            self._added.clear()
        lacking = sorted(self.uploads.keys() - self._added)
        self._once_more = {member: self.uploads.pop(member) for member in lacking}
        return tuple(lacking)

    def _check_form(self, sender: int, upload: Upload) -> None:
        name, cohort = self._roster.name(sender), list(self.start.cohort)
        peers = [member for member in cohort if member != sender]
        expected = ((upload.tags, peers), (upload.envelopes, peers), (upload.share_digests, cohort))
        everyone = all([member for member, _ in pairs] == whom for pairs, whom in expected)
        require(everyone, Check.ENVELOPE, f"{name} did not seal shares for exactly its cohort")
        for what, pairs, length in (
            ("an envelope", upload.envelopes, envelope_bytes(len(cohort))),
            ("a list of digests of shares", upload.share_digests, SHARE_DIGEST_BYTES * len(cohort)),
        ):
            right_length = all(len(found) == length for _, found in pairs)
            require(right_length, Check.ENVELOPE, f"{what} of {name} does not have {length} bytes")

    def add_vote(self, sender: int, raw: bytes) -> None:
        """Check one vote.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, TRANSCRIPT, VOTES or SIGNATURE.
        """
        vote = ConsistencyCheck.decode(raw)
        self._check_author(sender, vote.member, vote.transcript, self.survivors)
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
        self._check_author(sender, answer.member, answer.transcript, self.survivors)
        about = tuple(member for member, _ in answer.shares)
        same = answer.survivors == self.survivors == about
        require(same, Check.SHARE, f"{self._roster.name(sender)} answered for another set")
        length = SHARE_BYTES * (1 + len(self.dropped))
        right_length = all(len(shares) == length for _, shares in answer.shares)
        require(
            right_length,
            Check.SHARE,
            f"an answer of {self._roster.name(sender)} does not have {length} bytes a survivor",
        )
        self.answers[sender] = answer
        self._wrong |= {
            (sender, owner) for owner, held in answer.shares if not self._promises(owner, sender, held)
        }

    def add_unopened(self, holder: int, owner: int) -> None:
        """Note that a survivor answers nothing, because what another one sealed for it does not open.

        Raises:
            SecaggError: MEMBERSHIP: `owner` has sealed nothing for `holder` in this sum.
        """
        sealed = holder != owner and {holder, owner} <= self._added
        words = f"member {holder} accuses member {owner}, who has sealed nothing for it in this sum"
        require(sealed, Check.MEMBERSHIP, words)
        self._unopened.add((holder, owner))

    @property
    def fewest_shares(self) -> int:
        """Return how many right shares there are of the mask of which there are fewest."""
        wrong = Counter(owner for _, owner in self._wrong)
        return len(self.answers) - max(wrong.values(), default=0)

    def holders(self, owner: int) -> list[int]:
        """Return whose answers have the shares that a survivor promised, in order of the roster."""
        return [holder for holder in sorted(self.answers) if (holder, owner) not in self._wrong]

    def _promises(self, owner: int, holder: int, shares: bytes) -> bool:
        promised = self._promised[owner][holder]
        for at, position in enumerate(self._positions(owner)):
            share = shares[SHARE_BYTES * at : SHARE_BYTES * (at + 1)]
            digest = promised[SHARE_DIGEST_BYTES * position : SHARE_DIGEST_BYTES * (position + 1)]
            if share_digest(self.transcript, owner, holder, position, share) != digest:
                return False
        return True

    def _positions(self, owner: int) -> list[int]:
        """Return where in an owner's envelope the shares of an answer stand: its own mask's, then the dropped."""
        peers = [member for member in self.start.cohort if member != owner]
        return [0, *(1 + peers.index(gone) for gone in self.dropped)]

    def request_for(self, member: int, *, with_votes: bool) -> UnmaskRequest:
        """Return the request to open the survivors' masks, with the envelopes for one of them."""
        others = [sender for sender in self.survivors if sender != member]
        envelopes = tuple((sender, self._envelopes[sender][member]) for sender in others)
        votes = tuple(sorted(self.votes.items())) if with_votes else ()
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
            responders = self.holders(survivor)[: self.start.threshold]
            weights = self._weights(tuple(responders))
            held = [dict(self.answers[member].shares)[survivor] for member in responders]
            seeds = [
                self._seed(survivor, weights, [shares[at : at + SHARE_BYTES] for shares in held])
                for at in range(0, SHARE_BYTES * (1 + len(self.dropped)), SHARE_BYTES)
            ]
            self._check_seeds(survivor, seeds)
            found.append(SignedSeed(seeds[0], False))
            found += [SignedSeed(s, gone < survivor) for gone, s in zip(self.dropped, seeds[1:], strict=True)]
        return found

    def _weights(self, responders: tuple[int, ...]) -> list[int]:
        # Nearly always the same responders for every survivor.
        if responders not in self._known_weights:
            self._known_weights[responders] = lagrange_at_zero(responders)
        return self._known_weights[responders]

    def _seed(self, survivor: int, weights: list[int], shares: list[bytes]) -> Secret:
        try:
            return Secret(combine(weights, shares))
        except SecaggError as fault:
            words = f"the shares that {self._roster.name(survivor)} promised are of no mask: {fault.message}"
            raise SecaggError(fault.check, words, liar=survivor) from fault

    def _check_seeds(self, survivor: int, seeds: list[Secret]) -> None:
        """Refuse masks that their owner did not promise: it has signed the digest of every share that is used."""
        name = self._roster.name(survivor)
        if commitment(seeds[0], self.transcript, survivor) != self.uploads[survivor].commitment:
            words = f"the shares of {name}'s mask combine to another one than it promised"
            raise SecaggError(Check.COMMITMENT, words, liar=survivor)
        for gone, seed in zip(self.dropped, seeds[1:], strict=True):
            if confirmation_tag(seed, self.transcript) != self._tags[survivor][gone]:
                words = f"the shares of the mask of {name} and {self._roster.name(gone)} are wrong"
                raise SecaggError(Check.TAG, words, liar=survivor)

    def _check_author(self, sender: int, member: int, transcript: bytes, allowed: tuple[int, ...]) -> None:
        require(member == sender, Check.MEMBERSHIP, f"member {sender} speaks as member {member}")
        require(sender in allowed, Check.MEMBERSHIP, f"member {sender} has no part in this")
        same = transcript == self.transcript
        require(same, Check.TRANSCRIPT, f"member {sender} speaks of another round than {self.start.round}")
