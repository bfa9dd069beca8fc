"""Says which of a run's models one is, in one sentence for every output: files, results, pages, cards, terminals.

A run has several models: the one before round 1, that of each round, the mean of some, and the best of those that
were evaluated. Which of them it returns is the plan's choice (`training.output`). Decides the words alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

ModelKind: TypeAlias = Literal["initial", "last", "best", "average", "tail"]
"""The choice of it: the model before round 1, or as `training.output` has it; `last` also for one on the way."""

KINDS: tuple[ModelKind, ...] = get_args(ModelKind)

UNTRAINED = "the untrained model"


@dataclass(frozen=True, slots=True)
class WhichModel:
    """One model of a run.

    Attributes:
        kind: how it was chosen.
        round: training rounds that it has behind it.
        rounds: training rounds of the plan.
    """

    kind: ModelKind
    round: int
    rounds: int

    @property
    def words(self) -> str:
        """Return which model it is, as the end of a sentence."""
        counted = f"round {self.round} of {self.rounds}"
        if self.kind == "average":
            return f"the mean of all models, up to {counted}"
        if self.kind == "tail":
            return f"the mean of the models of the second half, up to {counted}"
        if self.round == 0:
            return f"{UNTRAINED}: no trained one was better" if self.kind == "best" else UNTRAINED
        if self.kind == "best":
            return f"the model of {counted}, the best that was evaluated"
        return f"the model of {counted}" + (", with which training ended" if self.round == self.rounds else "")
