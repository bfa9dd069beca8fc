"""What could be had without a run's model: the base rate for everybody, and plain training at equal effort.

The base rate follows from the records of each class, which a result has in its confusion matrix. Plain training is
another run: a simulation may train it beside its own and keep its figures. Part of the model in `document.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedfair.fairness.constant_prediction import base_rate_risk, majority_share
from fedfair.results.frozen import FrozenPart
from fedfair.results.risks import SplitRisk


class PlainTraining(FrozenPart):
    """The figures of plain training at equal effort: other terms of the plan are the same."""

    algorithm: str
    """fedavg, or erm where the plan trains on pooled records"""

    plan_digest: str
    """of its plan: sha256: and 64 hex digits"""

    rounds: int
    """its training rounds"""

    split: Literal["train", "test"]
    """whose records its figures are of"""

    risk: SplitRisk
    """its risks over them"""


class BaselineFigures(FrozenPart):
    """What was trained beside the model of a result."""

    plain: PlainTraining
    """plain training at equal effort"""


@dataclass(frozen=True, slots=True)
class BaseRate:
    """The figures of a prediction that is the same for everybody: the share of each class.

    Attributes:
        mean: its mean loss, in nats.
        worst: that of its worst group.
        accuracy: of naming the most frequent class, 0 to 1.
    """

    mean: float
    worst: float
    accuracy: float


def base_rate(risk: SplitRisk, group_size: float) -> BaseRate | None:
    """Return what the base rate has over the records of a split; None where classes are not counted.

    Args:
        risk: of the split.
        group_size: of the worst group.
    """
    counts = [sum(row) for row in risk.confusion or ()]
    if not any(counts):
        return None
    return BaseRate(base_rate_risk(counts, 1.0), base_rate_risk(counts, group_size), majority_share(counts))
