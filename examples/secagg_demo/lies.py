"""An aggregator that lies, in front of clinics that do not notice who they talk to.

It knows every message that went through its hands, may have a clinic on its side, and sends what it likes. Each
function plays one lie and returns what the clinics said: the name of the check that fired and its words. A lie
that is believed is a fault of this program and raised as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedfair.errors import LocalProtocolError
from fedfair.secagg.checks import SecaggError
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Pairs
from fedfair.secagg.params import threshold
from fedfair.secagg.round_messages import (
    ConsistencyCheck,
    OpenedMessage,
    PairMasksRequest,
    RoundStart,
    Survivors,
    UnmaskRequest,
    Upload,
    consistency_fields,
)
from fedfair.secagg.round_start import round_transcript
from fedfair.secagg.signing import sign
from secagg_demo.consortium import PURPOSE, Consortium


@dataclass(frozen=True, slots=True)
class Refusal:
    """What one clinic said to one lie: who, to what, the name of the check, its words."""

    clinic: str
    asked: str
    check: str
    words: str


@dataclass(slots=True)
class Liar:
    """The aggregator of one round, in full control of what it sends.

    Attributes:
        consortium: its victims; the honest server of it is not asked any more.
        round: the number of the round that it starts.
    """

    consortium: Consortium
    round: int
    starts: dict[int, RoundStart] = field(default_factory=dict)
    uploads: dict[int, Upload] = field(default_factory=dict)

    def start(self, member: int, model_digest: bytes, clip: float) -> bytes:
        """Return the start of the round as `member` is to see it."""
        members, terms = self.consortium.members, self.consortium.terms
        needed = threshold(terms.mode, len(members), terms.colluders)
        self.starts[member] = RoundStart(
            self.consortium.session_id,
            self.round,
            PURPOSE,
            members,
            needed,
            self.consortium.subject(model_digest),
            (clip,),
        )
        return self.starts[member].encode()

    def collect(self, models: Mapping[int, bytes], updates: Mapping[int, Update], clip: float) -> None:
        """Start the round with the model that each clinic is to see, and take the uploads."""
        self.consortium.expect(models, updates)
        for member, model_digest in models.items():
            (send,) = self.consortium.hand_over(member, self.start(member, model_digest, clip))
            self.uploads[member] = Upload.decode(send.message)

    def transcript(self, member: int) -> bytes:
        """Return what stands for the round as `member` saw it."""
        return round_transcript(self.starts[member], self.consortium.shape.digest())

    def survivors(self, member: int, claimed: Iterable[int]) -> bytes:
        """Return the claim to `member` that exactly `claimed` uploaded."""
        return Survivors(self.transcript(member), tuple(sorted(claimed))).encode()

    def vote(self, member: int, claimed: Iterable[int]) -> bytes:
        """Return the signature of the vote that `member` gives for `claimed`, after its masks with the others."""
        request = PairMasksRequest(self.transcript(member), tuple(sorted(claimed))).encode()
        self.consortium.hand_over(member, request)
        (send,) = self.consortium.hand_over(member, self.survivors(member, claimed))
        return ConsistencyCheck.decode(send.message).signature

    def forged_vote(self, member: int, claimed: Iterable[int]) -> bytes:
        """Return a vote that a clinic on the aggregator's side signs without asking its program."""
        fields = consistency_fields(self.transcript(member), tuple(sorted(claimed)), member)
        return sign(self.consortium.signing_keys[member], "vote", *fields)

    def request(self, member: int, claimed: Iterable[int], votes: Mapping[int, bytes] | None = None) -> bytes:
        """Return the request to `member` to open the masks of `claimed`, with the envelopes that it needs."""
        chosen = tuple(sorted(claimed))
        envelopes: Pairs = tuple(
            (sender, dict(self.uploads[sender].envelopes)[member]) for sender in chosen if sender != member
        )
        return UnmaskRequest(
            self.transcript(member), chosen, tuple(sorted((votes or {}).items())), envelopes
        ).encode()

    def refusal(self, member: int, asked: str, message: bytes, vector: bytes = b"") -> Refusal:
        """Send a lie to a clinic and return how it was refused."""
        clinic = self.consortium.roster.name(member)
        try:
            self.consortium.hand_over(member, message, vector)
        except SecaggError as refused:
            return Refusal(clinic, asked, refused.check.value, refused.message)
        raise LocalProtocolError(f"{clinic} believed a lie ({asked}); this must never happen")


def ask_for_both_shares(liar: Liar, victim: int) -> list[Refusal]:
    """First open the own masks of all sites; then claim that `victim` was gone, to get its pair masks as well."""
    members = liar.consortium.members
    for member in members:
        liar.consortium.hand_over(member, liar.request(member, members))
    others = [member for member in members if member != victim]
    gone = f"{liar.consortium.roster.name(victim)} were gone"
    refused = [liar.refusal(member, f"vote as if {gone}", liar.survivors(member, others)) for member in others]
    return [
        *refused,
        liar.refusal(others[0], f"open masks as if {gone}", liar.request(others[0], others)),
    ]


def show_two_sets(liar: Liar, accomplice: int, first_gone: int, second_gone: int) -> list[Refusal]:
    """Tell one half that `first_gone` vanished, the other that `second_gone` did; `accomplice` signs for both."""
    members = liar.consortium.members
    one = tuple(member for member in members if member != first_gone)
    two = tuple(member for member in members if member != second_gone)
    honest = [member for member in members if member != accomplice]
    halves = {member: two if member == first_gone else one for member in honest}
    # The two named ones must each be shown the set that they are in; the rest is split as evenly as it goes.
    rest = [member for member in honest if member not in (first_gone, second_gone)]
    halves |= dict.fromkeys(rest[len(rest) // 2 :], two)
    votes = {one: {accomplice: liar.forged_vote(accomplice, one)}}
    votes[two] = {accomplice: liar.forged_vote(accomplice, two)}
    for member, shown in halves.items():
        votes[shown][member] = liar.vote(member, shown)
    refused = [
        liar.refusal(member, "open the set it was shown", liar.request(member, shown, votes[shown]))
        for member, shown in halves.items()
    ]
    turncoat = rest[0]
    other = two if halves[turncoat] == one else one
    return [
        *refused,
        liar.refusal(turncoat, "vote for the other set as well", liar.survivors(turncoat, other)),
    ]


def send_two_models(
    liar: Liar, victim: int, model_digest: bytes, other_digest: bytes, updates: Mapping[int, Update], clip: float
) -> list[Refusal]:
    """Send another model to `victim`: first under the announced digest, then with a digest that fits."""
    members = liar.consortium.members
    held = {member: other_digest if member == victim else model_digest for member in members}
    liar.consortium.expect(held, updates)
    first = liar.refusal(victim, "train on model B, announced as A", liar.start(victim, model_digest, clip))
    liar.collect(held, updates, clip)
    asked = "open the sum over both models"
    witnesses = [next(member for member in members if member != victim), victim]
    return [first, *(liar.refusal(member, asked, liar.request(member, members)) for member in witnesses)]


def claim_another_sum(liar: Liar, number: int) -> list[Refusal]:
    """After an honest round, claim a sum that differs by one unit of the ring in the number of that place."""
    message, vector = liar.consortium.announced()
    body = np.frombuffer(vector, np.uint32).copy()
    body[number] += 1
    asked = "take a sum that is wrong by one unit in one number"
    return [liar.refusal(member, asked, message, body.tobytes()) for member in liar.consortium.members]


def claim_another_count(liar: Liar) -> list[Refusal]:
    """After the same round, claim one image more than there were."""
    message, vector = liar.consortium.announced()
    opened = OpenedMessage.decode(message)
    header = np.frombuffer(opened.header, np.uint64).copy()
    header[0] += 1
    false = replace(opened, header=header.tobytes()).encode()
    asked = "take the true sum with one image more"
    return [liar.refusal(member, asked, false, vector) for member in liar.consortium.members]
