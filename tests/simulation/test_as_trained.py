"""A study compares what algorithms come to; a user gets no model that is worse than one the run had."""

from __future__ import annotations

from pathlib import Path

import torch

from fedfair.simulation.simulate import simulate_sites
from tests import bc10

torch.set_num_threads(1)


def test_a_study_gets_what_training_ends_with_and_a_user_the_better_model_before_it() -> None:
    parts = bc10.random_thirds()
    # So large a step leaves the worst tenth worse off than guessing, from which training begins.
    plan = bc10.plan(3, rounds=1, learning_rate=300.0, threshold_init=0.7, objective={"worst_group_size": 0.1})
    kept = simulate_sites(plan, bc10.sites(parts), Path())
    trained = simulate_sites(plan, bc10.sites(parts), Path(), as_trained=True)
    assert not kept.model.vector.any()
    assert trained.model.vector.all()
    assert trained.result.trained.worst_risk(0.1) > kept.result.trained.worst_risk(0.1)
