"""The aggregator's side of one round: what arrived, and how the sum is opened.

Every upload is checked and added to the running sum at once, then dropped; what stays is its signed head.
Masks are rebuilt from exactly t members' shares, and each is checked against what its owner promised before
it is used. Decides no order of events; that is `server`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.secagg.checks import Check, require
from fedfair.secagg.client import commitment
from fedfair.secagg.entering import body_code, round_transcript
from fedfair.secagg.fixedpoint import decode_body, decode_header
from fedfair.secagg.keys import Secret, confirmation_tag
from fedfair.secagg.masking import MaskedSum, SignedSeed
from fedfair.secagg.params import SessionTerms
from fedfair.secagg.round_messages import Answer, Open, RoundStart, Upload, Vote, vote_fields
from fedfair.secagg.sealing import envelope_bytes
from fedfair.secagg.shamir import SHARE_BYTES, combine, lagrange_at_zero
from fedfair.secagg.shape import SIZE_BUCKETS, SumShape
from fedfair.secagg.signing import Roster


@dataclass(frozen=True, slots=True)
class OpenedSum:
    """The one thing the aggregator learns in a round.

    Attributes:
        purpose: why it was summed.
        survivors: whose contributions, or abstentions, are in it.
        contributors: how many did not abstain.
        weight: sum of the weights.
        header: float64 (header_length,): sums of the header values.
        body: (body_length,): sum of weight * change.
        clipped: how many values were clipped, over all sites.
        histogram: how many sites' largest magnitude fell into each power of two; () without a body.
        errors: for each group of the body, the bound on the error of a coordinate of `body`.
    """

    purpose: str
    survivors: tuple[int, ...]
    contributors: int
    weight: int
    header: NDArray[np.float64]
    body: NDArray[np.floating]
    clipped: int
    histogram: tuple[int, ...]
    errors: tuple[float, ...]


class Gathering:
    """One round as the aggregator sees it.

    Args:
        roster: everybody's pinned keys.
        terms: of the session.
        start: the round start that was sent.
        shape: of every contribution.
    """

    def __init__(self, roster: Roster, terms: SessionTerms, start: RoundStart, shape: SumShape) -> None:
        self.start = start
        self.transcript = round_transcript(start, shape.digest())
        self.uploads: dict[int, Upload] = {}
        self._tags: dict[int, dict[int, bytes]] = {}
        self._envelopes: dict[int, dict[int, bytes]] = {}
        self.votes: dict[int, bytes] = {}
        self.answers: dict[int, Answer] = {}
        self._roster = roster
        self._terms = terms
        self._shape = shape
        self._sum = MaskedSum(shape, terms.ring_bits)

    @property
    def survivors(self) -> tuple[int, ...]:
        """Return who has uploaded, in order of the roster."""
        return tuple(sorted(self.uploads))

    @property
    def dropped(self) -> tuple[int, ...]:
        """Return who of the cohort has not uploaded."""
        return tuple(member for member in self.start.cohort if member not in self.uploads)

    def add_upload(self, sender: int, raw: bytes, vector: bytes | bytearray | memoryview) -> None:
        """Check one upload, add its vector and forget it.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, TRANSCRIPT, ENVELOPE, SIGNATURE, TAG or VECTOR; nothing was added.
        """
        upload = Upload.decode(raw)
        self._check_author(sender, upload.member, upload.transcript, self.start.cohort)
        peers = [member for member in self.start.cohort if member != sender]
        everyone = [[peer for peer, _ in pairs] == peers for pairs in (upload.tags, upload.envelopes)]
        require(all(everyone), Check.ENVELOPE, f"member {sender} did not seal shares for exactly its cohort")
        length = envelope_bytes(len(self.start.cohort))
        right_length = all(len(envelope) == length for _, envelope in upload.envelopes)
        require(right_length, Check.ENVELOPE, f"an envelope of member {sender} does not have {length} bytes")
        self._roster.verify(sender, upload.signature, "upload", *upload.signed_fields())
        for peer, tag in upload.tags:
            if peer in self.uploads:
                require(
                    self._tags[peer][sender] == tag,
                    Check.TAG,
                    f"{self._roster.name(sender)} and {self._roster.name(peer)} derived different keys",
                    "they were shown different rounds; nothing of this round can be opened for both",
                )
        self._sum.add(vector, upload.vector_digest)
        self.uploads[sender] = upload
        self._tags[sender], self._envelopes[sender] = dict(upload.tags), dict(upload.envelopes)

    def add_vote(self, sender: int, raw: bytes) -> None:
        """Check one vote.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, TRANSCRIPT, VOTES or SIGNATURE.
        """
        vote = Vote.decode(raw)
        self._check_author(sender, vote.member, vote.transcript, self.survivors)
        require(vote.survivors == self.survivors, Check.VOTES, f"member {sender} voted for another set")
        fields = vote_fields(self.transcript, vote.survivors, sender)
        self._roster.verify(sender, vote.signature, "vote", *fields)
        self.votes[sender] = vote.signature

    def add_answer(self, sender: int, raw: bytes) -> None:
        """Check the form of one answer; whether its shares are right shows when they are combined.

        Raises:
            SecaggError: ENCODING, MEMBERSHIP, TRANSCRIPT or SHARE.
        """
        answer = Answer.decode(raw)
        self._check_author(sender, answer.member, answer.transcript, self.survivors)
        about = tuple(member for member, _ in answer.shares)
        same = answer.survivors == self.survivors == about
        require(same, Check.SHARE, f"member {sender} answered for another set")
        length = SHARE_BYTES * (1 + len(self.dropped))
        right_length = all(len(shares) == length for _, shares in answer.shares)
        require(right_length, Check.SHARE, f"an answer of member {sender} does not have {length} bytes a survivor")
        self.answers[sender] = answer

    def request_for(self, member: int, *, with_votes: bool) -> Open:
        """Return the request to open the survivors' masks, with the envelopes for one of them."""
        others = [sender for sender in self.survivors if sender != member]
        envelopes = tuple((sender, self._envelopes[sender][member]) for sender in others)
        votes = tuple(sorted(self.votes.items())) if with_votes else ()
        return Open(self.transcript, self.survivors, votes, envelopes)

    def open(self, dtype: np.dtype[np.floating], threads: int) -> OpenedSum:
        """Rebuild the masks from t answers, take them away and decode; the running sum is used up.

        Raises:
            SecaggError: SHARE, COMMITMENT or TAG: a member lied about its shares; PLAUSIBILITY: no honest
                contributions have such a total.
        """
        self._sum.remove(self._masks(), threads)
        cohort = len(self.start.cohort)
        runs = self._shape.header_runs(self._terms.greatest_weight)
        values = decode_header(self._sum.header, runs, cohort)
        weight, contributors = int(values[0]), int(values[1])
        require(
            0 < contributors <= len(self.survivors) and weight > 0,
            Check.PLAUSIBILITY,
            f"{contributors} contributors of {len(self.survivors)} survivors with a total weight of {weight}",
            "everybody abstained, or a contribution was malformed",
        )
        own = self._shape.masked_header_length() - self._shape.header_length
        code = body_code(self._terms, self.start, self._shape)
        return OpenedSum(
            self.start.purpose,
            self.survivors,
            contributors,
            weight,
            values[own:],
            decode_body(self._sum.body, code, dtype),
            int(values[2]) if self._shape.body_length else 0,
            tuple(int(count) for count in values[3 : 3 + SIZE_BUCKETS]) if self._shape.body_length else (),
            tuple(code.sum_error(clip, contributors) for clip in code.clips),
        )

    def _masks(self) -> list[SignedSeed]:
        responders = sorted(self.answers)[: self.start.threshold]
        weights = lagrange_at_zero(responders)
        held = [dict(self.answers[member].shares) for member in responders]
        found = []
        for survivor in self.survivors:
            seeds = [
                Secret(combine(weights, [shares[survivor][at : at + SHARE_BYTES] for shares in held]))
                for at in range(0, SHARE_BYTES * (1 + len(self.dropped)), SHARE_BYTES)
            ]
            self._check_seeds(survivor, seeds)
            found.append(SignedSeed(seeds[0], False))
            found += [SignedSeed(s, gone < survivor) for gone, s in zip(self.dropped, seeds[1:], strict=True)]
        return found

    def _check_seeds(self, survivor: int, seeds: list[Secret]) -> None:
        require(
            commitment(seeds[0], self.transcript, survivor) == self.uploads[survivor].commitment,
            Check.COMMITMENT,
            f"the shares of {self._roster.name(survivor)}'s mask combine to another one than it promised",
        )
        for gone, seed in zip(self.dropped, seeds[1:], strict=True):
            promised = self._tags[survivor][gone]
            require(
                confirmation_tag(seed, self.transcript) == promised,
                Check.TAG,
                f"the shares of the mask of {self._roster.name(survivor)} and {self._roster.name(gone)} are wrong",
            )

    def _check_author(self, sender: int, member: int, transcript: bytes, allowed: tuple[int, ...]) -> None:
        require(member == sender, Check.MEMBERSHIP, f"member {sender} speaks as member {member}")
        require(sender in allowed, Check.MEMBERSHIP, f"member {sender} has no part in this")
        same = transcript == self.transcript
        require(same, Check.TRANSCRIPT, f"member {sender} speaks of another round than {self.start.round}")
