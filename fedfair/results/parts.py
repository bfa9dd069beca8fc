"""Writes a result's parts beside its risks: the plan, the protection, the time, the bytes, the privacy.

Part of the model in `document.py`, whose header says what it means that a field is not set.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from fedfair.results.frozen import FrozenPart
from fedfair.run.which_model import ModelKind

KEPT = ConfigDict(frozen=True, strict=True, extra="allow")
"""Other promises than today's are shown as they stand."""


class PlanFields(FrozenPart):
    """The agreement: the objective, and the whole plan as headings and sentences."""

    federation: str = Field(description="its name")
    collaborators: int = Field(description="how many")
    worst_group_size: float = Field(description="objective.worst_group_size of the plan")
    tradeoff: float = Field(description="objective.tradeoff of the plan")
    loss: str | None = Field(
        default=None, description="the loss and its unit in words; omitted for cross-entropy in nats"
    )
    summary: tuple[tuple[str, str], ...] = Field(description="the whole plan as headings and sentences")


class ReturnedModel(FrozenPart):
    """The model that a result is about, of all that its run had."""

    kind: ModelKind = Field(description="how it was chosen: training.output, or initial; last also on the way")
    round: int = Field(description="training rounds that it has behind it; 0 is the untrained model")
    rounds: int = Field(description="training rounds of the plan")
    digest: str = Field(description="of its values: sha256: and 64 hex digits")
    words: str = Field(description="the same in words")


class EvaluationFields(FrozenPart):
    """How the last risks were found."""

    method: str = Field(default="", description="histogram, exact, or none where nothing was evaluated")
    given_up: str | None = Field(default=None, description="why an exact evaluation was given up")
    replaced_losses: int = Field(default=0, description="losses that were replaced because they had no finite sum")


class SampleLevelFields(FrozenPart):
    """The protection of single records."""

    model_config = KEPT

    epsilon: float | None = Field(default=None, description="null where each site's own ledger states it")
    delta: float | None = Field(default=None, description="at which epsilon holds")
    noise_multiplier: float | None = Field(default=None, description="deviation of the noise by sensitivity")
    clip: float | None = Field(default=None, description="privacy.sample_level.clip of the plan")
    clipping: str | None = Field(default=None, description="privacy.sample_level.clipping of the plan")
    sensitivity: float | None = Field(default=None, description="most that one record changes the sum of a step")
    noise_deviation: float | None = Field(default=None, description="standard deviation of a step's noise")
    accountant: str | None = Field(default=None, description="what computed epsilon")
    generator: str | None = Field(default=None, description="what the noise was drawn from")
    statement: str | None = Field(default=None, description="the promise in words")
    worst_collaborator: str | None = Field(default=None, description="for whom a simulation states it")


class CollaboratorLevelFields(FrozenPart):
    """The protection of whole collaborators."""

    model_config = KEPT

    epsilon: float | None = Field(default=None, description="null where nothing is promised")
    delta: float | None = Field(default=None, description="at which epsilon holds")
    noise_multiplier: float | None = Field(default=None, description="deviation of the noise by sensitivity")
    clip: float | None = Field(default=None, description="largest norm of one collaborator's change")
    h_min: int | None = Field(default=None, description="fewest honest shares of noise in any sum")
    mu: int | None = Field(default=None, description="variance of the noise in a sum, in squared steps")
    rounds: int | None = Field(default=None, description="sums that were released")
    sensitivity: float | None = Field(default=None, description="most that one collaborator changes a sum")
    noise_deviation: float | None = Field(default=None, description="standard deviation of a sum's noise")
    generator: str | None = Field(default=None, description="what the noise was drawn from")
    statement: str | None = Field(default=None, description="the promise in words")


class PrivacyFields(FrozenPart):
    """The promised differential privacy; a level is None where there is none."""

    model_config = KEPT

    sample_level: SampleLevelFields | None = Field(default=None, description="of single records")
    collaborator_level: CollaboratorLevelFields | None = Field(default=None, description="of whole collaborators")

    def promises(self) -> dict[str, JsonValue]:
        """Return the levels that something is said of, as the result has it."""
        told: dict[str, JsonValue] = self.model_dump(exclude_unset=True)
        return {level: value for level, value in told.items() if value is not None}


class ReportedProtection(FrozenPart):
    """How the sums were protected, and what is promised of those of a deployment."""

    mode: str = Field(description="secure_aggregation.mode of the plan")
    colluders: int | None = Field(default=None, description="secure_aggregation.colluders of the plan")
    masked: bool = Field(description="whether the sums of this run were masked; never in a simulation")
    guarantee: str = Field(description="what a deployment of this plan promises")


class RoundSeconds(FrozenPart):
    """How long training rounds took, in seconds; `curve` has pairs of a round and seconds."""

    count: int = Field(description="training rounds")
    median: float = Field(description="half took at most this, in seconds")
    p90: float = Field(description="nine in ten took at most this, in seconds")
    longest: float = Field(description="in seconds")
    curve: tuple[tuple[int, float], ...] = Field(description="pairs of a round and seconds, at most 100")


class Timing(FrozenPart):
    """How long the run took."""

    seconds: float = Field(description="of the whole run")
    rounds_per_second: float | None = Field(default=None, description="null where it took no time")
    rounds: RoundSeconds | None = Field(default=None, description="of training rounds; null without any")


class RoundBytes(FrozenPart):
    """Bytes of one collaborator for each training round, with its share of all the other sums."""

    bytes_up: float = Field(description="that it sent")
    bytes_down: float = Field(description="that it received")


class Traffic(FrozenPart):
    """Bytes that travelled, or would."""

    basis: Literal["measured", "computed"] = Field(description="measured, or computed from the plan")
    bytes_up: int = Field(description="from all collaborators to the aggregator")
    bytes_down: int = Field(description="from the aggregator to all collaborators")
    per_round: RoundBytes = Field(description="of one collaborator for each training round")


class Departure(FrozenPart):
    """A collaborator that left a run in words, after how many rounds, and what it said."""

    collaborator: str = Field(description="its name")
    round: int = Field(description="training rounds done")
    reason: str = Field(description="in its words")


class LateSite(FrozenPart):
    """A collaborator that sums went on without, though it was connected."""

    collaborator: str = Field(description="its name")
    times: int = Field(description="how many steps of sums went on without it")
    longest_seconds: float = Field(description="the longest that it is known to have taken for one")
