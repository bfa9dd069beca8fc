"""Writes a result's parts beside its risks: the plan, the protection, the time, the bytes, the privacy.

Part of the model in `document.py`, whose header says what it means that a field is not set.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, JsonValue

from fedfair.results.frozen import FrozenPart
from fedfair.run.which_model import ModelKind

KEPT = ConfigDict(frozen=True, strict=True, extra="allow")
"""Other promises than today's are shown as they stand."""


class PlanFields(FrozenPart):
    """The agreement: the objective, and the whole plan as headings and sentences."""

    federation: str
    """its name"""

    collaborators: int
    """how many"""

    worst_group_size: float
    """objective.worst_group_size of the plan"""

    tradeoff: float
    """objective.tradeoff of the plan"""

    loss: str | None = None
    """the loss and its unit in words; omitted for cross-entropy in nats"""

    summary: tuple[tuple[str, str], ...]
    """the whole plan as headings and sentences"""


class ReturnedModel(FrozenPart):
    """The model that a result is about, of all that its run had."""

    kind: ModelKind
    """how it was chosen: training.output, or initial; last also on the way"""

    round: int
    """training rounds that it has behind it; 0 is the untrained model"""

    rounds: int
    """training rounds of the plan"""

    digest: str
    """of its values: sha256: and 64 hex digits"""

    words: str
    """the same in words"""


class ReportedTenth(FrozenPart):
    """The people to whom references gave about the same chance: of class 1, or of the likeliest of more."""

    low: float
    """the chance from which on they are counted"""

    high: float
    """that below which they are"""

    records: int
    """how many they are, at least evaluation.min_group"""

    said: float
    """the mean of their chances"""

    found: float
    """of which share of them it came true"""

    error: float
    """the standard error of that share, were the mean chance the truth"""


class ReferenceFigures(FrozenPart):
    """The references that the excess was measured over."""

    sums: int
    """sums that trained them"""

    best_after: int
    """after how many of these they were best; 0 where they learnt nothing, and the untrained ones judged"""

    loss: float
    """their mean loss on training records that each had not seen"""

    digest: str | None = None
    """by which a later plan takes them (`objective.reference.run`); omitted while they are trained"""

    checked: dict[str, tuple[ReportedTenth, ...]] | None = None
    """by split, how often came true what they said of people: those to whom they gave about the same chance;
    omitted where records are not classified"""


class EvaluationFields(FrozenPart):
    """How the last risks were found."""

    method: str = ""
    """histogram, exact, or none where nothing was evaluated"""

    given_up: str | None = None
    """why an exact evaluation was given up"""

    replaced_losses: int = 0
    """losses that were replaced because they had no finite sum"""


class SampleLevelFields(FrozenPart):
    """The protection of single records."""

    model_config = KEPT

    epsilon: float | None = None
    """null where each site's own ledger states it"""

    delta: float | None = None
    """at which epsilon holds"""

    noise_multiplier: float | None = None
    """deviation of the noise by sensitivity"""

    clip: float | None = None
    """privacy.sample_level.clip of the plan"""

    clipping: str | None = None
    """privacy.sample_level.clipping of the plan"""

    sensitivity: float | None = None
    """most that one record changes the sum of a step"""

    noise_deviation: float | None = None
    """standard deviation of a step's noise"""

    accountant: str | None = None
    """what computed epsilon"""

    generator: str | None = None
    """what the noise was drawn from"""

    statement: str | None = None
    """the promise in words"""

    worst_collaborator: str | None = None
    """for whom a simulation states it"""


class CollaboratorLevelFields(FrozenPart):
    """The protection of whole collaborators."""

    model_config = KEPT

    epsilon: float | None = None
    """null where nothing is promised"""

    delta: float | None = None
    """at which epsilon holds"""

    noise_multiplier: float | None = None
    """deviation of the noise by sensitivity"""

    clip: float | None = None
    """largest norm of one collaborator's change"""

    h_min: int | None = None
    """fewest honest shares of noise in any sum"""

    mu: int | None = None
    """variance of the noise in a sum, in squared steps"""

    rounds: int | None = None
    """sums that were released"""

    sensitivity: float | None = None
    """most that one collaborator changes a sum"""

    noise_deviation: float | None = None
    """standard deviation of a sum's noise"""

    generator: str | None = None
    """what the noise was drawn from"""

    statement: str | None = None
    """the promise in words"""


class PrivacyFields(FrozenPart):
    """The promised differential privacy; a level is None where there is none."""

    model_config = KEPT

    sample_level: SampleLevelFields | None = None
    """of single records"""

    collaborator_level: CollaboratorLevelFields | None = None
    """of whole collaborators"""

    def promises(self) -> dict[str, JsonValue]:
        """Return the levels that something is said of, as the result has it."""
        told: dict[str, JsonValue] = self.model_dump(exclude_unset=True)
        return {level: value for level, value in told.items() if value is not None}


class ReportedProtection(FrozenPart):
    """How the sums were protected, and what is promised of those of a deployment."""

    mode: str
    """secure_aggregation.mode of the plan"""

    colluders: int | None = None
    """secure_aggregation.colluders of the plan"""

    masked: bool
    """whether the sums of this run were masked; never in a simulation"""

    guarantee: str
    """what a deployment of this plan promises"""


class RoundSeconds(FrozenPart):
    """How long training rounds took, in seconds; `curve` has pairs of a round and seconds."""

    count: int
    """training rounds"""

    median: float
    """half took at most this, in seconds"""

    p90: float
    """nine in ten took at most this, in seconds"""

    longest: float
    """in seconds"""

    curve: tuple[tuple[int, float], ...]
    """pairs of a round and seconds, at most 100"""


class Timing(FrozenPart):
    """How long the run took."""

    seconds: float
    """of the whole run"""

    rounds_per_second: float | None = None
    """null where it took no time"""

    rounds: RoundSeconds | None = None
    """of training rounds; null without any"""


class RoundBytes(FrozenPart):
    """Bytes of one collaborator for each training round, with its share of all the other sums."""

    bytes_up: float
    """that it sent"""

    bytes_down: float
    """that it received"""


class Traffic(FrozenPart):
    """Bytes that travelled, or would."""

    basis: Literal["measured", "computed"]
    """measured, or computed from the plan"""

    bytes_up: int
    """from all collaborators to the aggregator"""

    bytes_down: int
    """from the aggregator to all collaborators"""

    per_round: RoundBytes
    """of one collaborator for each training round"""


class Departure(FrozenPart):
    """A collaborator that left a run in words, after how many rounds, and what it said."""

    collaborator: str
    """its name"""

    round: int
    """training rounds done"""

    reason: str
    """in its words"""


class LateSite(FrozenPart):
    """A collaborator that sums continued without, though it was connected."""

    collaborator: str
    """its name"""

    times: int
    """how many steps of sums continued without it"""

    longest_seconds: float
    """the longest that it is known to have taken for one"""
