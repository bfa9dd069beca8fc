"""A target in its own unit over real sockets and under masks: least squares by the defaults, as simulated."""

from pathlib import Path

import numpy as np
import torch
import yaml
from sklearn.metrics import r2_score

from fedfair.aggregation.model_file import load
from fedfair.cli.loopback import prepare
from fedfair.plan.loading import load_plan
from fedfair.prediction.loaded_model import load_model
from fedfair.results.reading import read_result
from fedfair.simulation.simulate import simulate
from tests.interop.federation_kit import NAMES, Federation, play, states_agree
from tests.plans import untuned
from tests.simulation.test_targets_in_units import COLUMNS, best_r_squared, diabetes, write

MASKED = {"mode": "malicious", "most_records": 512}


def test_least_squares_is_reached_by_the_defaults_of_a_masked_federation(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    features, targets = diabetes()
    write(tmp_path, features, targets)
    csv = {"target": "y", "numeric": list(COLUMNS), "train": "table.csv"}
    plan = untuned(
        NAMES,
        task={
            "data": {"csv": csv}, "model": {"name": "linear"}, "standardize": "secure", "input_shape": [10],
            "loss": {"name": "squared", "target_range": [0, 400]}, "partition": {"scheme": "random"},
        },
        objective={"worst_group_size": 0.3, "tradeoff": 1.0},
        training={"rounds": 40, "batch_size": 256, "threshold_init": "quantile"},
        secure_aggregation=MASKED,
        evaluation={"every": 20},
    )  # fmt: skip
    workspace = prepare(tmp_path, plan)
    for site in workspace.collaborators:
        place = tmp_path / f"{site}.yaml"
        own = yaml.safe_load(place.read_text())
        place.write_text(yaml.safe_dump(own | {"data": {"train": "table.csv"}}))
    assert play(workspace, Federation.everybody).state.value == "finished"
    states_agree(workspace)
    last = tmp_path / "save" / "last.safetensors"
    model = load_model(last)
    best = best_r_squared("squared", features, targets)
    assert r2_score(targets, model.predict(features)) > best - 0.01
    scaling = model.described.saved.scaling
    assert scaling is not None
    np.testing.assert_allclose(scaling.mean[-1], targets.mean(), rtol=1e-6)
    np.testing.assert_allclose(scaling.scale[-1], targets.std(), rtol=1e-6)
    told = read_result(workspace.result)
    assert told.verdict is not None
    assert told.verdict.state == "fine"
    assert told.train is not None
    assert told.train.metrics is not None
    assert told.train.metrics["r_squared"] > best - 0.01  # type: ignore[operator]
    # Masks round every change to the steps of the ring; Adam divides by the size of the gradient.
    simulated = simulate(load_plan(workspace.plan), tmp_path)
    _, vector, words = load(last)
    np.testing.assert_allclose(vector[1:], simulated.model.vector[1:], rtol=0, atol=1e-2)
    # The targets are centred, so that the gradient of the bias, which comes first, is nothing but such rounding.
    # A bias that is off by .1 deviations costs .01 of R squared, as much as may be lost above.
    np.testing.assert_allclose(vector[0], simulated.model.vector[0], rtol=0, atol=0.1)
    np.testing.assert_allclose(float(words["threshold"]), simulated.model.threshold, rtol=1e-2)
