"""The beginning of a run in place of the plan's seed: weights from a file, and the run that it continues from.

The section `training.initial`. `fedfair plan freeze --from` and `fedfair plan extend` write it to
`plan.initial.yaml` beside the plan, so that no machine edits what people wrote. Every digest in it is part of the
plan's own: whoever approves the plan approves exactly these weights.
"""

from __future__ import annotations

from pydantic import Field

from fedfair.plan.fields import Digest, Items, NonNegativeFloat, PositiveInt, Section

MAX_EXTENSIONS = 1000
"""How often one run may be extended."""


class ContinuedSection(Section):
    """The finished run that a run continues from."""

    plans: Items[Digest] = Field(min_length=1, max_length=MAX_EXTENSIONS)
    """digests of the plans whose run continues, the oldest first; the last one is that of the state"""

    rounds: PositiveInt = Field(le=10**9)
    """training rounds that are done, at least 1"""

    state: Digest
    """digest of the state that the run continues from"""

    lost_rounds: int = Field(default=0, ge=0, le=10**9)
    """attempts at rounds that were given up; noise counts them"""


class InitialSection(Section):
    """The beginning of a run, in place of the plan's seed."""

    weights: Digest
    """digest of the initial weights, which are in plan.initial.safetensors"""

    threshold: NonNegativeFloat | None = None
    """threshold before round 1, in units of the loss; null goes by threshold_init"""

    scaling: Digest | None = None
    """digest of the feature scaling that the weights were trained with, kept instead of a new sum; null for
    none"""

    frozen: Digest | None = None
    """digest of the frozen parameters, in plan.frozen.safetensors or a site's own copy; null for the seed's"""

    same_sites: bool = False
    """whether the sites of this plan, and no others, have evaluated these weights already; only then are they
    evaluated before round 1"""

    continues: ContinuedSection | None = None
    """the finished run that continues; null for a new run"""
