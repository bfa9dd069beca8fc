"""Says from which group size on a result's model serves every group better than guessing.

The sizes between the reported ones follow from `served_size.py`. The model is one of a family: where the family's
own critical size is known, by the linear program or from `fedfair plan advise`, the sentence speaks of all its
models. Everything follows from the published figures, so it tells nothing that they do not. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fedfair.fairness.served_size import ServedSizes, served_sizes
from fedfair.results.risks import SplitRisk

_WHOLE = 1e-6
"""In percent: a share so near to a whole number is meant to be that number."""


@dataclass(frozen=True, slots=True)
class ServedGroups:
    """The group sizes at which a model beats guessing.

    Attributes:
        sizes: as far as the figures tell.
        certain: whether every figure has an interval; they are estimates otherwise.
    """

    sizes: ServedSizes
    certain: bool


def served_groups(risk: SplitRisk, guess: float) -> ServedGroups:
    """Return what the risks over one split say.

    Args:
        risk: the figures; group sizes that are too few people are left out.
        guess: the loss of the uniform guess, above 0.
    """
    told = {float(size): group for size, group in risk.by_group_size.items() if group.worst is not None}
    certain = all(group.bound is not None for group in told.values())
    intervals = {
        size: group.bound or group.likely or (group.worst, group.worst)
        for size, group in told.items()
        if group.worst is not None
    }
    # An estimate from sums under noise may fall below 0, where no mean of losses is.
    return ServedGroups(served_sizes(intervals, max(risk.mean, 0.0), guess), certain)


def served_sentence(
    served: ServedGroups, *, group_size: float | None = None, family_lowest: float | None = None
) -> str:
    """Return in one sentence from which size on the worst group fares better than by guessing.

    Args:
        served: from `served_groups`.
        group_size: a size that the sentence names where the model certainly does not serve it; None for the
            largest such size.
        family_lowest: the size below which no model of this kind serves the worst group better than guessing, over
            the same records; None where it is not known.
    """
    sizes = served.sizes
    surely = "certainly" if served.certain else "by the estimates"
    family = family_lowest is not None and _below(family_lowest) > 0
    if family and family_lowest is not None:
        first = _by_none(family_lowest)
    elif group_size is not None and group_size <= sizes.not_served_to:
        first = f"This model serves the worst {_share(group_size)} no better than guessing"
    elif _below(sizes.not_served_to) > 0:
        first = f"This model serves the worst {_below(sizes.not_served_to)} % no better than guessing"
    else:
        first = ""
    if sizes.served_from is None:
        last = f"this model serves no group, not even all people together, {surely} better than guessing"
        return f"{first}; {last}." if family else f"{last[:1].upper()}{last[1:]}."
    if _above(sizes.served_from) == 0:
        return f"This model serves the worst group of every size {surely} better than guessing."
    subject = "this one" if family else "it"
    if not first:
        reached = f"From {_above(sizes.served_from)} % on"
        return f"{reached}, this model serves the worst group {surely} better than guessing."
    return f"{first}; from {_above(sizes.served_from)} % on {subject} {surely} does."


def family_sentence(lowest: float) -> Iterator[str]:
    """Yield up to which size no model of this kind serves the worst group; nothing below one percent."""
    if _below(lowest) > 0:
        yield f"{_by_none(lowest)}."


def _by_none(lowest: float) -> str:
    share = _below(lowest)
    return f"No model of this kind serves the worst {share} % better than guessing (the critical group size)"


def _share(size: float) -> str:
    return f"{100.0 * size:.4g} %"


def _below(share: float) -> int:
    """Return a share in whole percent, rounded down."""
    return math.floor(100.0 * share + _WHOLE)


def _above(share: float) -> int:
    """Return a share in whole percent, rounded up."""
    return math.ceil(100.0 * share - _WHOLE)
