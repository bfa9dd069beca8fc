"""The closed set of messages between a service and its computing process, and what of them is a site's own.

The service asks, one question at a time, and the worker answers; before it draws noise, it says what it is about
to release, and waits until that is written down. No message has a key, an approval, an entry of a ledger or
another study in it. A record leaves the worker only as the losses of single records, which the service shows to
its own operator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from collaborator.computing.codec import Array, Count, Digest, Real, Words
from fedfair.aggregation.model_layout import LayoutEntry
from fedfair.aggregation.quantile_query import QueryStep
from fedfair.privacy.releases import GaussianRelease, SharedNoiseRelease, SkellamRelease
from fedfair.tables.profile import DataProfile

Path = Annotated[str, Field(min_length=1, max_length=4096)]

# ------------------------------------------------------------------------------------ what the service says


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin: what to compute with.

    Attributes:
        plan: the file of the plan, in its workspace.
        participant: whose records they are.
        config: `collaborator.yaml` as JSON, without keys, ledger and paths of what the worker has no part in.
        code_digest: of the plan's code, as the service has approved it; empty where it names none.
        code: the folder of a copy of it, which is the worker's own.
        scratch: the folder that the worker writes to.
    """

    plan: Path
    participant: str
    config: str
    code_digest: Digest
    code: Path
    scratch: Path


@dataclass(frozen=True, slots=True)
class Load:
    """Read the records."""


@dataclass(frozen=True, slots=True)
class Assemble:
    """Put records and model together."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Scale the features; attributes as of `FeatureScaling`."""

    mean: Array
    scale: Array


@dataclass(frozen=True, slots=True)
class Judge:
    """Judge by references; attributes as of `References`."""

    present: Array
    best: Array
    sums: Count
    best_at: Count
    best_loss: Real
    temperature: int


@dataclass(frozen=True, slots=True)
class Model:
    """A global model; attributes as of `GlobalModel`."""

    vector: Array
    threshold: Real


@dataclass(frozen=True, slots=True)
class Memory:
    """What a site remembers of earlier rounds (`terms.at_sites.Remembered`).

    Attributes:
        kind: the name of its class.
        whole: its whole numbers, by field.
        reals: its real numbers, by field.
        arrays: its arrays, by field.
    """

    kind: str
    whole: dict[str, int] = field(default_factory=dict)
    reals: dict[str, Real] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskContribution:
    """Return what this site adds to a sum; attributes as of `SumRequest`, and 32 bytes that seed its draws."""

    purpose: str
    round: Count
    attempt: Count
    query: QueryStep | None
    loss_unit: Real
    part: Count
    model: Model
    memory: Memory
    seed: Digest


@dataclass(frozen=True, slots=True)
class AskChange:
    """Return this site's change of a round for a masked sum."""

    number: Count
    attempt: Count
    model: Model
    memory: Memory
    seed: Digest


@dataclass(frozen=True, slots=True)
class AskNumbers:
    """Return this site's whole numbers for a sum that protects it."""

    number: Count
    attempt: Count
    model: Model
    seed: Digest


@dataclass(frozen=True, slots=True)
class AskLosses:
    """Return the losses of single records, which stay at the site."""

    model: Model
    kept: Array | None


@dataclass(frozen=True, slots=True)
class ReleaseWritten:
    """The release is written down; draw."""


@dataclass(frozen=True, slots=True)
class ReleaseDenied:
    """The release must not happen."""

    words: Words


# ------------------------------------------------------------------------------------ what the worker says


@dataclass(frozen=True, slots=True)
class Bound:
    """The plan's model as its seed makes it.

    Attributes:
        entries: of the layout.
        frozen: digest of its frozen tensors.
        vector: array (d,), as the plan's seed makes it.
        unprotected: a sentence for each protection of the worker that this system does not allow.
    """

    entries: tuple[LayoutEntry, ...]
    frozen: Digest
    vector: Array
    unprotected: tuple[Words, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a survey; attributes as of `SiteColumn`."""

    name: str
    ordered: Array
    common: tuple[tuple[Real, int], ...]
    distinct: Count
    present: Count
    missing: Count


@dataclass(frozen=True, slots=True)
class Survey:
    """A site's part of a survey; attributes as of `SiteSurvey`."""

    header: Array
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the service may know of the records.

    Attributes:
        splits: number of records by split.
        digest: of the training records in their order.
        profile: of all, which stays at the site.
        withheld: in words, which records do not take part.
        survey: this site's part; None where the plan has none.
        owners: by split, keyed hash of whose each record is; none where nothing says so.
    """

    splits: dict[str, Count]
    digest: Annotated[str, Field(max_length=80)]
    profile: DataProfile
    withheld: tuple[Words, ...]
    survey: Survey | None
    owners: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assembled:
    """Records and model fit together.

    Attributes:
        weight: what this site's change weighs.
        own: array (k,), the part of the model that stays here before round 1; None where all travels.
    """

    weight: Count
    own: Array | None


@dataclass(frozen=True, slots=True)
class Settled:
    """It is done, and there is nothing to say of it."""


@dataclass(frozen=True, slots=True)
class Contributed:
    """A contribution; attributes as of `Contribution`, what was wrong with it, and what stays here."""

    header: Array
    body: Array
    replaced: Count
    fault: Words
    kept: Array | None


@dataclass(frozen=True, slots=True)
class ChangeMade:
    """A change; attributes as of `LocalChange`, what was wrong with it, and what stays here."""

    weight: Count
    threshold: Real
    model: Array
    replaced: Count
    further: dict[str, Array]
    fault: Words
    kept: Array | None


@dataclass(frozen=True, slots=True)
class NoChange:
    """There are no training records, and so no change."""

    fault: Words


@dataclass(frozen=True, slots=True)
class NumbersMade:
    """Whole numbers with noise: int64 array."""

    numbers: Array
    fault: Words


@dataclass(frozen=True, slots=True)
class SplitLosses:
    """The losses of one split; attributes as of `Losses`."""

    values: Array
    labels: Array
    predictions: Array
    scores: Array
    figures: Array
    excess: Array
    answered: Array
    has_classes: bool


@dataclass(frozen=True, slots=True)
class LossesFound:
    """The losses by split."""

    splits: dict[str, SplitLosses]


@dataclass(frozen=True, slots=True)
class ReleasingRecords:
    """This is about to be released of single records."""

    release: GaussianRelease


@dataclass(frozen=True, slots=True)
class ReleasingShare:
    """The same, under noise to which every site adds a share."""

    release: SharedNoiseRelease


@dataclass(frozen=True, slots=True)
class ReleasingSite:
    """This is about to be released of the site as a whole."""

    release: SkellamRelease


@dataclass(frozen=True, slots=True)
class Failed:
    """It cannot be done.

    Attributes:
        kind: the class of the fault, by its name; one that is not known counts as a fault of training.
        words: what is wrong.
        remedy: what to do about it.
    """

    kind: Annotated[str, Field(max_length=64)]
    words: Words
    remedy: Words


def _named(*kinds: type[Any]) -> dict[str, type[Any]]:
    return {kind.__name__: kind for kind in kinds}


ASKED = _named(
    Begin, Load, Assemble, Scale, Judge, AskContribution, AskChange, AskNumbers, AskLosses, ReleaseWritten,
    ReleaseDenied,
)  # fmt: skip
"""Everything that a service says."""

Releasing = ReleasingRecords | ReleasingShare | ReleasingSite


ANSWERED = _named(
    Bound, Loaded, Assembled, Settled, Contributed, ChangeMade, NoChange, NumbersMade, LossesFound,
    ReleasingRecords, ReleasingShare, ReleasingSite, Failed,
)  # fmt: skip
"""Everything that a worker says."""
