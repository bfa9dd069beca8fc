"""The references on pooled records: one place to train, each site's own figures, and the contract of a result."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedfair.plan.algorithms import ALGORITHMS
from fedfair.plan.loading import load_plan
from fedfair.results.document import to_json
from fedfair.results.risks import SplitRisk
from fedfair.simulation.centralised.pooled import pool, pooled_losses
from fedfair.simulation.simulate import simulate, simulate_sites
from tests import bc10
from tests.oracles.erm import descend_mean
from tests.simulation import algorithm_runs as runs

CENTRALISED = ["erm", "dro", "bpf"]

PLAN = """
federation: {name: demo, collaborators: [clinic-a, clinic-b, clinic-c]}
task:
  data: breast-cancer
  partition: {scheme: label}
  test_fraction: 0.2
  standardize: secure
  model: {name: mlp, hidden: [8]}
objective: {measure: loss, worst_group_size: 0.2, tradeoff: 0.1}
training: {algorithm: ALGORITHM, rounds: 8, batch_size: 32, device: cpu, output: average}
evaluation: {every: 4}
"""


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_algorithm_gives_the_same_result_file(tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / "plan.yaml"
    text = PLAN.replace("scheme: label", "scheme: dirichlet, alpha: 0.5").replace("ALGORITHM", algorithm)
    path.write_text(text)
    result = json.loads(json.dumps(to_json(simulate(load_plan(path), tmp_path).result), allow_nan=False))
    assert result["format"] == "fedfair/result/1"
    assert result["algorithm"] == algorithm
    assert result["centralised"] is (algorithm in CENTRALISED)
    assert set(result["collaborators"]) == {"clinic-a", "clinic-b", "clinic-c"}
    assert [entry["round"] for entry in result["history"]] == [0, 4, 8]
    assert result["train"]["n"] + result["test"]["n"] == 569
    assert result["train"]["mean"] < result["history"][0]["train"]["mean"]


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_erm_in_full_batches_is_descent_on_every_sites_records(engine: str) -> None:
    plan = bc10.plan(2, algorithm="erm", rounds=20, learning_rate=0.5)
    outcome = simulate_sites(plan, bc10.sites(bc10.by_class()), Path(), engine=engine)  # type: ignore[arg-type]
    model = bc10.Federation(bc10.plan(1), bc10.sites(bc10.everybody())).flat
    descend_mean(model, *bc10.pooled(), steps=20, learning_rate=0.5)
    np.testing.assert_allclose(outcome.model.vector, model.vector(), rtol=0, atol=1e-12)


def without_mixture(risk: SplitRisk) -> SplitRisk:
    return risk.model_copy(update={"hedged": None})


@pytest.mark.parametrize("algorithm", CENTRALISED)
def test_who_held_a_record_plays_no_part(algorithm: str) -> None:
    one, three = (
        simulate_sites(bc10.plan(len(parts), algorithm=algorithm), bc10.sites(parts), Path(), engine="loop")
        for parts in (bc10.everybody(), np.split(np.arange(len(bc10.dataset())), [40, 200]))
    )
    np.testing.assert_array_equal(one.model.vector, three.model.vector)
    # Only the sums of losses in a bin are of another order.
    assert one.result.train.hedged == pytest.approx(three.result.train.hedged, rel=1e-12)
    assert without_mixture(one.result.train) == without_mixture(three.result.train)


def test_batches_are_drawn_from_all_records_and_losses_lie_as_the_records_do() -> None:
    """A federated step draws a batch at each site; with one class each, it could not mix the classes so."""
    plan = bc10.plan(2, algorithm="erm", batch_size=16)
    cohort = runs.cohort_of(plan, bc10.by_class())
    assert cohort.counts.tolist() == [569]
    assert len(cohort.names) == 2
    parts = bc10.random_thirds()
    data = bc10.sites(parts)
    plan = bc10.plan(3, algorithm="dro")
    model = runs.rounds_of(plan, parts, 3)[-1]
    found = pooled_losses(runs.cohort_of(plan, parts), model)
    whole = bc10.Federation(bc10.plan(1), bc10.sites([np.concatenate(parts)]))
    whole.training_run.model.vector[:] = model.vector
    np.testing.assert_array_equal(found, whole.losses())
    np.testing.assert_array_equal(
        pool(splits.train for splits in data.values()).labels, bc10.dataset().labels[np.concatenate(parts)]
    )
