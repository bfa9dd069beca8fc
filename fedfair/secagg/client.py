"""A site in one round: `round_start` -> Contributing -> Uploaded [-> MasksWrapped -> ConsistencyChecked] -> done.

Phases are objects; what a phase may not do, it has no method for, and going on erases what the phase before
knew. Everything is checked before anything changes. The rules that defeat a lying aggregator are here: a
member votes once and answers once, the dropped are what *we* compute (cohort without survivors), and only sets
with enough signed votes are opened.

A member's masks with the dropped leave it under its own mask, and for a set that may be opened only. From then on
it helps to open that set, or a part of it, and never the whole cohort. `participant` adds the log, resending and
dispatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import Check, SecaggError, require
from fedfair.secagg.fixedpoint import BodyCode
from fedfair.secagg.history import History, fingerprint, set_digest
from fedfair.secagg.keys import Secret, confirmation_tag
from fedfair.secagg.masking import SignedSeed, Update, masked_vector
from fedfair.secagg.messages import Pairs
from fedfair.secagg.params import Mode, least_survivors
from fedfair.secagg.round_graph import Neighbourhood
from fedfair.secagg.round_messages import (
    ConsistencyCheck,
    PairMasks,
    PairMasksRequest,
    RoundStart,
    Survivors,
    UnmaskRequest,
    UnmaskShares,
    Upload,
    consistency_fields,
)
from fedfair.secagg.sealing import open_envelope, seal, share_digests, wrap_pair_masks
from fedfair.secagg.session import SessionSite
from fedfair.secagg.shamir import SECRET_BYTES, Randomness, split
from fedfair.secagg.signing import sign
from fedfair.secagg.sum_check import SumCheck, Tagging
from fedfair.secagg.transcript import digest, u16


@dataclass(frozen=True, slots=True)
class RoundContext:
    """The public facts of one round, as this site sees it.

    Attributes:
        site: our own side.
        mode: what the aggregator is trusted with.
        colluders: n_C.
        cohort: who is asked, in increasing order.
        threshold: t of this round.
        transcript: T_r, 32 bytes.
        computed: 32 bytes, equal for sums of which this site opens no two for different sites.
        settled: `set_digest` of the only set that may be opened, because this sum was opened for it before; empty
            where any large enough part of the cohort may.
        near: our part of the graph of masks.
    """

    site: SessionSite
    mode: Mode
    colluders: int
    cohort: tuple[int, ...]
    threshold: int
    transcript: bytes
    computed: bytes
    settled: bytes
    near: Neighbourhood

    @property
    def holders(self) -> tuple[int, ...]:
        """Return who holds a share of our own mask, increasing; we do."""
        return tuple(sorted((*self.near.peers, self.site.member)))

    @property
    def shares_needed(self) -> int:
        """Return how many shares open our own mask."""
        return len(self.holders) if self.unanimous else self.near.shares

    @property
    def unanimous(self) -> bool:
        """Return whether nothing can be opened without the answer of every member of the cohort."""
        return self.threshold == len(self.cohort)

    @property
    def opens_whole(self) -> bool:
        """Return whether nothing but the sum over the whole cohort can be opened, with or without our answer.

        A sum over less needs t answers, so that of an honest site at least; and every honest site has the fewest
        survivors that the plan names in its policy, as this one has.
        """
        return max(self.threshold, self.site.policy.least_survivors) >= len(self.cohort)

    def check_transcript(self, transcript: bytes) -> None:
        """Refuse a message about another round.

        Raises:
            SecaggError: TRANSCRIPT.
        """
        require(
            transcript == self.transcript,
            Check.TRANSCRIPT,
            f"a message about round {transcript.hex()[:16]}, under way is {self.transcript.hex()[:16]}",
        )

    def check_survivors(self, survivors: tuple[int, ...]) -> None:
        """Refuse a set of survivors that must not be opened.

        Raises:
            SecaggError: SURVIVORS: without us, not in the cohort, or too few; COHORT.
        """
        require(
            self.site.member in survivors,
            Check.SURVIVORS,
            "a set of survivors without this site, which uploaded",
        )
        self.check_opened(survivors)
        near, least = len(set(self.holders) & set(survivors)), self.near.shares
        words = f"{near} survivors among this site and those with whom it shares masks, at least {least} must be"
        require(near >= least, Check.SURVIVORS, words)
        require(
            self.settled in (b"", set_digest(survivors)),
            Check.COHORT,
            "a part of the cohort, while this site helped to open this sum for all of them before",
        )

    def check_votes(self, survivors: tuple[int, ...], votes: Pairs) -> None:
        """Refuse to open a set for which not enough have voted.

        Raises:
            SecaggError: VOTES or SIGNATURE.
        """
        words = f"{len(votes)} consistency signatures for a set of survivors; {self.near.votes} are needed"
        require(len(votes) >= self.near.votes, Check.VOTES, words)
        strangers = {voter for voter, _ in votes} - set(survivors).intersection(self.near.committee)
        words = f"consistency signatures of the members {sorted(strangers)}, who are no survivors of the committee"
        require(not strangers, Check.VOTES, words)
        for voter, signature in votes:
            fields = consistency_fields(self.transcript, survivors, voter)
            self.site.roster.verify(voter, signature, "vote", *fields)

    def vote(self, survivors: tuple[int, ...]) -> bytes:
        """Return our vote for a set of survivors.

        Raises:
            SecaggError: OUT_OF_ORDER: we have none.
        """
        site, trusting = self.site, self.mode is Mode.SEMI_HONEST
        require(not trusting, Check.OUT_OF_ORDER, "a semi-honest session has no consistency check")
        require(
            site.member in self.near.committee, Check.OUT_OF_ORDER, "a request for a vote of a site that has none"
        )
        fields = consistency_fields(self.transcript, survivors, site.member)
        signature = sign(site.signing_key, "vote", *fields)
        return ConsistencyCheck(self.transcript, site.member, survivors, signature).encode()

    def check_opened(self, survivors: tuple[int, ...]) -> None:
        """Refuse a set of survivors that no sum of this round can be open for, with this site in it or not.

        Raises:
            SecaggError: SURVIVORS: not in the cohort, or too few.
        """
        protocol = least_survivors(self.mode, len(self.cohort), self.colluders)
        least = max(protocol, self.threshold, self.site.policy.least_survivors)
        require(
            set(survivors) <= set(self.cohort),
            Check.SURVIVORS,
            "a survivor that is not in the cohort of the round",
        )
        require(
            len(survivors) >= least,
            Check.SURVIVORS,
            f"{len(survivors)} survivors of {len(self.cohort)}, at least {least} must hide each other",
        )


@dataclass(frozen=True, slots=True)
class Contributing:
    """The round's seeds are derived; the update is being made.

    `check` is that of the round, None where sums are not checked; it outlives this phase with what is awaited.
    """

    context: RoundContext
    start: RoundStart
    code: BodyCode
    seeds: Mapping[int, Secret] = field(repr=False)
    sending: Mapping[int, Secret] = field(repr=False)
    receiving: Mapping[int, Secret] = field(repr=False)
    check: SumCheck | None = field(repr=False)

    def upload(
        self,
        update: Update,
        draws: bytes,
        history: History,
        randomness: Randomness,
        encoded: NDArray[np.uint32] | None = None,
        frames: list[bytes] | None = None,
    ) -> tuple[Uploaded, bytes, bytearray]:
        """Return the next phase, the upload and its masked vector.

        Args:
            update: what this site contributes.
            draws: 32 bytes, equal for two updates that are one and the same computation, whatever they hold.
            history: what left this site before, and what may have become of it.
            randomness: source of b, of shares and of rounding.
            encoded: as `masked_vector`.
            frames: as `masked_vector`.

        Raises:
            SecaggError: REUSED_UPDATE: two sums over different sets would tell this update from the others.
            TrainingError: the update must not be sent.
            LocalProtocolError: it does not have the shape of the sum.
        """
        context, site = self.context, self.context.site
        computed = fingerprint(self.start.purpose, self.start.subject.state_digest, draws)
        self._check_unused(computed, history)
        own_seed, rounding_key = Secret(randomness(SECRET_BYTES)), Secret(randomness(32))
        shape = site.shapes[self.start.purpose]
        tagging = None if self.check is None else Tagging(self.check, site.member)
        vector, vector_hash = masked_vector(
            update, shape, self.code, self._signed(own_seed), rounding_key, site.threads, tagging, encoded, frames
        )
        rounding_key.erase()
        points = split(own_seed.reveal(), context.holders, context.shares_needed, randomness)
        shares = dict(zip(context.holders, points, strict=True))
        transcript = context.transcript
        envelopes = tuple(
            (peer, seal(key, transcript, site.member, peer, shares[peer])) for peer, key in self.sending.items()
        )
        tags = tuple((peer, confirmation_tag(seed, transcript)) for peer, seed in self.seeds.items())
        promise = commitment(own_seed, transcript, site.member)
        promised = tuple(
            (holder, found)
            for (_, holder), found in share_digests(
                transcript, (((site.member, holder), share) for holder, share in shares.items())
            )
        )
        fields = (transcript, site.member, vector_hash, promise, tags, envelopes, promised)
        signature = sign(site.signing_key, "upload", *Upload(*fields, b"").signed_fields())
        seeds = {peer: seed.reveal() for peer, seed in self.seeds.items()}
        wrapped = wrap_pair_masks(own_seed, transcript, site.member, seeds)
        masks = {peer: Secret(mask) for peer, mask in wrapped.items()}
        uploaded = Uploaded(context, dict(self.receiving), Secret(shares[site.member]), computed, masks)
        own_seed.erase()
        self._erase_sent()
        return uploaded, Upload(*fields, signature).encode(), vector

    def erase(self) -> None:
        """Forget the round without contributing."""
        self._erase_sent()
        for key in self.receiving.values():
            key.erase()

    def _check_unused(self, computed: bytes, history: History) -> None:
        # Every member sees who is refused here, so nothing counts but what was computed and where it was sent: a
        # site without records is refused as one with records.
        # Where t of the others suffice to open a sum, a site that uploaded and was asked nothing further cannot
        # know that its sum stayed closed; only a trusted aggregator, or a policy that accepts it, may have it
        # again. Where all answers are needed, the site does know; and where only the whole cohort can be
        # open, the same cohort gives the same sum.
        context, earlier = self.context, history.exposure(computed)
        trusting = context.mode is Mode.SEMI_HONEST or self.start.purpose in context.site.policy.repeatable
        require(
            earlier is None
            or (trusting and not earlier.answered)
            or (context.opens_whole and earlier.allows(context.cohort))
            or history.may_reopen(context.computed, context.cohort, context.site.policy.max_reopened_sums),
            Check.REUSED_UPDATE,
            "an update from this model and these very draws was part of an earlier attempt, whose masks others "
            "may have opened",
            "draw fresh batches, or abstain",
        )

    def _erase_sent(self) -> None:
        for key in (*self.seeds.values(), *self.sending.values()):
            key.erase()

    def _signed(self, own_seed: Secret) -> list[SignedSeed]:
        member = self.context.site.member
        return [SignedSeed(own_seed, False), *(SignedSeed(s, peer < member) for peer, s in self.seeds.items())]


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Our masked vector is out. What is left: keys of envelopes to us, and our share of our own mask.

    `masks` are those with all others, each under our own; None where they are forgotten.
    """

    context: RoundContext
    receiving: Mapping[int, Secret] = field(repr=False)
    own_share: Secret
    fingerprint: bytes
    masks: Mapping[int, Secret] | None = field(repr=False)

    def wrap(self, raw: bytes) -> tuple[MasksWrapped, bytes]:
        """Hand over the masks with those who are no survivors, under our own; return the next phase and them.

        Raises:
            SecaggError: ENCODING, TRANSCRIPT, SURVIVORS or COHORT; SESSION: the masks are forgotten.
        """
        message, context, masks = PairMasksRequest.decode(raw), self.context, self.masks
        context.check_transcript(message.transcript)
        context.check_survivors(message.survivors)
        whole = message.survivors == context.cohort
        require(not whole, Check.SURVIVORS, "a request for an empty list of masks")
        dropped = [member for member in context.near.peers if member not in message.survivors]
        if masks is None:
            words = "this site no longer has the masks that it uses with others in this round"
            raise SecaggError(Check.SESSION, words, "the sum continues without this site")
        handed_over = tuple((gone, masks[gone].reveal()) for gone in dropped)
        answer = PairMasks(context.transcript, context.site.member, message.survivors, handed_over).encode()
        return MasksWrapped(self, message.survivors), answer

    def vote(self, raw: bytes) -> tuple[ConsistencyChecked, bytes]:
        """Vote, once, for the whole cohort, where a sparse graph asks for it; return the next phase and the vote.

        Raises:
            SecaggError: ENCODING, TRANSCRIPT, SURVIVORS, COHORT or OUT_OF_ORDER.
        """
        message, context = Survivors.decode(raw), self.context
        context.check_transcript(message.transcript)
        whole = context.near.votes_on_all and message.survivors == context.cohort
        words = "a set of survivors for which this site has not handed over masks"
        require(whole, Check.OUT_OF_ORDER, words)
        context.check_survivors(message.survivors)
        vote = context.vote(message.survivors)
        self.erase_masks()
        return ConsistencyChecked(self, message.survivors), vote

    def answer(self, raw: bytes) -> tuple[SharesRevealed, bytes]:
        """Answer, once, where no member dropped out.

        Raises:
            SecaggError: ENCODING, TRANSCRIPT, SURVIVORS, VOTES, ENVELOPE or SHARE.
        """
        message, context = UnmaskRequest.decode(raw), self.context
        context.check_transcript(message.transcript)
        context.check_survivors(message.survivors)
        require(
            message.survivors == context.cohort,
            Check.VOTES,
            "a request to open a part of the cohort for which this site has not voted",
        )
        if context.near.votes_on_all:
            context.check_votes(message.survivors, message.votes)
        else:
            require(not message.votes, Check.VOTES, "consistency signatures where none are due")
        return self._opened(message)

    def _opened(self, message: UnmaskRequest) -> tuple[SharesRevealed, bytes]:
        context, site = self.context, self.context.site
        survivors = message.survivors
        envelopes = dict(message.envelopes)
        expected = set(survivors).intersection(context.near.peers)
        require(envelopes.keys() == expected, Check.ENVELOPE, "not exactly one envelope from every survivor")
        shares = tuple(
            (
                member,
                self.own_share.reveal() if member == site.member else self._open_from(member, envelopes[member]),
            )
            for member in sorted({*expected, site.member})
        )
        answer = UnmaskShares(context.transcript, site.member, survivors, shares).encode()
        self.erase()
        return SharesRevealed(context, survivors, self.fingerprint), answer

    def _open_from(self, sender: int, envelope: bytes) -> bytes:
        context = self.context
        name, member = context.site.roster.name(sender), context.site.member
        return open_envelope(self.receiving[sender], context.transcript, sender, member, envelope, name)

    def erase(self) -> None:
        """Forget what is left; nothing of the round can be opened with our help any more."""
        self.own_share.erase()
        for key in self.receiving.values():
            key.erase()
        self.erase_masks()

    def erase_masks(self) -> None:
        """Forget our masks with others: we have helped to decide who counts as present."""
        for mask in (self.masks or {}).values():
            mask.erase()


@dataclass(frozen=True, slots=True)
class MasksWrapped:
    """Our masks with all but these survivors are out, under our own; they, or some of them, may be opened."""

    uploaded: Uploaded
    survivors: tuple[int, ...]

    @property
    def context(self) -> RoundContext:
        """Return what is public about the round."""
        return self.uploaded.context

    def wrap(self, raw: bytes) -> tuple[MasksWrapped, bytes]:
        """Hand over the masks with more members, because some of the survivors have vanished since.

        Raises:
            SecaggError: ONE_VOTE: another set than a part of the one before; the rest as `Uploaded.wrap`.
        """
        following, answer = self.uploaded.wrap(raw)
        require(
            set(following.survivors) < set(self.survivors),
            Check.ONE_VOTE,
            "a set of survivors that is no part of the one for which this site has handed over masks",
        )
        return following, answer

    def vote(self, raw: bytes) -> tuple[ConsistencyChecked, bytes]:
        """Vote, once, for the set of survivors; return the next phase and the vote.

        Raises:
            SecaggError: ENCODING, TRANSCRIPT, ONE_VOTE or OUT_OF_ORDER.
        """
        message, context = Survivors.decode(raw), self.context
        context.check_transcript(message.transcript)
        self._check_same(message.survivors)
        vote = context.vote(message.survivors)
        self.uploaded.erase_masks()
        return ConsistencyChecked(self.uploaded, message.survivors), vote

    def answer(self, raw: bytes) -> tuple[SharesRevealed, bytes]:
        """Answer, once, where the aggregator is trusted to say who has dropped out, or a committee has voted.

        Raises:
            SecaggError: ENCODING, TRANSCRIPT, ONE_VOTE, VOTES, SIGNATURE, ENVELOPE or SHARE.
        """
        message, context = UnmaskRequest.decode(raw), self.context
        context.check_transcript(message.transcript)
        self._check_same(message.survivors)
        if context.near.votes_on_all:
            context.check_votes(message.survivors, message.votes)
            return self.uploaded._opened(message)  # noqa: SLF001  # one answer, three ways to earn it
        require(
            context.mode is Mode.SEMI_HONEST,
            Check.VOTES,
            "a request to open a part of the cohort for which this site has not voted",
        )
        require(not message.votes, Check.VOTES, "consistency signatures where none are due")
        return self.uploaded._opened(message)  # noqa: SLF001  # one answer, three ways to earn it

    def _check_same(self, survivors: tuple[int, ...]) -> None:
        require(
            survivors == self.survivors,
            Check.ONE_VOTE,
            "another set of survivors than the one for which this site has handed over masks",
        )

    def erase(self) -> None:
        """Forget what is left."""
        self.uploaded.erase()


@dataclass(frozen=True, slots=True)
class ConsistencyChecked:
    """Our one vote is given; only this set can be answered."""

    uploaded: Uploaded
    survivors: tuple[int, ...]

    @property
    def context(self) -> RoundContext:
        """Return what is public about the round."""
        return self.uploaded.context

    def answer(self, raw: bytes) -> tuple[SharesRevealed, bytes]:
        """Answer, once, for the set we voted for, if enough others did.

        Raises:
            SecaggError: ENCODING, TRANSCRIPT, ONE_VOTE, VOTES, ENVELOPE or SHARE.
        """
        message, context = UnmaskRequest.decode(raw), self.context
        context.check_transcript(message.transcript)
        require(
            message.survivors == self.survivors,
            Check.ONE_VOTE,
            "a request to open another set than the one this site voted for",
        )
        context.check_votes(self.survivors, message.votes)
        return self.uploaded._opened(message)  # noqa: SLF001  # one answer, three ways to earn it

    def erase(self) -> None:
        """Forget what is left."""
        self.uploaded.erase()


@dataclass(frozen=True, slots=True)
class SharesRevealed:
    """The round is over for us; nothing secret is left."""

    context: RoundContext
    survivors: tuple[int, ...]
    fingerprint: bytes

    def erase(self) -> None:
        """Do nothing: there is nothing to forget."""


RoundPhase = Contributing | Uploaded | MasksWrapped | ConsistencyChecked | SharesRevealed


def commitment(seed: Secret, transcript: bytes, member: int) -> bytes:
    """Return the promise (32 bytes) of a member's own seed, which the aggregator checks after recovery."""
    return digest("commitment", transcript, u16(member), seed.reveal())


def erased(phase: RoundPhase) -> bool:
    """Return whether a phase holds no secret any more."""
    match phase:
        case Contributing():
            keys = (*phase.seeds.values(), *phase.sending.values(), *phase.receiving.values())
        case Uploaded():
            keys = (phase.own_share, *phase.receiving.values(), *(phase.masks or {}).values())
        case MasksWrapped() | ConsistencyChecked():
            return erased(phase.uploaded)
        case SharesRevealed():
            return True
        case _:
            raise LocalProtocolError(f"{type(phase).__name__} is no phase of a round")
    return all(key.erased for key in keys)
