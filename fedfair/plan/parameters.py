"""Which parameters of a model are trained and travel: `training.parameters`. What is neither is frozen.

A frozen parameter is in no sum, hash of a round, journal or snapshot. The plan's digest covers its values, which
every site has itself: made by the plan's seed, or from a file that `training.initial` names by its digest.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator
from typing import Annotated

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
    """The parameters that are trained and travel; others are frozen."""

    train: Items[Pattern] | None = None
    """names or patterns, such as head.*; null for adapters alone"""

    lora: LoraSection | None = None
    """adapters; null for none"""

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        if self.train is None and self.lora is None:
            yield Fault(
                ("train",), "is not stated, nor is lora, so nothing would be trained", "name what is trained"
            )
        if self.train is not None and not self.train and self.lora is None:
            yield Fault(("train",), "is empty, and nothing would be trained", "name what is trained")


def matching(names: Collection[str], patterns: Collection[str]) -> frozenset[str]:
    """Return the names that a pattern matches; * stands for any text."""
    return frozenset(name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))
