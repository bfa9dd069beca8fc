import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfair.aggregation.loss_histogram import HistogramSpec, rounded_losses
from fedfair.fairness.cvar import cvar
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.loading import load_plan
from fedfair.results.document import to_json
from fedfair.run.training_run import Progress
from fedfair.simulation.backend import Engine
from fedfair.simulation.simulate import SimulationOutcome, simulate, simulate_sites
from fedfair.statistics.table import Purpose
from fedfair.training.binding import initial_model, plan_binding
from tests import bc10, plans

PLAN = """
federation: {name: demo, collaborators: [clinic-a, clinic-b, clinic-c]}
task:
  data: breast-cancer
  partition: {scheme: dirichlet, alpha: 0.5}
  test_fraction: 0.2
  validation_fraction: 0.1
  standardize: secure
  model: {name: mlp, hidden: [16]}
objective: {measure: loss, worst_group_size: 0.1, tradeoff: 0.1}
training:
  {rounds: 12, local_steps: 2, batch_size: 32, output: best, threshold_init: quantile, device: cpu,
   server_optimizer: {name: sgd}, schedule: constant, learning_rate: 0.05}
secure_aggregation: {mode: "off"}
evaluation: {every: 3}
"""


def write_plan(folder: Path, text: str = PLAN) -> Path:
    path = folder / "plan" / "plan.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def run(folder: Path, text: str = PLAN, engine: Engine = "auto") -> SimulationOutcome:
    return simulate(load_plan(write_plan(folder, text)), folder, engine=engine)


def test_a_simulation_with_every_stage_runs_to_its_result(tmp_path: Path) -> None:
    seen: list[Progress] = []
    outcome = simulate(load_plan(write_plan(tmp_path)), tmp_path, on_progress=seen.append)
    purposes = [progress.purpose for progress in seen]
    assert purposes[:2] == [Purpose.STANDARDISATION, Purpose.EVALUATION]
    assert purposes.count(Purpose.TRAINING) == 12
    assert purposes.count(Purpose.EVALUATION) == 1 + 4
    result = json.loads(json.dumps(to_json(outcome.result), allow_nan=False))
    assert result["train"]["n"] + result["validation"]["n"] + result["test"]["n"] == 569
    assert set(result["collaborators"]) == {"clinic-a", "clinic-b", "clinic-c"}
    assert result["threshold"] == outcome.model.threshold
    assert outcome.layout.dimension == outcome.model.vector.size == 30 * 16 + 16 + 16 * 2 + 2


def test_two_simulations_of_one_plan_give_the_same_bytes_and_another_seed_another_model(tmp_path: Path) -> None:
    one, other = run(tmp_path), run(tmp_path)
    assert one.model.vector.tobytes() == other.model.vector.tobytes()
    timeless = [
        {key: value for key, value in to_json(outcome.result).items() if key != "timing"}
        for outcome in (one, other)
    ]
    assert timeless[0] == timeless[1]
    other = run(tmp_path, PLAN.replace("rounds: 12", "rounds: 12, seed: 1"))
    assert run(tmp_path).model.vector.tobytes() != other.model.vector.tobytes()


def test_the_figures_of_a_result_are_exact() -> None:
    plan = bc10.plan(3, rounds=30)
    outcome = simulate_sites(plan, bc10.sites(bc10.random_thirds()), Path(), engine="loop")
    federation = bc10.Federation(plan, bc10.sites(bc10.random_thirds()))
    model = federation.run()
    losses = federation.losses()
    assert outcome.model.vector.tobytes() == model.vector.tobytes()
    train = to_json(outcome.result)["train"]
    objective = to_json(outcome.result)["objective"]
    assert isinstance(train, dict)
    assert isinstance(objective, dict)
    assert train["mean"] == pytest.approx(losses.mean(), rel=1e-13)
    assert train["by_group_size"]["0.3"]["worst"] == pytest.approx(cvar(losses, 0.3), rel=1e-13)
    assert objective["rcvar"] == pytest.approx(0.9 * cvar(losses, 0.3) + 0.1 * losses.mean(), rel=1e-13)
    # The smoothed objective is known from the sum alone, over rounded losses.
    losses = rounded_losses(losses, HistogramSpec(plan.evaluation.bins, 8 * math.log(2)))
    smoothed = (
        0.9 * (model.threshold + np.logaddexp(0, (losses - model.threshold) / 0.05) * 0.05 / 0.3) + 0.1 * losses
    )
    assert objective["smoothed"] == pytest.approx(smoothed.mean(), rel=1e-13)


@pytest.mark.parametrize("output", ["last", "best"])
def test_the_history_of_a_simulation_is_exact_however_coarse_its_histogram(tmp_path: Path, output: str) -> None:
    coarse = PLAN.replace("every: 3", "every: 5, bins: 8").replace("output: best", f"output: {output}")
    fine = coarse.replace("bins: 8", "bins: 4096")
    histories = [to_json(run(tmp_path, text).result)["history"] for text in (coarse, fine)]
    assert isinstance(histories[0], list)
    assert [entry["round"] for entry in histories[0]] == [0, 5, 10, 12]
    # The first threshold is learnt from the histogram, so the two runs part after round 0.
    assert histories[0][0]["train"]["worst"] == histories[1][0]["train"]["worst"]
    if output == "last":
        result = to_json(run(tmp_path, coarse).result)
        for split in ("train", "validation", "test"):
            final = result[split]
            assert isinstance(final, dict)
            assert histories[0][-1][split]["worst"] == final["by_group_size"]["0.1"]["worst"]


def test_masks_that_clip_nothing_change_nothing_and_a_result_reports_its_binding(tmp_path: Path) -> None:
    plain, masked = PLAN, PLAN.replace('mode: "off"', "mode: malicious")
    alone = [run(tmp_path, text, engine="loop").model.vector for text in (plain, masked)]
    assert alone[0].tobytes() == alone[1].tobytes()
    # All at once, changes that may be clipped are added up in another order: 12 steps of at most 100 roundings.
    together = [run(tmp_path, text, engine="vectorised").model.vector for text in (plain, masked)]
    np.testing.assert_allclose(together[1], together[0], rtol=0, atol=12 * 100 * 2.0**-24)
    outcome = run(tmp_path)
    binding = plan_binding(load_plan(write_plan(tmp_path)), tmp_path)
    assert to_json(outcome.result)["plan_digest"] == "sha256:" + binding.digest.hex()


def test_the_initial_model_is_a_function_of_the_plan_alone_and_is_judged_at_log_of_classes() -> None:
    plan = plans.parsed(task={"data": "digits", "model": {"name": "mlp", "hidden": [4]}})
    schema = FeatureSchema((64,), 10)
    torch.manual_seed(1)
    first = initial_model(plan, schema, Path())
    torch.manual_seed(2)
    second = initial_model(plan, schema, Path())
    assert first[1].tobytes() == second[1].tobytes()
    outcome = simulate_sites(bc10.plan(1, rounds=1), bc10.sites(bc10.everybody()), Path())
    history = to_json(outcome.result)["history"]
    assert isinstance(history, list)
    assert history[0]["train"]["mean"] == pytest.approx(np.log(2), rel=1e-14)
    assert history[0]["train"]["worst"] == pytest.approx(np.log(2), rel=1e-14)
    assert to_json(outcome.result)["uniform_floor"] == np.log(2)
