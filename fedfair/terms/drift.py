"""The addend of a correction to every gradient of a round."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Drift(NamedTuple):
    """The addend of control variates to every gradient of a round.

    Attributes:
        model: tensor (d,) beside the model, in its width.
        threshold: scalar tensor.
    """

    model: Tensor
    threshold: Tensor
