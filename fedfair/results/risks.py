"""The figures about people in a result: risks over splits, over groups of a size, and at moments of the run.

Losses are in the unit of the plan's loss, nats unless it says otherwise. What would tell of too few people is
None. Part of the model in `document.py`, whose header says what it means that a field is not set.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from fedfair.errors import DataError
from fedfair.results.frozen import FrozenPart
from fedfair.results.scores import SplitScores


def _is_share(text: str) -> str:
    if not 0.0 < float(text) <= 1.0:
        raise ValueError(f"a group size is above 0 and at most 1, not {text}")
    return text


Size = Annotated[str, AfterValidator(_is_share)]
"""A share of all people, as JSON spells the keys of an object."""


class ReportedGroupRisk(FrozenPart):
    """The risk of the worst group of one size; losses in nats. All None where the group is too few people.

    The bound alone is None where the sums carried noise for differential privacy, so that `worst` is an estimate,
    and `likely` is how far the noise alone may have moved it. The intervals of all sizes hold together.
    """

    worst: float | None
    """mean loss of the worst group of this size"""

    best: float | None
    """mean loss of the best group: all outside the worst group; null where none are left"""

    disparity: float | None
    """worst less best"""

    bound: tuple[float, float] | None
    """an interval that is proven to hold the worst group's mean loss; null where there is none"""

    at_least: float | None = None
    """a mean loss that a group of this size surely has"""

    likely: tuple[float, float] | None = None
    """an interval that holds it with 95 % under the noise; omitted without noise"""


class SplitRisk(FrozenPart):
    """Risks over the records of one split."""

    n: int
    """number of records"""

    mean: float
    """mean loss"""

    accuracy: float | None = None
    """share of records that were classified correctly, 0 to 1; omitted without classes"""

    by_group_size: Annotated[dict[Size, ReportedGroupRisk], Field(min_length=1)]
    """risks of the worst group, by its share of all people, above 0 to 1"""

    confusion: tuple[tuple[int, ...], ...] | None = None
    """number of records, a row for each class and a column for what it was taken for; null with very many
    classes"""

    scores: SplitScores | None = None
    """how well the predicted probabilities rank and fit; omitted unless the plan sums them"""

    metrics: dict[str, float | tuple[float | None, ...] | None] | None = None
    """what else is reported of a task without classes, by name: a number, or one for each label, interval or
    class; omitted where there is nothing"""

    hedged: float | None = None
    """mean loss of the model's probabilities mixed with those of the uniform guess, whose share is the plan's
    group size; far below the mean, it shows a model too sure; omitted where there is none"""

    above_range: float | None = None
    """share of records whose loss is evaluation.loss_range or more; omitted where they are fewer than
    evaluation.min_group"""

    mean_likely: tuple[float, float] | None = None
    """an interval that holds the mean with 95 % under the noise; omitted without noise"""

    accuracy_likely: tuple[float, float] | None = None
    """the same of the accuracy"""

    def worst(self, group_size: float) -> ReportedGroupRisk | None:
        """Return the risk at a group size, or None where the plan did not ask for it."""
        return next((risk for key, risk in self.by_group_size.items() if float(key) == group_size), None)

    def worst_risk(self, group_size: float) -> float:
        """Return the mean loss of the worst group of a size.

        Raises:
            DataError: the result does not tell of groups of this size.
        """
        risk = self.worst(group_size)
        if risk is None or risk.worst is None:
            raise DataError(
                f"the result does not say how the worst {group_size:.0%} of {self.n} people fare",
                "name the size in evaluation.group_sizes, and see evaluation.min_group",
            )
        return risk.worst


class PastRisk(FrozenPart):
    """Risks over the records of one split at one moment of the run."""

    mean: float
    """mean loss"""

    worst: float | None
    """mean loss of the worst group of the plan's size"""

    accuracy: float | None = None
    """share that was classified correctly, 0 to 1"""

    by_group_size: dict[Size, ReportedGroupRisk] = Field(default={})
    """as at the end"""

    metrics: dict[str, float | tuple[float | None, ...] | None] | None = None
    """as at the end; omitted where there is nothing"""

    mean_likely: tuple[float, float] | None = None
    """as at the end"""


class Moment(FrozenPart):
    """One evaluation on the way."""

    round: int
    """training rounds done"""

    threshold: float
    """the threshold then"""

    train: PastRisk
    """over training records"""

    validation: PastRisk | None = None
    """over validation records"""

    test: PastRisk | None = None
    """over test records"""


class ObjectiveFigures(FrozenPart):
    """The value of the plan's objective, over training records."""

    rcvar: float | None = None
    """the objective, or the middle of its interval"""

    rcvar_bound: tuple[float, float] | None = None
    """an interval that is proven to hold it; omitted for a simulation, which is exact"""

    rcvar_likely: tuple[float, float] | None = None
    """an interval that holds it with 95 % under the noise; omitted without noise"""

    smoothed: float | None = None
    """mean of the smoothed losses that were trained on"""

    split: str = "train"
    """the split that these are of"""


class MeanRisk(FrozenPart):
    """The figures of one collaborator's records of one split; None where they are not reported."""

    n: int | None
    """number of records"""

    mean: float | None
    """mean loss"""

    accuracy: float | None = None
    """share that was classified correctly, 0 to 1; omitted without classes"""


class CollaboratorRisk(MeanRisk):
    """The same of one collaborator's training records, and of its other splits under their names."""

    validation: MeanRisk | None = None
    """of its validation records"""

    test: MeanRisk | None = None
    """of its test records"""
