"""Sets the first clip of masked training sums, and adapts it to the sizes of the changes.

One rule for a deployment and for a simulation of it. The rule holds no state: the present clip is part of the
run's state (`run.state`), and moves only with an accepted total. How values are clipped and sizes are counted is
`secagg.fixedpoint`'s. No torch: the aggregator imports this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.derived import clip_ceiling, has_fixed_clip, is_masked, is_unevaluated
from fedfair.plan.known_groups import tells_groups
from fedfair.plan.schema import Plan
from fedfair.secagg.fixedpoint import automatic_clip

FIRST_AUTOMATIC_CLIP = 1.0
"""The clip of the first round of `clip: auto`, before anybody's changes are known."""


@dataclass(frozen=True, slots=True)
class ClipRule:
    """The clip of every training sum of a run.

    Attributes:
        first: that of the first sum, above 0.
        greatest: the largest that the rule may come to.
        follows: whether it follows the sizes of the changes; otherwise it stays as it is.
    """

    first: float
    greatest: float
    follows: bool

    def after(self, present: float, sizes: Sequence[int]) -> float:
        """Return the clip of the next sum.

        Args:
            present: that of the sum that was accepted.
            sizes: how many sites' largest change fell into each power of two; empty for a sum without a body.
        """
        return automatic_clip(sizes, present, self.greatest) if self.follows and sizes else present


def clip_rule(plan: Plan) -> ClipRule:
    """Return the rule of a plan whose training sums are masked."""
    greatest = clip_ceiling(plan)[1]
    if has_fixed_clip(plan):
        return ClipRule(greatest, greatest, follows=False)
    return ClipRule(min(FIRST_AUTOMATIC_CLIP, greatest), greatest, follows=True)


def clips_in_simulation(plan: Plan) -> bool:
    """Return whether a simulation of the plan clips changes, because a deployment would.

    No deployment does where sums are plain, where whole collaborators are protected (their changes are clipped
    before they are noised), and where it cannot run the algorithm, or cannot know its groups.
    """
    deployed = ALGORITHMS[plan.training.algorithm].deployed and tells_groups(plan)
    return is_masked(plan) and deployed and not is_unevaluated(plan)
