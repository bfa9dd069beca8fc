"""Sets the first clip of masked training sums, and adapts it to the sizes of the changes.

One rule for a deployment and for a simulation of it. The rule holds no state: the present clip is part of the
run's state (`run.state`), and moves only with an accepted total. How values are clipped and sizes are counted is
`secagg.fixedpoint`'s. No torch: the aggregator imports this.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from fedfair.plan.derived import clip_ceiling, has_fixed_clip
from fedfair.plan.schema import Plan
from fedfair.secagg.fixedpoint import automatic_clip
from fedfair.terms.slot import Slot, same
from fedfair.terms.term import Moved, OpenedRound, TermRule, TermSetting

FIRST_AUTOMATIC_CLIP = 1.0
"""The clip of the first round of `clip: auto`, before anybody's changes are known."""


@dataclass(frozen=True)
class ClipRule(TermRule[float]):
    """The clip of every training sum of a run.

    Attributes:
        begins_at: that of the first sum, above 0.
        greatest: the largest that the rule may reach.
        follows: whether it follows the sizes of the changes; otherwise it stays as it is.
    """

    begins_at: float
    greatest: float
    follows: bool

    @property
    def first(self) -> float:
        """Return the clip of the first sum."""
        return self.begins_at

    def apply(self, held: float | None, opened: OpenedRound, model: Moved) -> tuple[float | None, Moved]:
        """Return the clip of the next sum, and the model as it is; see `TermRule.apply`."""
        return self.after(self.first if held is None else held, opened.sizes), model

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


def rule(setting: TermSetting) -> ClipRule:
    """Return the rule of a plan whose training sums are masked."""
    return clip_rule(setting.plan)


SLOT = Slot(
    digested=lambda clip: struct.pack("<d", clip), fields=same, form=TypeAdapter(float), made=same, planned=True
)
