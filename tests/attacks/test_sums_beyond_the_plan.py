"""An aggregator that asks for sums when the plan makes none, or for one noised answer again and again.

Noise is scaled to what the plan declares about the records, and its price is told from what the plan makes due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from collaborator.ledger import Ledger
from fedfair.aggregation.requests import FeatureScaling
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import LocalProtocolError
from fedfair.run.replica import OutOfStepError
from fedfair.statistics.table import Purpose
from tests.attacks.test_policy_at_the_round import EVERY, ROUNDS, Liar, answered, refused
from tests.contributions import standardisation_of
from tests.plans import small_plan

TRAINING, EVALUATION, STANDARDISATION = Purpose.TRAINING, Purpose.EVALUATION, Purpose.STANDARDISATION
NOISE = {"sample_level": {"noise_multiplier": 4.0}}

Made = Callable[..., Liar]


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workspace]:
    torch.set_num_threads(1)
    made = {}
    for standardize, privacy in (("secure", {}), ("none", {}), ("none", NOISE)):
        plan = small_plan(rounds=ROUNDS)
        task, evaluation = plan["task"], plan["evaluation"]
        assert isinstance(task, dict)
        assert isinstance(evaluation, dict)
        plan |= {"task": {**task, "standardize": standardize}, "evaluation": {**evaluation, "every": EVERY}}
        name = "noised" if privacy else standardize
        made[name] = prepare(tmp_path_factory.mktemp(name), plan | {"privacy": privacy})
    return made


@pytest.fixture
def liar_under(workspaces: dict[str, Workspace], tmp_path: Path) -> Iterator[Made]:
    made: list[Liar] = []

    def under(name: str, **policy: object) -> Liar:
        made.append(Liar(workspaces[name], tmp_path, policy))
        return made[-1]

    yield under
    for liar in made:
        liar.answers.close()


@pytest.mark.parametrize("plan", ["none", "noised"])
def test_columns_are_summed_only_under_a_plan_that_standardises(liar_under: Made, plan: str) -> None:
    """Without a range a column has no scale, and noise for it would protect nobody, whatever the ledger says."""
    site = liar_under(plan)
    with pytest.raises(OutOfStepError, match="a state at standardisation after 0 rounds was sent, which no run"):
        site.ask(STANDARDISATION, 0)
    # What computes refuses too: it is the last that could.
    with pytest.raises(LocalProtocolError, match="columns are never summed"):
        standardisation_of(site.ready.task)


def test_columns_are_summed_before_the_first_round_and_never_again(liar_under: Made) -> None:
    site = liar_under("secure")
    assert answered(site.ask(STANDARDISATION, 0))
    with pytest.raises(OutOfStepError, match="a state at standardisation after 1 rounds was sent, which no run"):
        site.ask(STANDARDISATION, 1)


@pytest.mark.parametrize("columns", [30, 29])
def test_features_are_scaled_only_under_a_plan_that_standardises(liar_under: Made, columns: int) -> None:
    scaling = FeatureScaling(np.zeros(columns), np.full(columns, 1e300))
    sites = {plan: liar_under(plan) for plan in ("none", "secure")}
    for plan, site in sites.items():
        scaled = replace(site.state(TRAINING, 1), scaling=scaling)
        site.state = lambda *_, scaled=scaled: scaled  # type: ignore[method-assign]
        if plan == "secure" and columns == 30:
            assert answered(site.ask(TRAINING, 1))
            continue
        with pytest.raises(OutOfStepError, match="which no run of this plan comes to"):
            site.ask(TRAINING, 1)
    # What computes refuses too: it is the last that could.
    with pytest.raises(LocalProtocolError, match="nothing scales its features"):
        sites["none"].ready.task.apply_scaling(FeatureScaling(np.zeros(30), np.ones(30)))


def test_the_same_question_has_another_noise_each_time_and_so_counts_each_time(liar_under: Made) -> None:
    site = liar_under("noised", max_attempts=3)
    for _ in range(3):
        assert answered(site.ask(TRAINING, 1))
        site.restart()
    assert refused(site.ask(TRAINING, 1)) == ("max_attempts", "attempt 4", "at most 3")
    assert len(Ledger(site.ready.site.ledger_file).look()) == 3


def test_a_saved_model_is_not_judged_again_and_again_until_the_noise_averages_out(liar_under: Made) -> None:
    site = liar_under("noised", max_attempts=3)
    for run in range(3):
        assert answered(site.ask(EVALUATION, run, run=run, on_demand=True))
        site.restart()
    assert refused(site.ask(EVALUATION, 3, run=3, on_demand=True)) == ("max_attempts", "attempt 4", "at most 3")
    assert answered(site.ask(EVALUATION, 3, run=3, bit=1, on_demand=True)), "another model"


def test_runs_under_noise_are_limited_as_masked_ones_are(liar_under: Made) -> None:
    site = liar_under("noised")
    for run in range(3):
        assert answered(site.ask(TRAINING, 1, run=run))
    assert refused(site.ask(TRAINING, 1, run=3)) == ("max_runs", "run 4", "at most 3")
