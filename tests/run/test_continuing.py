"""A finished run that continues is the run that was planned with all of its rounds from the beginning."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.aggregation.round_subject import scaling_digest
from fedfair.errors import PlanError
from fedfair.plan.digest import format_digest
from fedfair.plan.initial import ContinuedSection, InitialSection
from fedfair.plan.learning_rates import rate_factor
from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.plan.simulated_clip import clips_in_simulation
from fedfair.run.carried import Carried
from fedfair.run.continuing import going_on, state_digest
from fedfair.run.initial_model import vector_digest
from fedfair.run.packed_state import pack_state
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.cohort import simulated_memories
from fedfair.simulation.simulate import play
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model
from fedfair.training.binding import PlanBinding, bound
from fedfair.training.client import TrainingClient
from tests import plans
from tests.held_terms import holding

TASK = {"partition": {"scheme": "label"}, "standardize": "secure"}
DIGEST = f"sha256:{'1' * 64}"


def planned(rounds: int, evaluation: plans.Section = {}, mode: str = "off", **training: object) -> Plan:  # noqa: B006
    return plans.parsed(
        task=TASK,
        training={"rounds": rounds, "learning_rate": 0.1, **training},
        evaluation={"every": 2, **evaluation},
        secure_aggregation={"mode": mode},
    )


class Federation:
    """All sites' clients, which remember what sites remember."""

    def __init__(self, plan: Plan) -> None:
        self.sites = load_federation(plan, Path())
        schema = next(iter(self.sites.values())).train.schema
        self.made: PlanBinding = bound(plan, schema, Path())
        model = flat_model(plan, schema, torch.device("cpu"), Path())
        self.memories = simulated_memories(plan, model.layout, self.sites)
        self.model = model

    def run(self, plan: Plan, carried: Carried | None = None, vector: np.ndarray | None = None) -> TrainingRun:
        """Play a run of the plan to its end."""
        made = self.made
        begins = made.vector if vector is None else vector
        training_run = TrainingRun(plan, made.layout, made.schema, begins, carried=carried or Carried())
        tasks = {name: TrainingClient(plan, name, splits, self.model) for name, splits in self.sites.items()}
        play(training_run, LoopClients(tasks, memories=self.memories), clips=clips_in_simulation(plan))
        return training_run

    def extended(self, before: Plan, ended: RunState, rounds: int) -> tuple[Plan, Carried, RunState]:
        """Return the plan by which a run continues, and what it takes over."""
        state = going_on(ended, keeps_tail=before.training.output == "tail")
        section = InitialSection(
            weights=format_digest(vector_digest(state.model.vector)),
            scaling=format_digest(scaling_digest(state.scaling)),
            continues=ContinuedSection(
                plans=(DIGEST,), rounds=int(state.rounds_done), state=state_digest(state, (DIGEST,))
            ),
        )
        training = before.training.model_copy(update={"rounds": rounds, "initial": section})
        plan = Plan.model_validate(before.model_copy(update={"training": training}).model_dump())
        return plan, Carried(state.scaling, b"".join(pack_state(state))), state


CASES: dict[str, dict[str, object]] = {
    "adam": {"server_optimizer": {"name": "adam"}},
    "yogi, best": {"server_optimizer": {"name": "yogi"}, "output": "best"},
    "momentum, average": {"server_optimizer": {"name": "momentum"}, "output": "average"},
    "quantile": {"threshold_init": "quantile", "output": "best"},
    "variates": {"control_variates": True, "local_steps": 3, "learning_rate": 0.02},
    "own thresholds": {"algorithm": "localbpf"},
    "masked": {"mode": "malicious"},
}


def untold(state: RunState) -> bytes:
    """Return the digest of all of a state but its transcript, which says how the run came to it."""
    return replace(state, tree=None).digest(bytes(32))


def leaves(state: RunState) -> int:
    assert state.tree is not None
    return state.tree.size


@pytest.mark.parametrize("case", CASES)
def test_rounds_that_are_added_are_those_of_the_longer_plan_to_the_bit(case: str) -> None:
    keys = CASES[case]
    if keys.get("algorithm"):
        keys = {**keys, "server_optimizer": None}
    whole = Federation(planned(8, **keys)).run(planned(8, **keys)).state  # type: ignore[arg-type]
    federation, before = Federation(planned(4, **keys)), planned(4, **keys)  # type: ignore[arg-type]
    plan, carried, state = federation.extended(before, federation.run(before).state, 8)
    assert [int(one.round) for one in state.history] == [0, 2, 4]
    after = federation.run(plan, carried, state.model.vector).state
    assert after.model.vector.tobytes() == whole.model.vector.tobytes()
    assert (after.last or after.model).vector.tobytes() != state.model.vector.tobytes()
    assert (after.model.threshold, after.clip, after.history) == (whole.model.threshold, whole.clip, whole.history)
    assert untold(after) == untold(whole)
    # The plan begins with a leaf of its own; a mean that ended the shorter run was evaluated besides.
    assert leaves(after) == leaves(whole) + 1 + (keys.get("output") == "average")


def test_a_run_may_be_extended_again() -> None:
    keys: dict[str, object] = {"server_optimizer": {"name": "adam"}}
    whole = Federation(planned(10, **keys)).run(planned(10, **keys)).state  # type: ignore[arg-type]
    federation, plan = Federation(planned(4, **keys)), planned(4, **keys)  # type: ignore[arg-type]
    state = federation.run(plan).state
    for rounds in (6, 10):
        plan, carried, begun = federation.extended(plan, state, rounds)
        state = federation.run(plan, carried, begun.model.vector).state
    assert untold(state) == untold(whole)
    assert leaves(state) == leaves(whole) + 2


def test_an_evaluation_at_the_old_end_stays_in_the_history() -> None:
    federation, before = Federation(planned(5)), planned(5)
    plan, carried, state = federation.extended(before, federation.run(before).state, 8)
    after = federation.run(plan, carried, state.model.vector).state
    assert [int(one.round) for one in after.history] == [0, 2, 4, 5, 6, 8]
    # Training does not depend on evaluations.
    whole = Federation(planned(8)).run(planned(8)).state
    assert after.model.vector.tobytes() == whole.model.vector.tobytes()


def test_a_tail_is_the_mean_of_rounds_after_the_extension() -> None:
    keys: dict[str, object] = {"output": "tail"}
    federation, before = Federation(planned(4, **keys)), planned(4, **keys)  # type: ignore[arg-type]
    ended = federation.run(before).state
    for rounds, counted in ((10, 5), (6, 2)):
        plan, carried, state = federation.extended(before, ended, rounds)
        after = federation.run(plan, carried, state.model.vector).state
        assert (after.mean.count, schedule_of(plan).averaged_from) == (counted, rounds - counted)
    # Where the longer plan's own tail begins after the old end, the mean is that of the longer plan.
    whole = Federation(planned(10, **keys)).run(planned(10, **keys)).state  # type: ignore[arg-type]
    plan, carried, state = federation.extended(before, ended, 10)
    assert federation.run(plan, carried, state.model.vector).state.model.vector.tobytes() == (
        whole.model.vector.tobytes()
    )


def test_a_schedule_rises_and_falls_over_the_rounds_that_are_added() -> None:
    alone = planned(4, schedule="cosine", warm_up=0.25)
    federation, before = Federation(alone), alone
    plan, _, _ = federation.extended(before, federation.run(before).state, 10)
    added = planned(6, schedule="cosine", warm_up=0.25)
    assert [rate_factor(plan, number) for number in range(5, 11)] == [
        rate_factor(added, number) for number in range(1, 7)
    ]


def test_a_run_that_is_not_finished_cannot_go_on() -> None:
    federation, plan = Federation(planned(2)), planned(2)
    run = federation.run(plan)
    with pytest.raises(PlanError, match="stands at standardisation after round 0, and is not finished"):
        going_on(run.initial, keeps_tail=False)


def test_a_run_whose_last_model_is_lost_cannot_go_on() -> None:
    keys: dict[str, object] = {"output": "average"}
    federation, plan = Federation(planned(3, **keys)), planned(3, **keys)  # type: ignore[arg-type]
    state = federation.run(plan).state
    assert state.last is not None
    with pytest.raises(PlanError, match="did not keep the model of the last round"):
        going_on(replace(state, last=None), keeps_tail=False)


@pytest.mark.parametrize("lie", ["weights", "threshold", "moments", "round", "history", "scaling", "clip"])
def test_a_state_with_anything_changed_is_not_the_one_that_the_plan_names(lie: str) -> None:
    keys: dict[str, object] = {"server_optimizer": {"name": "adam"}, "mode": "malicious"}
    federation, before = Federation(planned(3, **keys)), planned(3, **keys)  # type: ignore[arg-type]
    plan, carried, state = federation.extended(before, federation.run(before).state, 5)
    assert state.terms["moments"] is not None
    assert state.clip is not None
    moved = state.model.vector + np.float32(1e-3)
    lies = {
        "weights": replace(state, model=replace(state.model, vector=moved)),
        "threshold": replace(state, model=replace(state.model, threshold=state.model.threshold + 1e-9)),
        "moments": holding(state, moments=replace(state.terms["moments"], threshold_first=0.5)),
        "round": replace(state, rounds_done=state.rounds_done - 1),
        "history": replace(state, history=state.history[:-1]),
        "scaling": replace(state, scaling=replace(state.scaling, mean=state.scaling.mean + 1.0)),
        "clip": holding(state, clip=state.clip / 2.0),
    }
    made, forged = federation.made, Carried(carried.scaling, b"".join(pack_state(lies[lie])))
    with pytest.raises(PlanError, match=r"is the state sha256:.*, the plan names"):
        TrainingRun(plan, made.layout, made.schema, state.model.vector, carried=forged)
    cut = Carried(carried.scaling, carried.state[:-3] if carried.state else None)
    with pytest.raises(PlanError, match="does not fit the plan"):
        TrainingRun(plan, made.layout, made.schema, state.model.vector, carried=cut)


def test_other_collaborators_cannot_go_on_where_something_is_kept_of_each() -> None:
    keys: dict[str, object] = {"control_variates": True, "local_steps": 2}
    federation, before = Federation(planned(2, **keys)), planned(2, **keys)  # type: ignore[arg-type]
    plan, carried, state = federation.extended(before, federation.run(before).state, 4)
    more = plan.federation.model_copy(update={"collaborators": (*plans.NAMES, "clinic-d")})
    wider, made = plan.model_copy(update={"federation": more}), federation.made
    with pytest.raises(PlanError, match="no run of this plan reaches the state") as refused:
        TrainingRun(wider, made.layout, made.schema, state.model.vector, carried=carried)
    assert "the same collaborators" in refused.value.remedy
