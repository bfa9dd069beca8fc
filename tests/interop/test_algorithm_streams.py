"""Federations with q-FFL, local BPF and FedMinMax over real sockets: the simulation's model, whoever drops out."""

import asyncio
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from collaborator.continued_run import VariateStore
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import PlanError, StateError
from fedfair.plan.loading import load_plan
from fedfair.policy.plan_check import check_policy
from fedfair.policy.site_config import SitePolicy
from fedfair.policy.terms import AskedTerms
from fedfair.tables.source import load_federation
from fedfair.terms.kept import round_of
from fedfair.training.binding import plan_binding
from tests.interop.counted_variates import state_of
from tests.interop.federation_kit import FIVE, Federation, model_files_agree, one_returns, play, states_agree
from tests.interop.test_masked_streams import fixed_point_bound
from tests.plans import small_plan

STATED: Mapping[str, object] = {
    "schedule": "constant",
    "learning_rate": 0.1,
    "threshold_learning_rate": 0.1,
    "threshold_init": 1.0,
    "output": "last",
    "precision": "fp64",
}
ALGORITHMS: Mapping[str, Mapping[str, object]] = {
    "qffl": {"algorithm": "qffl", "options": {"loss_power": 1.5}, **STATED},
    "localbpf": {"algorithm": "localbpf", **STATED},
    "fedminmax": {
        "algorithm": "fedminmax",
        "options": {"adversary_learning_rate": 0.5, "adversary_interval": 2},
        **STATED,
        "local_steps": 1,
    },
}
FOUR = FIVE[:4]
MASKED: Mapping[str, object] = {"mode": "malicious", "most_records": 512}
ROUNDING = 1e-12
"""Of sums of a few hundred numbers of order one, in another order, over a few rounds."""


def finish(workspace: Workspace) -> None:
    assert play(workspace, Federation.everybody).state.value == "finished"
    states_agree(workspace)


def assert_threshold_is_mean_of_own(workspace: Workspace, by: str) -> tuple[int, ...]:
    """Assert that the last threshold is the mean of what the sites keep; return who was counted when.

    Args:
        workspace: a finished federation with local BPF, the last round of which had every site in it.
        by: a site that was there to the end.
    """
    run_id, state = state_of(workspace, by)
    counted, plan = state.terms["variates"], load_plan(workspace.plan)
    assert counted is not None
    digest, sites = plan_binding(plan, workspace.folder).digest, load_federation(plan, workspace.folder)
    own, weights = [], []
    for name in plan.federation.collaborators:
        store = VariateStore(
            workspace.folder / "state" / f"{name}-{digest.hex()[:16]}.variates", 0, partial(str, run_id)
        )
        kept = store.found(round_of(counted, plan.federation.collaborators, name))
        assert kept is not None, name
        own.append(kept.variate.threshold)
        weights.append(kept.weight)
    assert weights == [len(splits.train) for splits in sites.values()]
    assert state.model.threshold == pytest.approx(np.average(own, weights=weights), abs=ROUNDING)
    assert len(set(own)) == len(own)
    return counted.rounds


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_in_the_clear_gives_the_model_of_the_simulation(tmp_path: Path, name: str) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=4, **ALGORITHMS[name]))
    finish(workspace)
    # The loop adds in the order of the plan, the aggregator in that of arrival; vectorised sums differ likewise.
    deployed, simulated = (result["traffic"] for result in model_files_agree(workspace, ROUNDING))
    assert isinstance(deployed, dict)
    assert isinstance(simulated, dict)
    assert deployed["bytes_up"] == simulated["bytes_up"]
    if name == "localbpf":
        assert assert_threshold_is_mean_of_own(workspace, "clinic-a") == (4, 4, 4)


def test_a_masked_run_of_local_bpf_gives_the_model_of_the_simulation(tmp_path: Path) -> None:
    protection = {"mode": "malicious", "most_records": 512, "check_sums": False}
    workspace = prepare(tmp_path, small_plan(rounds=4, protection=protection, **ALGORITHMS["localbpf"]))
    finish(workspace)
    # Each site's steps bring two pairs (theta, c_k) no further apart. By Jensen the mean of the models does not
    # either, in the norm |theta|^2 + sum of p_k c_k^2. Thresholds are exact but for 2^-56, so the bound holds.
    model_files_agree(workspace, fixed_point_bound(workspace))
    assert assert_threshold_is_mean_of_own(workspace, "clinic-a") == (4, 4, 4)


def test_masked_rounds_of_fedminmax_give_the_model_of_the_simulation(tmp_path: Path) -> None:
    protection = {"mode": "semi-honest", "most_records": 512}
    workspace = prepare(tmp_path, small_plan(rounds=2, protection=protection, **ALGORITHMS["fedminmax"]))
    finish(workspace)
    # The adversary looks in round 1, at the same model, and its weights are exact but for the rounding of losses
    # to 2^-56. In round 2 the weights of records are fixed: both steps are of a convex, smooth objective.
    model_files_agree(workspace, fixed_point_bound(workspace))


def test_a_masked_round_of_q_ffl_gives_the_model_of_the_simulation(tmp_path: Path) -> None:
    protection = {"mode": "malicious", "most_records": 512, "clip": 1.0}
    workspace = prepare(tmp_path, small_plan(rounds=1, protection=protection, **ALGORITHMS["qffl"]))
    finish(workspace)
    # From zero every loss is that of the uniform guess, so that every curvature is 1 or more, and their sum at
    # least the weights'. Their rounding, 2^-56 a site, is far below that of the body.
    model_files_agree(workspace, fixed_point_bound(workspace))


def test_every_site_replays_the_masked_rounds_of_q_ffl(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2, protection=MASKED, **ALGORITHMS["qffl"]))
    finish(workspace)
    models = [workspace.folder / "save" / "last.safetensors"]
    models += workspace.folder.glob("runs/*/*/save/last.safetensors")
    assert len(models) == 1 + len(workspace.collaborators)
    assert len({model.read_bytes() for model in models}) == 1


@pytest.mark.parametrize(
    "protection", [{"mode": "off"}, pytest.param(MASKED, marks=pytest.mark.slow)], ids=["clear", "masked"]
)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_who_leaves_and_returns_takes_part_with_what_it_kept(
    tmp_path: Path, name: str, protection: Mapping[str, object]
) -> None:
    federation_terms = {"min_collaborators": 3, "reconnect_grace_seconds": 0}
    plan = small_plan(rounds=6, federation=federation_terms, protection=protection, names=FOUR, **ALGORITHMS[name])
    workspace = prepare(tmp_path, plan)

    assert play(workspace, one_returns).state.value == "finished"
    states_agree(workspace)
    if name == "localbpf":
        assert assert_threshold_is_mean_of_own(workspace, "clinic-b") == (6,) * 4


def test_a_site_that_has_lost_its_threshold_withdraws_in_words(tmp_path: Path) -> None:
    federation_terms = {"min_collaborators": 3, "reconnect_grace_seconds": 0}
    plan = small_plan(
        rounds=6, federation=federation_terms, protection=MASKED, names=FOUR, **ALGORITHMS["localbpf"]
    )
    workspace = prepare(tmp_path, plan)

    async def scenario(federation: Federation) -> None:
        others = await federation.without("clinic-a", 2)
        (kept,) = (tmp_path / "state").glob("clinic-a-*.variates")
        shutil.rmtree(kept)
        with pytest.raises(StateError, match=r"own threshold of round \d+ is lost"):
            await federation.take_part("clinic-a")
        await asyncio.gather(*others)

    assert play(workspace, scenario).state.value == "finished"


def test_a_site_whose_policy_does_not_allow_losses_of_groups_refuses_the_plan(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=2, protection=MASKED, **ALGORITHMS["fedminmax"]))
    plan = load_plan(workspace.plan)
    with pytest.raises(PlanError, match="reveals group-losses"):
        check_policy(AskedTerms(plan), SitePolicy(), "clinic-a")
