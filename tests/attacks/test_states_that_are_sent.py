"""An aggregator that sends anything as a state of the run: it is refused in words, or a run can continue from it.

Nothing of a state that was sent is believed because of its bytes. But a site reads them before it knows whether to
believe them, so they must neither end it with a traceback nor put it where no run of its plan can be.
"""

from __future__ import annotations

import copy
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedfair.plan.schema import Plan
from fedfair.run.packed_state import pack_state
from fedfair.run.progress import FinalStage
from fedfair.run.replica import OutOfStepError, RunReplica, Unkept
from fedfair.run.rules import RunRules
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from fedfair.statistics.table import Purpose
from fedfair.training.binding import plan_binding
from tests.actors.followed_run import PLAN_DIGEST
from tests.actors.site_play import played, small


def plan_with(output: str, method: str) -> Plan:
    plan = small(output=output)
    return plan.model_copy(update={"evaluation": plan.evaluation.model_copy(update={"method": method})})


def states_of(plan: Plan, folder: Path) -> tuple[RunRules, list[RunState]]:
    """Return the rules of a run and every state that it comes to, from the first to the last."""
    found: list[RunState] = []
    run = played(plan, folder, lambda _, training_run, __: found.append(training_run.state)).training_run
    return run.rules, [run.initial, *found]


@pytest.mark.parametrize("method", ["histogram", "exact"])
@pytest.mark.parametrize("output", ["last", "best", "average"])
def test_every_state_that_a_run_comes_to_is_possible_and_is_taken_from_the_others(
    tmp_path: Path, output: str, method: str
) -> None:
    rules, states = states_of(plan_with(output, method), tmp_path)
    assert {state.stage for state in states} >= {Purpose.STANDARDISATION, Purpose.EVALUATION, Purpose.TRAINING}
    assert (Purpose.EXACT_EVALUATION in {state.stage for state in states}) == (method == "exact")
    for state in states:
        assert rules.may_be(state)
        if rules.may_skip(state):
            assert rules.may_be(rules.skip(state, "nobody came"))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path, list[bytes]]:
    folder = tmp_path_factory.mktemp("run")
    plan = plan_with("average", "exact")
    _, states = states_of(plan, folder)
    return plan, folder, [b"".join(pack_state(state)) for state in (states[1], states[4], states[-2], states[-1])]


def replica_of(plan: Plan, folder: Path) -> RunReplica:
    binding = plan_binding(plan, folder)
    return RunReplica(TrainingRun(plan, binding.layout, binding.schema, binding.vector), PLAN_DIGEST, Unkept())


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=70),
    st.lists(st.integers(-3, 2**33), max_size=4), st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)  # fmt: skip


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Return the way to every value in a JSON document."""
    found = [path] if path else []
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        found += places(child, (*path, key))
    return found


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_state_with_anything_else_in_its_words_is_refused_in_words_or_is_one_to_go_on_from(
    sound: tuple[Plan, Path, list[bytes]], data: st.DataObject
) -> None:
    plan, folder, packed = sound
    raw = data.draw(st.sampled_from(packed))
    (length,) = struct.unpack_from("<Q", raw)
    header = copy.deepcopy(json.loads(raw[8 : 8 + length]))
    path = data.draw(st.sampled_from(places(header)))
    inside: object = header
    for key in path[:-1]:
        inside = inside[key]  # type: ignore[index]
    inside[path[-1]] = data.draw(ANYTHING)  # type: ignore[index]
    changed = json.dumps(header).encode()
    taken(replica_of(plan, folder), struct.pack("<Q", len(changed)) + changed + raw[8 + length :])


@settings(deadline=None, max_examples=70, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_state_with_flipped_or_missing_bytes_is_refused_in_words_or_is_one_to_go_on_from(
    sound: tuple[Plan, Path, list[bytes]], data: st.DataObject
) -> None:
    plan, folder, packed = sound
    raw = bytearray(data.draw(st.sampled_from(packed)))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    taken(replica_of(plan, folder), bytes(raw[: data.draw(st.integers(0, len(raw)))]))


def taken(replica: RunReplica, raw: bytes) -> None:
    """Send a state to a site that takes it on the aggregator's word, and let it say what it would do next."""
    before = replica.digest
    try:
        replica.offer(raw)
    except OutOfStepError:
        assert replica.digest == before
        return
    replica.trust()
    state = replica.state
    assert replica.rules.may_be(state)
    assert (replica.rules.next_request(state) is None) == (state.stage is FinalStage.FINISHED)
    np.testing.assert_equal(state.digest(PLAN_DIGEST), replica.digest)
    replica.finish()
