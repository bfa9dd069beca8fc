"""What a finished federation counts of control variates, beside what its sites keep on their disks."""

from functools import partial

import numpy as np

from collaborator.continued_run import VariateStore
from collaborator.run_store import RunStore
from fedfair.cli.loopback import Workspace
from fedfair.ids import ParticipantId
from fedfair.plan.loading import load_plan
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from fedfair.terms.variates.site import SiteVariates
from fedfair.training.binding import plan_binding


def state_of(workspace: Workspace, name: str) -> tuple[str, RunState]:
    """Return the run and its state as a site keeps them."""
    plan = load_plan(workspace.plan)
    binding = plan_binding(plan, workspace.folder)
    initial = TrainingRun(plan, binding.layout, binding.schema, binding.vector).initial
    stem = f"{name}-{binding.digest.hex()[:16]}"
    kept = RunStore(workspace.folder / "state" / f"{stem}.run", lambda _: False).load(initial)
    assert kept is not None, name
    return kept


def own_variates(workspace: Workspace, name: str, run_id: str) -> SiteVariates:
    """Return a site's variates of a run, from its disk."""
    plan = load_plan(workspace.plan)
    binding = plan_binding(plan, workspace.folder)
    folder = workspace.folder / "state" / f"{name}-{binding.digest.hex()[:16]}.variates"
    store = VariateStore(folder, binding.layout.dimension, partial(str, run_id))
    return SiteVariates(plan, binding.layout, ParticipantId(name), store)


def assert_sites_add_up(workspace: Workspace, by: str, tolerance: float) -> tuple[int, ...]:
    """Assert that V is the sum of w_k v_k over what every site keeps; return by round who was counted last.

    Args:
        workspace: the federation.
        by: a site that was there to the end, whose copy of the run is believed.
        tolerance: for each coordinate of V divided by the sum of weights.
    """
    run_id, state = state_of(workspace, by)
    counted = state.terms["variates"]
    assert counted is not None
    kept = [own_variates(workspace, name, run_id).counted(counted) for name in workspace.collaborators]
    held = [one for one in kept if one is not None]
    assert len(held) == len(kept)
    weight = sum(one.weight for one in held)
    assert counted.weight == weight
    vector = sum((one.weight * one.variate.vector for one in held), np.zeros_like(counted.total.vector))
    np.testing.assert_allclose(counted.total.vector / weight, vector / weight, atol=tolerance)
    threshold = sum(one.weight * one.variate.threshold for one in held)
    assert abs(counted.total.threshold - threshold) <= tolerance * weight
    assert np.abs(counted.mean.vector).max() > 100 * tolerance
    return counted.rounds
