"""Which parameters of a model travel, and which are trained and stay: `training.parameters`. Others are frozen.

Neither one that stays nor a frozen one is in a sum, a hash of a round, a journal or a snapshot. The plan's digest
covers the values that both begin with, which every site has itself: made by the plan's seed, or from a file that
`training.initial` names by its digest.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator
from typing import Annotated, Literal

from pydantic import Field

from fedfair.plan.fields import Fault, Items, PositiveFloat, Section

FROZEN_SUFFIX = ".frozen.safetensors"
"""Of the file of frozen parameters beside a plan."""

Pattern = Annotated[str, Field(min_length=1, max_length=200)]


class LoraSection(Section):
    """Adapters beside frozen linear layers: W x + (alpha / rank) B A x (Hu et al. 2022, equation 3)."""

    layers: Items[Pattern] = Field(min_length=1)
    """linear layers: names, or patterns such as encoder.*.query"""

    rank: int = Field(default=8, ge=1, le=1024)
    """rows of A and columns of B (r), 1 to 1024"""

    alpha: PositiveFloat = 16.0
    """scale of the adapter, times rank; above 0"""


class ParametersSection(Section):
    """The parameters that are trained; others are frozen."""

    train: Items[Pattern] | None = None
    """those that travel: names or patterns, such as head.*; null for adapters alone, or all but keep"""

    keep: Items[Pattern] | None = None
    """those that stay at each site, each with its own; null for none"""

    lora: LoraSection | None = None
    """adapters, which travel; null for none"""

    frozen_bits: Literal[8] | None = None
    """8 holds the weights of frozen linear layers as whole numbers; null as they are"""

    @property
    def all_travel(self) -> bool:
        """Return whether all that does not stay travels."""
        return self.train is None and self.lora is None

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        if self.all_travel and self.keep is None:
            yield Fault(
                ("train",),
                "is not stated, nor is keep or lora, so nothing tells what is trained",
                "name what is trained",
            )
        if self.train is not None and not self.train and self.lora is None:
            yield Fault(("train",), "is empty, and nothing would be summed", "name what is trained")
        if self.frozen_bits is not None and self.all_travel:
            yield Fault(("frozen_bits",), f"is {self.frozen_bits}, and nothing is frozen", "remove it")
        if self.keep is not None and not self.keep:
            yield Fault(("keep",), "is empty", "name what stays, or remove keep")


def matching(names: Collection[str], patterns: Collection[str]) -> frozenset[str]:
    """Return the names that a pattern matches; * stands for any text."""
    return frozenset(name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))
