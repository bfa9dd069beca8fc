"""The things that a run takes over from an earlier one beside its weights.

A model that was trained on standardised columns means nothing under another scaling, so its scaling comes with it
and takes the place of a new sum. A continued run takes the whole state of the finished one: weights, threshold,
moments, control variates and the evaluations so far. The plan's digest covers both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling


@dataclass(frozen=True, slots=True)
class Carried:
    """All that a run takes over beside its weights.

    Attributes:
        scaling: of the features; None where the run has none, or makes its own.
        state: the packed state that the run continues from; None for a new run.
        references: of an earlier run; None where the run trains its own, or has none.
    """

    scaling: FeatureScaling | None = None
    state: bytes | None = field(default=None, repr=False)
    references: References | None = field(default=None, repr=False)


NOTHING = Carried()
"""A run that begins with weights alone."""
