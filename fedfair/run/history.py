"""The evaluations that a run remembers: all of them, or, of a very long run, evenly spaced ones.

A run of a year may have half a million. Every side holds the same history, so it is shortened by a rule that all
follow: as soon as there are `MAX_EVALUATIONS`, those stay whose round is a multiple of 2, 4, 8 and so on, until
half of them or fewer are left. The best one and the last two stay too. So memory and files stop growing. No torch.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence

from pydantic import TypeAdapter, ValidationError

from fedfair.aggregation.evaluator import Evaluation
from fedfair.errors import LocalProtocolError
from fedfair.run.history_digest import extended_history, history_digest
from fedfair.run.state import RunState

MAX_EVALUATIONS = 10_000
"""A history that reaches so many is shortened."""

_EVALUATION = TypeAdapter(Evaluation)

Rank = Callable[[Evaluation], tuple[float, ...]]
"""Orders evaluations, the best first."""

History = tuple[tuple[Evaluation, ...], bytes]
"""Evaluations in the order of their rounds, and their digest of 32 bytes."""


def with_evaluation(state: RunState, evaluation: Evaluation, rank: Rank) -> History:
    """Return the history of a state with one more evaluation.

    Args:
        state: the state before it.
        evaluation: of a later round than those of the history.
        rank: tells which one is the best.
    """
    longer = (*state.history, evaluation)
    if len(longer) < MAX_EVALUATIONS:
        return longer, extended_history(state.history_digest, evaluation)
    kept = _thinned(longer, best_of(state, rank) if state.history else evaluation, rank)
    return kept, history_digest(kept)


def best_of(state: RunState, rank: Rank) -> Evaluation:
    """Return the best evaluation of a state's history; there must have been one."""
    history, best = state.history, state.evaluated_best
    if best is not None:
        # Rounds increase, so that the cost of a round does not grow with the rounds before it.
        place = bisect_left(history, best.round, key=lambda past: past.round)
        if place < len(history) and history[place].round == best.round:
            return history[place]
    return min(history, key=rank)


def _thinned(history: Sequence[Evaluation], best: Evaluation, rank: Rank) -> tuple[Evaluation, ...]:
    best = min(best, history[-1], key=rank)
    spaced, stride = [past.round for past in history], 1
    while len(spaced) > len(history) // 2:
        stride *= 2
        spaced = [number for number in spaced if number % stride == 0]
    last = history[-2].round
    return tuple(past for past in history if past.round % stride == 0 or past.round >= last or past is best)


def to_line(evaluation: Evaluation) -> str:
    """Return an evaluation as one line of JSON, without its end; NaN and infinity are spelt as Python does."""
    return json.dumps(_EVALUATION.dump_python(evaluation), separators=(",", ":"))


def from_line(line: str | bytes) -> Evaluation:
    """Return the evaluation of `to_line`, bit for bit.

    Raises:
        LocalProtocolError: it is none.
    """
    try:
        return _EVALUATION.validate_python(json.loads(line))
    except (ValidationError, ValueError) as error:
        raise LocalProtocolError(f"an evaluation of the history cannot be read: {error}") from error
