"""A fairness certificate as a file: the JSON contract `fedfair/certificate/2`, and its one spelling.

Decides which facts a certificate states, in which form, and that a file has no byte outside them: it is refused
unless it is spelt exactly as `to_text` spells it, so a field cannot stand twice and nothing can follow it. Whether
the facts follow from the histogram is `check.py`'s business, who signed them `seal.py`'s. Not to be confused with
the certificates of connections, which are `fedfair.identity`'s.
"""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedfair.aggregation.evaluation_file import Count, Digest, Finite, Split
from fedfair.errors import CertificateError
from fedfair.fairness.population_bounds import MAX_DELTA, MIN_DELTA, MIN_GROUP_SIZE, LossHistogram, Method
from fedfair.file_formats import REMEDY, other_version
from fedfair.plan.sections import MAX_SITE_WEIGHT

FORMAT: Final = "fedfair/certificate/2"
MAX_BYTES = 1 << 20
"""4097 bins and 1000 statements take about 400 kB."""

MAX_STATEMENTS = 1000

Name = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]
Words = Annotated[str, Field(pattern=r"^[ -~]{1,1000}$")]
Share = Annotated[float, Field(ge=MIN_GROUP_SIZE, le=1.0)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Weight = Annotated[float, Field(gt=0.0, le=MAX_SITE_WEIGHT)]

_REMEDY = "ask its issuer for the file as `fedfair certificate` made it"


class _Part(BaseModel):
    """Everything that a certificate is made of is fixed, complete, and of exactly the type it says."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Issuer(_Part):
    """The issuer of the certificate.

    Attributes:
        name: the participant, usually `aggregator`.
        key: its public signing key, "ed25519:" and base64.
    """

    name: Name
    key: Words


class Training(_Part):
    """The aim of the training.

    Attributes:
        algorithm: its name in the plan.
        worst_group_size: the smallest group that training protected (rho).
        tradeoff: the weight of the mean (epsilon).
        measure: excess, where training followed the excess over references and not the loss, of which every
            statement speaks all the same; omitted where it followed the loss.
        references: the digest of the earlier run's references that it took; omitted where it trained its own.
    """

    algorithm: Words
    worst_group_size: Share
    tradeoff: Annotated[float, Field(ge=0.0, le=1.0)]
    measure: Literal["excess"] | None = None
    references: Digest | None = None


class Population(_Part):
    """The strength of the claims about people who were not evaluated.

    Attributes:
        method: one of `fedfair.fairness.population_bounds.METHODS`.
        delta: the chance that a population bound of this certificate is wrong.
        mixture: how the population mixes the sites' people: "evaluated records" in the proportions of these, one
            record a person; "site weights" by `weights`.
        weights: by site, as the plan declares them, of any sum; null for the proportions of the evaluated records.
    """

    method: Method
    delta: Annotated[float, Field(ge=MIN_DELTA, le=MAX_DELTA)]
    mixture: Literal["evaluated records", "site weights"]
    weights: dict[Name, Weight] | None


class Statement(_Part):
    """A claim about every group of at least one size.

    Attributes:
        group_size: the least share of all records that such a group has (rho).
        sample: an interval that holds the mean loss of the worst such group of the evaluated records.
        population: at most this is the mean of min(loss, loss_range) over any such group of the population; null
            where nothing is claimed.
    """

    group_size: Share
    sample: tuple[Finite, Finite]
    population: Finite | None


class Histogram(_Part):
    """The losses that everything follows from; see `fedfair.fairness.population_bounds.LossHistogram`.

    Attributes:
        bins: equal bins of the plan.
        fewest: no bin holds fewer losses than this, unless it is empty or there are fewer in all.
        starts: the planned bin that each bin begins with.
        counts: losses in each bin.
        sums: their sums.
        cores: for each bin, one of its planned bins: fewer than `fewest` of its losses lie below that one, and
            fewer than `fewest` above it.
    """

    bins: Annotated[int, Field(ge=1, le=4096)]
    fewest: Annotated[int, Field(ge=1)]
    starts: tuple[Count, ...]
    counts: tuple[Count, ...]
    sums: tuple[Finite, ...]
    cores: tuple[Count, ...]


class Outcomes(_Part):
    """How many evaluated records there are of each class; each number is 0 or at least the histogram's `fewest`.

    Attributes:
        counts: records of each class, (classes,).
        correct: how many were classified correctly.
    """

    counts: tuple[Count, ...]
    correct: Count


class CertifiedVerdict(_Part):
    """Whether the evaluated people are served worse than without a model; null where that is unknown.

    Attributes:
        state: worse if any of the others is true: then the model is not to be used as it is.
        above_uniform_guess: whether the worst group surely fares worse than by guessing.
        above_best_constant: whether it surely fares worse than by the best constant prediction for such groups.
        below_majority: whether the accuracy is below the share of the most frequent class.
    """

    state: Literal["worse", "fine"]
    above_uniform_guess: bool
    above_best_constant: bool | None
    below_majority: bool | None


class Certificate(_Part):
    """A fairness certificate; losses in the unit that `loss` states.

    Attributes:
        format: the name of this format.
        federation: whose model it is.
        issued_at: when, in ISO 8601; for people, not compared.
        issuer: who signed it; null for an unsigned one.
        plan_digest: of the plan that every site approved.
        model_digest: SHA-256 of the model's flat vector, as in `fedfair/evaluation/1`.
        round: training rounds that the model has behind it.
        training: what it was trained for.
        privacy: the differential-privacy statement, or "none".
        participants: how many sites contributed to the evaluation.
        masked: whether no process saw one site's contribution.
        split: which records were evaluated.
        n: how many.
        sites: how many of each site that has enough of them; null where the plan does not publish that.
        mean: their mean loss.
        classes: how many the model tells apart; null where records are not classified.
        uniform_floor: the loss of guessing, for all records alike: log(classes) under cross-entropy; null where
            guessing has no meaning.
        loss: which loss, in which unit.
        loss_range: L; the population statements are about min(loss, L).
        population: what the population bounds rest on; null where nothing is claimed.
        statements: by increasing group size.
        histogram: what proves them.
        outcomes: the numbers of records of each class; null where they tell of too few people. Older files have
            neither this nor a verdict.
        verdict: on the group size that the model was trained for, or the nearest one; null where guessing has no
            meaning, so that there is nothing to compare with.
        signature: base64, over everything else; null for an unsigned one.
    """

    format: Literal["fedfair/certificate/2"]
    federation: Name
    issued_at: Annotated[str, Field(pattern=r"^[0-9T:+.Z-]{1,64}$")]
    issuer: Issuer | None
    plan_digest: Digest
    model_digest: Digest
    round: Count
    training: Training
    privacy: Words
    participants: Annotated[int, Field(ge=1)]
    masked: bool
    split: Split
    n: Annotated[int, Field(ge=1)]
    sites: dict[Name, Annotated[int, Field(ge=1)]] | None
    mean: Finite
    classes: Annotated[int, Field(ge=2)] | None
    uniform_floor: Finite | None
    loss: Words
    loss_range: Positive
    population: Population | None
    statements: Annotated[tuple[Statement, ...], Field(min_length=1, max_length=MAX_STATEMENTS)]
    histogram: Histogram
    outcomes: Outcomes | None = None
    verdict: CertifiedVerdict | None = None
    signature: Words | None

    def loss_histogram(self) -> LossHistogram:
        """Return the losses that everything follows from.

        Raises:
            DataError: the numbers are no histogram.
        """
        held = self.histogram
        return LossHistogram(
            held.bins, self.loss_range, held.starts, held.counts, held.sums, held.cores, held.fewest
        )


def to_text(certificate: Certificate) -> str:
    """Return the file's text; every number is spelt so that it reads back as the same number.

    Fields that an older file lacks are not written, so that it keeps its bytes and its signature.
    """
    return json.dumps(certificate.model_dump(mode="json", exclude_unset=True), indent=1) + "\n"


def parse_certificate(raw: bytes, place: str) -> Certificate:
    """Return the certificate that a file holds; nothing it says has been checked yet.

    Args:
        raw: the file's content.
        place: the file's name, for the message.

    Raises:
        CertificateError: the content is not a certificate of this format, in its one spelling.
    """
    if len(raw) > MAX_BYTES:
        raise CertificateError(f"{place} has {len(raw)} bytes, more than a certificate can have")
    if fault := other_version(raw, FORMAT, place):
        raise CertificateError(fault, REMEDY)
    try:
        certificate = Certificate.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CertificateError(f"{place} is no fairness certificate: {where}: {first['msg']}", _REMEDY) from error
    if to_text(certificate).encode("ascii") != raw:
        raise CertificateError(f"{place} is not spelt as fedfair spells a certificate, so it was edited", _REMEDY)
    return certificate
