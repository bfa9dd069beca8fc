"""One way to change a step: the interface that every room of this package fills.

A term is two things. Its row says when a plan has it, which numbers it adds to the header of a training sum, and
what to tell people of it. Its rule is what a run does for it: `first` is the state before round 1, and `apply`
takes an opened round to the next state of the term and to the model after the round. A rule that needs less
overrides less: all of `TermRule` keeps nothing and changes nothing.

The site's part is the module `site` of the room, which may import torch; see `at_sites`. No torch here: the
aggregator imports this. Source of the form: fedjax's `init` and `apply` (Ro et al. 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Field
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.training_sum import Divisor
from fedfair.ids import RoundNumber
from fedfair.plan.schema import Plan
from fedfair.store.long_vectors import IN_MEMORY, VectorRoom
from fedfair.terms.slot import Slot

_Held = TypeVar("_Held")


@dataclass(frozen=True, slots=True)
class Moved:
    """The model on its way through the terms of a round: first as it was broadcast, at last as it becomes.

    Attributes:
        vector: array (d,), never changed in place.
        threshold: in units of the loss, not projected.
    """

    vector: NDArray[np.floating] = field(repr=False)
    threshold: float


@dataclass(frozen=True, slots=True)
class OpenedRound:
    """The opened sum of a training round.

    Attributes:
        number: the round, from 1.
        before: the model that was broadcast.
        total: array (d,), the weighted sum of the changes of the model.
        sums: the header's numbers by name.
        divisor: what divides `total`, above 0; mostly the sum of the weights.
        loss_unit: how many units of the threshold one loss of the local steps has.
        members: whose contributions are in it.
        sizes: how many sites' largest change fell into each power of two; empty where nothing is clipped.
        used_up: whether the memory of `total` may become the model's.
    """

    number: RoundNumber
    before: Moved
    total: NDArray[np.floating] = field(repr=False)
    sums: Mapping[str, Any]
    divisor: float
    loss_unit: float = 1.0
    members: Collection[str] = ()
    sizes: tuple[int, ...] = ()
    used_up: bool = False


class TermRule(Generic[_Held]):
    """The rule of one term of one plan; as it stands it keeps nothing and changes nothing."""

    is_read_by_sites = False
    """Whether sites read its state in a round, so that the request carries it."""

    is_read_in_every_sum = False
    """Whether they read it in every other sum too."""

    @property
    def first(self) -> _Held | None:
        """Return what is kept before round 1; None where nothing is kept."""
        return None

    def may_be(self, held: _Held, rounds_done: int) -> bool:
        """Return whether a run may have reached this after so many rounds, as far as shapes and numbers tell."""
        del held, rounds_done
        return True

    def apply(self, held: _Held | None, opened: OpenedRound, model: Moved) -> tuple[_Held | None, Moved]:
        """Return what is kept after a round, and the model as this term leaves it.

        Args:
            held: what was kept before it; it never changes.
            opened: the sum of the round; only the last term that reads `total` may use up its memory.
            model: as the terms before this one left it.

        Raises:
            RemoteProtocolError: no honest sites have such a sum.
        """
        del opened
        return held, model

    def housed(self, held: _Held) -> _Held:
        """Return the same with its long vectors in the run's room for them; raises OSError where there is none."""
        return held


@dataclass(frozen=True, slots=True)
class TermSetting:
    """Everything that a rule is made from.

    Attributes:
        plan: the plan.
        layout: of its model.
        classes: how many there are.
        room: where long vectors of the run's state are.
    """

    plan: Plan
    layout: Layout
    classes: int
    room: VectorRoom = IN_MEMORY


def _no_fields(_plan: Plan, _classes: int) -> tuple[Field, ...]:
    return ()


def _no_words(_plan: Plan) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class StepTerm:
    """One row of the table of terms.

    Attributes:
        name: of its room, `fedfair.terms.<name>`.
        applies: whether a plan has it.
        rule: makes what a run does for it.
        slot: the name and the forms of what it keeps in the state; None where it keeps nothing.
        fields: what it adds to the header of a training sum.
        divisor: what divides the sum in place of the weights; None where these do.
        shown: what a round shows where a site can be left out of it, as a part of a sentence.
        at_sites: whether it has a module `site`.
        batched: whether a simulation of all sites at once computes that part.
    """

    name: str
    applies: Callable[[Plan], bool]
    rule: Callable[[TermSetting], TermRule[Any]] = lambda _: TermRule()
    slot: tuple[str, Slot[Any, Any]] | None = None
    fields: Callable[[Plan, int], tuple[Field, ...]] = _no_fields
    divisor: Divisor | None = None
    shown: Callable[[Plan], str] = _no_words
    at_sites: bool = False
    batched: bool = False
