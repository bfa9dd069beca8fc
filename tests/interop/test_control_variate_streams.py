"""Whole federations with control variates over real sockets: the model of the simulation, whoever drops out."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from fedfair.cli.loopback import prepare
from fedfair.errors import StateError
from tests.interop.counted_variates import assert_sites_add_up
from tests.interop.federation_kit import FIVE, Federation, model_files_agree, one_returns, play, states_agree
from tests.interop.test_masked_streams import fixed_point_bound
from tests.plans import small_plan

FOUR = FIVE[:4]
CORRECTED: Mapping[str, object] = {"control_variates": True, "local_steps": 4, "precision": "fp64"}
ROUNDING = 1e-12
"""Of V in float64 over a few rounds, whose numbers are below 10, divided by a pace of a fifth."""


def test_a_run_in_the_clear_gives_the_model_of_the_simulation_and_a_new_one_begins_with_variates_of_zero(
    tmp_path: Path,
) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=4, **CORRECTED))
    assert play(workspace, Federation.everybody).state.value == "finished"
    # The loop adds in the order of the plan, the aggregator in that of arrival; vectorised sums differ likewise.
    deployed, simulated = (result["traffic"] for result in model_files_agree(workspace, 1e-12))
    assert isinstance(deployed, dict)
    assert isinstance(simulated, dict)
    assert deployed["bytes_up"] == simulated["bytes_up"]
    states_agree(workspace)
    assert assert_sites_add_up(workspace, "clinic-a", ROUNDING) == (4, 4, 4)
    assert play(workspace, Federation.everybody, fresh=True).state.value == "finished"
    assert assert_sites_add_up(workspace, "clinic-a", ROUNDING) == (4, 4, 4)


@pytest.mark.parametrize(
    ("terms", "precision"),
    [
        ({"mode": "malicious", "ring_bits": 16, "clip": 0.02}, "fp64"),
        ({"mode": "semi-honest", "ring_bits": 20}, "fp32"),
    ],
)
def test_a_masked_run_counts_what_sites_really_added(
    tmp_path: Path, terms: dict[str, object], precision: str
) -> None:
    protection = {"most_records": 512, **terms}
    plan = small_plan(rounds=3, protection=protection, **{**CORRECTED, "precision": precision})
    workspace = prepare(tmp_path, plan)
    assert play(workspace, Federation.everybody).state.value == "finished"
    states_agree(workspace)
    # With 16 bits a step of the ring is a thousandth of the clip; V follows the sites all the same. A total in
    # float32 is off by a relative 2^-24 each round.
    tolerance = ROUNDING if precision == "fp64" else 4 * 10 * 2.0**-24
    assert assert_sites_add_up(workspace, "clinic-a", tolerance) == (3, 3, 3)


def test_a_masked_run_gives_the_model_of_the_simulation(tmp_path: Path) -> None:
    protection = {"mode": "malicious", "most_records": 512}
    workspace = prepare(tmp_path, small_plan(rounds=3, protection=protection, **CORRECTED))
    assert play(workspace, Federation.everybody).state.value == "finished"
    # A round's error enters the next one's correction once more: a factor of 4 covers both.
    model_files_agree(workspace, 4 * fixed_point_bound(workspace))


@pytest.mark.parametrize(
    "protection",
    [{"mode": "off"}, pytest.param({"mode": "malicious", "most_records": 512}, marks=pytest.mark.slow)],
)
def test_who_leaves_and_returns_keeps_its_variate(tmp_path: Path, protection: dict[str, object]) -> None:
    federation_terms = {"min_collaborators": 3, "reconnect_grace_seconds": 0}
    plan = small_plan(
        rounds=6, federation=federation_terms, protection=protection, names=FOUR, learning_rate=0.02, **CORRECTED
    )
    workspace = prepare(tmp_path, plan)

    assert play(workspace, one_returns).state.value == "finished"
    states_agree(workspace)
    assert assert_sites_add_up(workspace, "clinic-b", 10 * ROUNDING) == (6,) * 4


def test_a_site_that_has_lost_its_variate_withdraws_in_words(tmp_path: Path) -> None:
    federation_terms = {"min_collaborators": 3, "reconnect_grace_seconds": 0}
    plan = small_plan(rounds=6, federation=federation_terms, names=FOUR, learning_rate=0.02, **CORRECTED)
    workspace = prepare(tmp_path, plan)

    async def scenario(federation: Federation) -> None:
        others = await federation.without("clinic-a", 2)
        (kept,) = (tmp_path / "state").glob("clinic-a-*.variates")
        shutil.rmtree(kept)
        with pytest.raises(StateError, match=r"the control variate of round \d+ is lost") as fault:
            await federation.take_part("clinic-a")
        assert "--fresh" in fault.value.remedy
        await asyncio.gather(*others)
        assert any("lost what it must remember of the run" in note for note in federation.watching.notes)

    assert play(workspace, scenario).state.value == "finished"
