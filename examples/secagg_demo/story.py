"""Plays the whole demonstration and says what was found; every number here was computed in this very run.

Two values come back: `Facts`, which become sentences, JSON and tables, and `Vectors`, which become pictures.
Order: keys, one round with all sites, one clinic that vanishes before its upload, one that vanishes after it,
four lies.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.secagg.fixedpoint import GRID_BITS, BodyCode, BodyEncoder
from fedfair.secagg.masking import Update
from fedfair.secagg.messages import Kind
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.secagg.params import drop_outs_survived, guarantee_in_words
from fedfair.secagg.setup_messages import KeyAdvertisement
from fedfair.secagg.shamir import SHARE_BYTES
from fedfair.secagg.shape import HeaderRun, SumShape
from secagg_demo.consortium import AGGREGATOR, Consortium, Delivery
from secagg_demo.digits import DIMENSION, LocalChange, Records, load_records, local_change
from secagg_demo.lies import (
    Liar,
    Refusal,
    ask_for_both_shares,
    claim_another_count,
    claim_another_sum,
    send_two_models,
    show_two_sets,
)

NAMES = ("clinic-1", "clinic-2", "clinic-3", "clinic-4", "clinic-5")
SHARES = (0.10, 0.15, 0.20, 0.25, 0.30)
COLLUDERS = 1
CLIP = 1.0
MAX_WEIGHT = 1000
MAX_LOSS_SUM = 1e5
SHAPE = SumShape((HeaderRun(1, MAX_LOSS_SUM, whole=False),), (DIMENSION,))
SHOWN_BYTES = 8
SHOWN_NUMBER = 203
"""Which of the 650 numbers is shown as bytes: a weight in the middle of a picture, where no clinic has zeros."""

VICTIM, ACCOMPLICE, LOST = 3, 2, 4
BYTE_VALUES = 256
NOISE_MEAN = BYTE_VALUES - 1
NOISE_SPREAD = math.sqrt(2.0 * NOISE_MEAN)
"""Mean and standard deviation of chi-squared over uniform bytes: degrees of freedom, root of twice that."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What one clinic sent in one step: how many bytes, and eight of those that matter, in hex."""

    clinic: str
    message: str
    bytes: int
    some_bytes: str


@dataclass(frozen=True, slots=True)
class Noise:
    """How often each byte value occurs, and how far that is from noise.

    Attributes:
        counts: 256 counts, by byte value.
        chi_squared: sum of (count - expected)^2 / expected; noise gives NOISE_MEAN +- NOISE_SPREAD.
    """

    counts: tuple[int, ...]
    chi_squared: float


@dataclass(frozen=True, slots=True)
class Sum:
    """One sum as the aggregator opened it, held against the plain sum that nobody in the protocol ever saw.

    Attributes:
        round: number of the round.
        contributors: whose updates are in it.
        images: sum of the weights, recovered and plain.
        mean_loss: recovered and plain.
        greatest_error: largest difference of the 650 coordinates of the weighted mean from the plain one.
        proven_bound: what the error cannot exceed, by the arithmetic alone.
        greatest_change: largest coordinate of the plain weighted mean, to compare with.
        answers_used: how many clinics' shares opened it.
    """

    round: int
    contributors: tuple[str, ...]
    images: tuple[int, int]
    mean_loss: tuple[float, float]
    greatest_error: float
    proven_bound: float
    greatest_change: float
    answers_used: int


@dataclass(frozen=True, slots=True)
class Lie:
    """One lie and what every clinic that heard it said.

    `kind` is both shares, two sets, two models or another sum.
    """

    kind: str
    title: str
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the demonstration found, ready for JSON."""

    clinics: tuple[str, ...]
    images: tuple[int, ...]
    parameters: int
    colluders: int
    threshold: int
    drop_outs_survived: int
    guarantee: str
    keys: tuple[Sent, ...]
    uploads: tuple[Sent, ...]
    answers: tuple[Sent, ...]
    plain_bytes: int
    protected_bytes: int
    before_masking: str
    without_masks: Noise
    masked: Noise
    fresh_noise: Noise
    everybody: Sum
    lost_before_upload: Sum
    lost_after_upload: Sum
    lost_clinic: str
    accomplice: str
    lies: tuple[Lie, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Vectors:
    """What the pictures show: float64 (650,) each.

    Attributes:
        encoded: one clinic's encoded update, before any mask.
        masked: the same vector as it left the clinic.
        recovered: the mean change that the aggregator recovered.
    """

    encoded: NDArray[np.float64]
    masked: NDArray[np.float64]
    recovered: NDArray[np.float64]


def play() -> tuple[Facts, Vectors]:
    """Play everything once."""
    begun = time.perf_counter()
    records, consortium = load_records(SHARES), Consortium(NAMES, COLLUDERS, SHAPE, MAX_WEIGHT)
    consortium.set_up()
    rounds = _Rounds(consortium, records)
    everybody, opened = rounds.honest()
    uploads = [delivery for delivery in consortium.deliveries if delivery.kind is Kind.UPLOAD]
    keys, sent, answers = (
        _sent(consortium, kind) for kind in (Kind.KEY_ADVERTISEMENT, Kind.UPLOAD, Kind.UNMASK_SHARES)
    )
    of_a_round = (Kind.UPLOAD, Kind.UNMASK_SHARES)
    protected = sum(d.size for d in consortium.deliveries if d.sender == NAMES[0] and d.kind in of_a_round)
    encoded = _encoded(rounds.changes[VICTIM])
    masked = np.frombuffer(uploads[VICTIM - 1].vector[SHAPE.header_bytes() :], np.uint32)
    before, _ = rounds.honest(((LOST, Kind.ROUND_START),))
    after, _ = rounds.honest(((LOST, Kind.UNMASK_REQUEST),))
    lies = _lies(consortium, rounds)
    terms = consortium.terms
    facts = Facts(
        clinics=NAMES,
        images=tuple(part.labels.size for part in records),
        parameters=DIMENSION,
        colluders=COLLUDERS,
        threshold=terms.threshold,
        drop_outs_survived=drop_outs_survived(terms.mode, len(NAMES), COLLUDERS),
        guarantee=guarantee_in_words(terms.mode, len(NAMES), COLLUDERS),
        keys=keys,
        uploads=sent,
        answers=answers,
        plain_bytes=DIMENSION * 4 + 8 * 2,
        protected_bytes=protected,
        before_masking=_hex(encoded[SHOWN_NUMBER:].tobytes()),
        without_masks=noise_of(encoded.tobytes()),
        masked=noise_of(masked.tobytes()),
        fresh_noise=noise_of(secrets.token_bytes(masked.nbytes)),
        everybody=everybody,
        lost_before_upload=before,
        lost_after_upload=after,
        lost_clinic=NAMES[LOST - 1],
        accomplice=NAMES[ACCOMPLICE - 1],
        lies=lies,
        seconds=time.perf_counter() - begun,
    )
    before_masks, as_sent = (words.view(np.int32).astype(np.float64) for words in (encoded, masked))
    return facts, Vectors(before_masks, as_sent, opened.body / opened.weight)


def noise_of(octets: bytes) -> Noise:
    """Return how often each byte value occurs in `octets`, and the distance from noise."""
    counts = np.bincount(np.frombuffer(octets, np.uint8), minlength=BYTE_VALUES)
    expected = len(octets) / BYTE_VALUES
    return Noise(tuple(int(count) for count in counts), float(((counts - expected) ** 2).sum() / expected))


class _Rounds:
    """The model over the rounds; every round draws other images, so no update is sent twice."""

    def __init__(self, consortium: Consortium, records: Sequence[Records]) -> None:
        self.consortium = consortium
        self.model = np.zeros(DIMENSION, np.float32)
        self.number = 0
        self.changes: dict[int, LocalChange] = {}
        self._records = dict(zip(consortium.members, records, strict=True))

    def updates(self, models: dict[int, NDArray[np.float32]] | None = None) -> dict[int, Update]:
        """Let every clinic train on a fresh batch, from the common model or from the one it was shown."""
        self.number += 1
        shown = models or dict.fromkeys(self._records, self.model)
        self.changes = {
            member: local_change(records.batch(self.number), shown[member])
            for member, records in self._records.items()
        }
        return {
            member: Update(np.array([found.loss_sum]), found.change, found.images)
            for member, found in self.changes.items()
        }

    def honest(self, unreachable: Sequence[tuple[int, Kind]] = ()) -> tuple[Sum, OpenedSum]:
        """Play a round, move the model, and hold the sum against the plain one."""
        updates, before = self.updates(), len(self.consortium.deliveries)
        opened = self.consortium.play_round(digest_of(self.model), updates, CLIP, unreachable)
        answers = sum(delivery.kind is Kind.UNMASK_SHARES for delivery in self.consortium.deliveries[before:])
        self.model = self.model + (opened.body / opened.weight).astype(np.float32)
        return self._compared(opened, min(answers, self.consortium.terms.threshold)), opened

    def _compared(self, opened: OpenedSum, answers: int) -> Sum:
        summed = [self.changes[member] for member in opened.survivors]
        images = sum(found.images for found in summed)
        plain = sum((found.images * found.change.astype(np.float64) for found in summed), np.zeros(DIMENSION))
        return Sum(
            self.consortium.server.round,
            tuple(self.consortium.roster.name(member) for member in opened.survivors),
            (opened.weight, images),
            (float(opened.header[0]) / opened.weight, sum(found.loss_sum for found in summed) / images),
            float(np.abs(opened.body / opened.weight - plain / images).max()),
            opened.errors[0] / opened.weight,
            float(np.abs(plain / images).max()),
            answers,
        )


def digest_of(model: NDArray[np.float32]) -> bytes:
    """Return the SHA-256 of a model."""
    return hashlib.sha256(model.tobytes()).digest()


def _encoded(found: LocalChange) -> NDArray[np.uint32]:
    """Return a clinic's body as ring elements before any mask: what `off` would amount to."""
    code = BodyCode(32, len(NAMES), MAX_WEIGHT, SHAPE.groups, (CLIP,))
    uniform = np.frombuffer(secrets.token_bytes(GRID_BITS // 8 * DIMENSION), np.uint16)
    words = np.empty(DIMENSION, np.uint32)
    BodyEncoder(code, found.images).encode(found.change, 0, uniform, words)
    return words


def _sent(consortium: Consortium, kind: Kind) -> tuple[Sent, ...]:
    return tuple(
        Sent(delivery.sender, kind.name.lower(), delivery.size, _hex(_what_matters(delivery)))
        for delivery in consortium.deliveries
        if delivery.kind is kind and delivery.receiver == AGGREGATOR
    )


def _what_matters(delivery: Delivery) -> bytes:
    """Return the public key of an advert, the masked numbers of an upload, the last share of an answer."""
    match delivery.kind:
        case Kind.KEY_ADVERTISEMENT:
            return KeyAdvertisement.decode(delivery.message).public_key
        case Kind.UPLOAD:
            return delivery.vector[SHAPE.header_bytes() + 4 * SHOWN_NUMBER :]
        case _:
            return delivery.message[-SHARE_BYTES:]


def _hex(octets: bytes) -> str:
    return octets[:SHOWN_BYTES].hex(" ")


def _lies(consortium: Consortium, rounds: _Rounds) -> tuple[Lie, ...]:
    rounds.honest()
    number, model = consortium.server.round, rounds.model
    claims = Liar(consortium, number)
    claims_refused = [*claim_another_sum(claims, SHOWN_NUMBER), *claim_another_count(claims)]
    digest = digest_of(model)
    everyone = dict.fromkeys(consortium.members, digest)

    both = Liar(consortium, number + 1)
    both.collect(everyone, rounds.updates(), CLIP)
    both_refused = ask_for_both_shares(both, VICTIM)

    sets = Liar(consortium, number + 2)
    sets.collect(everyone, rounds.updates(), CLIP)
    sets_refused = show_two_sets(sets, ACCOMPLICE, len(NAMES), LOST)

    other = model + np.float32(0.125)
    shown = {member: other if member == VICTIM else model for member in consortium.members}
    models = Liar(consortium, number + 3)
    models_refused = send_two_models(models, VICTIM, digest, digest_of(other), rounds.updates(shown), CLIP)
    return (
        Lie("both shares", f"It asks for both shares of {NAMES[VICTIM - 1]}", tuple(both_refused)),
        Lie("two sets", "It shows two different sets of survivors", tuple(sets_refused)),
        Lie("two models", f"It sends another model to {NAMES[VICTIM - 1]}", tuple(models_refused)),
        Lie("another sum", "It claims a sum that the clinics did not make", tuple(claims_refused)),
    )
