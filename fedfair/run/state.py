"""The state of a run: an immutable value that begins in the approved plan and moves only by opened sums.

`rules.RunRules` has the rules; this module has the facts and their digest. The aggregator, every site and a
simulation hold the same state, so the digest is what they compare. A digest covers everything that a later request
or the outcome of the run depends on. It does not cover words: why an exact evaluation was given up is for people.
Numbers are hashed by their bits, so two machines agree exactly where they hold the same numbers. No torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedfair.aggregation.evaluation_file import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.quantile_query import ExactQuery
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.aggregation.slice_search import SliceSearch
from fedfair.aggregation.training_sum import IterateMean
from fedfair.ids import RoundNumber
from fedfair.run.history_digest import NO_HISTORY
from fedfair.run.kept_sum import KeptSum
from fedfair.run.progress import Stage, is_at
from fedfair.run.state_slots import KEPT, RARE, SLOTS
from fedfair.signed_message import labelled_message
from fedfair.statistics.statistic import When
from fedfair.terms.slot import Slot
from fedfair.terms.table import TERM_SLOTS, TermStates
from fedfair.transcript.merkle import MerkleFrontier

LABEL = "fedfair/run-state/2"

_HELD = frozenset((*TERM_SLOTS, *KEPT))
"""The slots of facts that a state holds by name."""


@dataclass(frozen=True, slots=True)
class RunState:
    """The whole state of a run.

    Attributes:
        stage: what is summed next.
        model: the global model and its threshold; no array of a state is ever changed.
        rounds_done: training rounds that are behind it.
        scaling: the feature scaling; None where the plan wants none, and before its sum.
        terms: what the terms of the plan keep, by slot (`terms.table`); nothing for a term that keeps nothing.
        mean: the mean of the iterates; None where the plan keeps none.
        best: the model with the lowest objective so far; None before the first evaluation.
        last: the model of the last round, from which an extended run continues, where the output model has taken
        its
            place; None where it has not.
        history: every evaluation so far, from round 0; of very many, evenly spaced ones (`history.py`).
        history_digest: 32 bytes, of the history.
        left_out: rounds whose evaluation was due and could not be had.
        final: the evaluation of the output model, once there is one that is not the last of the history.
        evaluated: the sums of the latest evaluation, and what they are about; None before it.
        evaluated_earlier: those of the one before, which a mean of one model may turn out to be; None where no
            mean is kept.
        evaluated_best: those of the best model; None before the first evaluation.
        query: how far an exact evaluation has come; None while there is none.
        query_fault: why it was given up; empty where it was not.
        kept: the opened sums that the run keeps whole, by the word of their statistic; nothing before them.
        references: against which `measure: excess` judges; None where the plan has none.
        slices: how far the search for slices has come, and at its end the last total; None before it begins.
        tree: the transcript of every opened sum so far; None before the first.
    """

    stage: Stage
    model: GlobalModel
    rounds_done: RoundNumber = RoundNumber(0)  # noqa: RUF009 - an int
    scaling: FeatureScaling | None = None
    terms: TermStates = field(default_factory=dict)
    mean: IterateMean | None = None
    best: GlobalModel | None = None
    last: GlobalModel | None = None
    history: tuple[Evaluation, ...] = ()
    history_digest: bytes = NO_HISTORY
    left_out: tuple[RoundNumber, ...] = ()
    final: Evaluation | None = None
    evaluated: EvaluatedModel | None = None
    evaluated_earlier: EvaluatedModel | None = None
    evaluated_best: EvaluatedModel | None = None
    query: ExactQuery | None = None
    query_fault: str = ""
    kept: Mapping[str, KeptSum] = field(default_factory=dict)
    references: References | None = None
    slices: SliceSearch | None = None
    tree: MerkleFrontier | None = None
    _told: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def latest(self) -> Evaluation:
        """Return the evaluation of the global model, at the end of training; there must have been one."""
        return self.final or self.history[-1]

    @property
    def judging(self) -> References | None:
        """Return the references that sites need for the sum that is due; None where they need none.

        A run that evaluates a saved model trains none, and measures no excess.
        """
        held = self.references
        return held if held is not None and (held.sums or is_at(self.stage, When.REFERENCE)) else None

    @property
    def clip(self) -> float | None:
        """Return the largest change of one parameter that the next masked sum takes whole; None without masks."""
        clip: float | None = self.terms.get("clip")
        return clip

    @property
    def facts(self) -> Mapping[str, Any]:
        """Return every fact of the state by its slot; None where it has none."""
        held = {**self.terms, **self.kept}
        return {name: held.get(name) if name in _HELD else getattr(self, name) for name in SLOTS}

    @classmethod
    def of_facts(cls, facts: Mapping[str, Any], history_digest: bytes) -> RunState:
        """Return the state that has these facts; as `facts` gives them."""
        terms, kept = (
            {name: facts[name] for name in group if facts.get(name) is not None} for group in (TERM_SLOTS, KEPT)
        )
        base = {name: fact for name, fact in facts.items() if name not in TERM_SLOTS and name not in KEPT}
        return cls(**base, terms=terms, kept=kept, history_digest=history_digest)

    def digest(self, plan_digest: bytes) -> bytes:
        """Return 32 bytes that two states share exactly where they are the same state of the same plan.

        Args:
            plan_digest: of the plan that is run, 32 bytes.
        """
        if not self._told:
            # Rules, replica and session ask for it under more than one plan's digest; the parts are the same.
            self._told.extend(self._parts())
        return hashlib.sha256(labelled_message(LABEL, [plan_digest, *self._told])).digest()

    def _parts(self) -> list[bytes]:
        told = {name: _digested(SLOTS[name], fact) for name, fact in self.facts.items()}
        told["history"] = self.history_digest
        rare = [told.pop(name) for name in RARE]
        while rare and not rare[-1]:
            rare.pop()
        return [*told.values(), *rare]


def _digested(slot: Slot[Any, Any], fact: object) -> bytes:
    return slot.absent if fact is None else slot.digested(fact)
