"""The history of a long run: shortened by one rule, with the best and the last evaluations; a line for each."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from fedfair.aggregation.evaluator import Evaluation
from fedfair.errors import LocalProtocolError
from fedfair.ids import RoundNumber
from fedfair.run import history as module
from fedfair.run.history import MAX_EVALUATIONS, best_of, from_line, to_line, with_evaluation
from fedfair.run.history_digest import history_digest
from fedfair.run.state import RunState
from tests.run.test_run_state import states

STATE = states()[-1]
ONE = STATE.history[0]


def rank(evaluation: Evaluation) -> tuple[float, ...]:
    return (evaluation.threshold,)


def extended(state: RunState, number: int, threshold: float) -> RunState:
    evaluation = replace(ONE, round=RoundNumber(number), threshold=threshold)
    history, digest = with_evaluation(state, evaluation, rank)
    is_best = not state.history or threshold < best_of(state, rank).threshold
    evaluated = STATE.evaluated
    assert evaluated is not None
    best = replace(evaluated, round=RoundNumber(number)) if is_best else state.evaluated_best
    return replace(state, history=history, history_digest=digest, evaluated_best=best)


def test_a_long_history_is_shortened_and_keeps_the_first_the_best_and_the_last_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_EVALUATIONS", 40)
    state = replace(STATE, history=(), history_digest=history_digest(()), evaluated_best=None)
    thresholds = {number: 1.0 + 0.01 * number for number in range(200)} | {57: 0.25}
    for number, threshold in thresholds.items():
        before = state.history
        state = extended(state, number, threshold)
        rounds = [past.round for past in state.history]
        assert rounds == sorted(set(rounds))
        assert len(rounds) < 40
        assert rounds[0] == 0
        assert rounds[-2:] == [number - 1, number][-len(rounds) :]
        assert best_of(state, rank) == min(state.history, key=rank)
        assert best_of(state, rank).threshold == min(list(thresholds.values())[: number + 1])
        assert state.history_digest == history_digest(state.history)
        assert len(state.history) > len(before) or len(state.history) >= 10
    assert 57 in rounds
    # 200 rounds in fewer than 40 places: at least every sixteenth.
    assert max(after - before for before, after in itertools.pairwise(rounds)) <= 16


def test_a_history_that_is_not_long_is_whole() -> None:
    assert MAX_EVALUATIONS == 10_000
    state = replace(STATE, history=(), history_digest=history_digest(()), evaluated_best=None)
    for number in range(100):
        state = extended(state, number, math.sin(number))
    assert [past.round for past in state.history] == list(range(100))


def test_an_evaluation_comes_back_from_its_line_bit_for_bit() -> None:
    odd = replace(ONE, threshold=math.inf, replaced=3)
    for evaluation in (*STATE.history, odd):
        line = to_line(evaluation)
        assert "\n" not in line
        assert from_line(line) == evaluation
        assert history_digest((from_line(line),)) == history_digest((evaluation,))


@pytest.mark.parametrize("line", ["", "{}", "[1]", '{"round": "x"}', "\0"])
def test_a_line_that_is_no_evaluation_is_refused(line: str) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be read"):
        from_line(line)
