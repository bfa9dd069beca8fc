"""The state of a run: immutable, equal bits everywhere, and a digest that covers every fact of it."""

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfair.aggregation.evaluation_file import EvaluatedModel
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.quantile_query import ExactQuery
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.aggregation.slice_search import SliceSearch
from fedfair.aggregation.training_sum import IterateMean
from fedfair.errors import LocalProtocolError
from fedfair.ids import RoundNumber
from fedfair.run import history as module
from fedfair.run.history import MAX_EVALUATIONS, best_of, from_line, to_line, with_evaluation
from fedfair.run.history_digest import history_digest
from fedfair.run.kept_sum import KeptSum
from fedfair.run.progress import FinalStage
from fedfair.run.state import RunState
from fedfair.run.state_slots import KEPT, RARE, SLOTS
from fedfair.signed_message import labelled_message
from fedfair.statistics.table import Purpose
from fedfair.terms.group_weights.state import GroupWeights
from fedfair.terms.kept import CountedVariates, Variate
from fedfair.terms.server_step.state import Moments
from fedfair.terms.table import TERM_SLOTS
from fedfair.transcript.merkle import MerkleFrontier
from tests.held_terms import with_fact
from tests.run.test_training_run import answer, make_plan, make_training_run

PLAN_DIGEST = bytes(range(32))


def states(**stated: object) -> list[RunState]:
    """Return every state of a run of three rounds, from the first to the last."""
    plan = make_plan(**stated)  # type: ignore[arg-type]
    training_run = make_training_run(plan)
    found = [training_run.state]
    while (request := training_run.next_sum()) is not None:
        training_run.apply_aggregate(answer(request, plan), ["a", "b"])
        found.append(training_run.state)
    return found


def changed(state: RunState) -> dict[str, RunState]:
    """Return the state with another value of each of its attributes."""
    sums = EvaluatedModel(np.ones(3), bytes(32), 0.5, 1, 2)
    other: dict[str, object] = {
        "stage": FinalStage.FINISHED if state.stage is not FinalStage.FINISHED else Purpose.TRAINING,
        "model": GlobalModel(state.model.vector + 1, state.model.threshold),
        "rounds_done": RoundNumber(state.rounds_done + 1),
        "scaling": FeatureScaling(np.ones(1), np.full(1, 2.0)),
        "clip": 3.0,
        "moments": Moments(np.ones(3), np.ones(3), 0.5, 0.25, 0.9, 0.99),
        "variates": CountedVariates(Variate(np.ones(3), 0.5), 2.0, (1, 0)),
        "groups": GroupWeights(np.ones(2), np.ones(2)),
        "mean": IterateMean(np.ones(state.model.vector.shape), 0.25, 4),
        "best": GlobalModel(state.model.vector + 2, 0.125),
        "history_digest": bytes([1]) * 32,
        "left_out": (RoundNumber(7),),
        "final": state.history[0],
        "evaluated": sums,
        "evaluated_earlier": sums,
        "evaluated_best": sums,
        "query": ExactQuery.of((0.5,)),
        "query_fault": "given up",
        **dict.fromkeys(KEPT, KeptSum(np.ones(3), ("a", "b", "c"))),
        "last": GlobalModel(state.model.vector + 3, 0.25),
        "references": References(np.ones(4), np.zeros(4), 3, 2, 0.5, 1),
        "slices": SliceSearch(3, 2, ((0, 5), (0, 1, 0)), (True, True, False), ("a", "b"), np.ones(4)),
        "tree": MerkleFrontier(5, (bytes([1]) * 32, bytes([2]) * 32)),
    }
    assert other.keys() == {*SLOTS, "history_digest"} - {"history"}, "a new fact needs a place in the digest"
    return {name: with_fact(state, name, value) for name, value in other.items()}


def test_every_attribute_of_a_state_changes_its_digest() -> None:
    state = states()[-1]
    digests = {name: found.digest(PLAN_DIGEST) for name, found in changed(state).items()}
    assert len({state.digest(PLAN_DIGEST), *digests.values()}) == len(digests) + 1
    assert state.digest(bytes(32)) != state.digest(PLAN_DIGEST)
    threshold = replace(state, model=replace(state.model, threshold=math.nextafter(state.model.threshold, 9.0)))
    assert threshold.digest(PLAN_DIGEST) != state.digest(PLAN_DIGEST)


def sliced(found: SliceSearch | None) -> bytes:
    if found is None:
        return b""
    told = dataclasses.asdict(found) | {"fault": bool(found.fault)}
    del told["header"]
    words = json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
    return sha256(found.header.tobytes()) + words


def spelled_out(state: RunState, plan_digest: bytes) -> bytes:
    """Return the digest of a state with every part of it written down one after the other."""

    def model(found: GlobalModel | None) -> bytes:
        return b"" if found is None else sha256(found.vector.tobytes()) + struct.pack("<d", found.threshold)

    def sums(found: EvaluatedModel | None) -> bytes:
        if found is None:
            return b""
        numbers = struct.pack("<dQQQ", found.threshold, found.round, found.contributors, found.replaced)
        return sha256(found.header.tobytes()) + found.vector_sha256 + numbers

    def kept_sum(found: KeptSum | None) -> bytes:
        if found is None:
            return b""
        names = labelled_message("fedfair/survey-members/1", [name.encode() for name in found.members])
        return sha256(found.header.tobytes()) + names

    def references(found: References | None) -> bytes:
        if found is None:
            return b""
        numbers = struct.pack("<QQdQ", found.sums, found.best_at, found.best_loss, found.temperature)
        vectors = [sha256(found.present.tobytes()), sha256(found.best.tobytes())]
        return sha256(labelled_message("fedfair/references/1", [*vectors, numbers]))

    def text(value: Evaluation | ExactQuery) -> bytes:
        return json.dumps(dataclasses.asdict(value), sort_keys=True, separators=(",", ":")).encode()

    moments, counted, groups, mean = (
        state.terms.get("moments"), state.terms.get("variates"), state.terms.get("groups"), state.mean,
    )  # fmt: skip
    parts = [
        plan_digest,
        state.stage.value.encode(),
        struct.pack("<Q", state.rounds_done),
        model(state.model),
        scaling_digest(state.scaling),
        b"" if state.clip is None else struct.pack("<d", state.clip),
        b""
        if moments is None
        else sha256(moments.first.tobytes())
        + sha256(moments.second.tobytes())
        + struct.pack("<dd", moments.threshold_first, moments.threshold_second)
        + struct.pack("<dd", moments.first_power, moments.second_power),
        b""
        if counted is None
        else sha256(counted.total.vector.tobytes())
        + struct.pack("<dd", counted.total.threshold, counted.weight)
        + b"".join(struct.pack("<Q", each) for each in counted.rounds),
        b"" if groups is None else sha256(groups.weights.tobytes()) + sha256(groups.counts.tobytes()),
        b"" if mean is None else sha256(mean.vector.tobytes()) + struct.pack("<dQ", mean.threshold, mean.count),
        model(state.best),
        state.history_digest,
        b"".join(struct.pack("<Q", each) for each in state.left_out),
        b"" if state.final is None else text(state.final),
        sums(state.evaluated),
        sums(state.evaluated_earlier),
        sums(state.evaluated_best),
        b"" if state.query is None else text(state.query),
        bytes([bool(state.query_fault)]),
    ]
    *first, audit = (kept_sum(state.kept.get(word)) for word in KEPT)
    rare = [model(state.last), *first, references(state.references), sliced(state.slices)]
    tree = state.tree
    rare.append(b"" if tree is None else struct.pack("<Q", tree.size) + b"".join(tree.peaks))
    rare.append(audit)
    while rare and not rare[-1]:
        rare.pop()
    return sha256(labelled_message("fedfair/run-state/2", [*parts, *rare]))


def sha256(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(range(8)), st.sets(st.sampled_from([*SLOTS, "history_digest"])))
def test_the_digest_is_that_of_all_parts_written_one_after_the_other(place: int, names: set[str]) -> None:
    found = some_states()
    state, others = found[min(place, len(found) - 1)], changed(found[-1])
    for name in names & others.keys():
        made = others[name]
        state = with_fact(state, name, made.history_digest if name == "history_digest" else made.facts[name])
    assert state.digest(PLAN_DIGEST) == spelled_out(state, PLAN_DIGEST)


@functools.cache
def some_states() -> list[RunState]:
    return states(output="average", method="exact")


def test_every_attribute_of_a_state_has_a_slot() -> None:
    fields = {field.name for field in dataclasses.fields(RunState)}
    # The parts of the digest are kept beside the facts, once they are computed.
    assert {*SLOTS, "history_digest", "terms", "kept", "_told"} == fields | {*TERM_SLOTS, *KEPT}
    assert tuple(SLOTS)[-len(RARE) :] == RARE
    # `spelled_out` writes down each part of these, so a new one fails here.
    assert [len(dataclasses.fields(kind)) for kind in (Moments, CountedVariates, KeptSum)] == [6, 3, 2]


def test_an_evaluation_of_the_history_changes_the_digest_of_the_state() -> None:
    found = states()
    digests = [state.history_digest for state in found if state.history]
    assert len(set(digests)) == len({len(state.history) for state in found if state.history})


@pytest.mark.parametrize("output", ["last", "average", "best"])
def test_a_step_leaves_the_state_before_it_as_it_was(output: str) -> None:
    plan = make_plan(output=output)
    training_run = make_training_run(plan)
    while (request := training_run.next_sum()) is not None:
        before, digest = training_run.state, training_run.state.digest(PLAN_DIGEST)
        kept = before.model.vector.copy()
        training_run.apply_aggregate(answer(request, plan), ["a", "b"])
        assert before.model.vector.tobytes() == kept.tobytes()
        # The digest of the vector is kept with the model, so it is taken again from the numbers.
        fresh = replace(before, model=GlobalModel(before.model.vector, before.model.threshold))
        assert fresh.digest(PLAN_DIGEST) == digest


def test_nobody_can_change_a_state() -> None:
    state = states()[0]
    for name in ("stage", "model", "history"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(state, name, None)


# ---- the history of a long run: shortened by one rule, with the best and the last evaluations; a line for each

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


def test_a_long_history_keeps_the_first_the_best_and_the_last_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EVALUATIONS", 40)
    state = replace(STATE, history=(), history_digest=history_digest(()), evaluated_best=None)
    thresholds = {number: 1.0 + 0.01 * number for number in range(200)} | {57: 0.25}
    for number, threshold in thresholds.items():
        before, state = state.history, extended(state, number, threshold)
        rounds = [past.round for past in state.history]
        assert rounds == sorted(set(rounds))
        assert len(rounds) < 40
        assert (rounds[0], rounds[-2:]) == (0, [number - 1, number][-len(rounds) :])
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
