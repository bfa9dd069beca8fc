"""Shrinks the weights of the model in every round, before its step is made.

    w <- w (1 - decay * factor of the schedule)

of every tensor that has two dimensions or more. A bias has one, as has the scale of a normalisation: they decide
where answers lie and not how sure they are, and stay. What is frozen and running statistics stay as well. That
is decoupled weight decay; what it does to the step of Adam, and why a penalty in the loss is something else, is
Loshchilov and Hutter's (2019, "Decoupled weight decay regularization", Algorithm 2). It needs no contribution of a
site, so that noise in a sum protects it too. No torch: the aggregator imports this.
"""

from __future__ import annotations

import numpy as np

from fedfair.plan.learning_rates import rate_factor, weight_decay_of
from fedfair.terms.term import Moved, OpenedRound, TermRule, TermSetting


class WeightDecay(TermRule[None]):
    """The decay of every run of one plan.

    Args:
        setting: the plan, and the layout of its model.
    """

    def __init__(self, setting: TermSetting) -> None:
        self._plan, self._share = setting.plan, weight_decay_of(setting.plan)
        self._places = [
            place for entry, place in setting.layout.slices() if entry.trainable and len(entry.shape) > 1
        ]

    def apply(self, held: None, opened: OpenedRound, model: Moved) -> tuple[None, Moved]:
        """Return the model with smaller weights; see `TermRule.apply`."""
        del held
        kept = 1.0 - self._share * rate_factor(self._plan, opened.number)
        vector = model.vector.copy()
        for place in self._places:
            np.multiply(vector[place], kept, out=vector[place])
        return None, Moved(vector, model.threshold)


rule = WeightDecay
