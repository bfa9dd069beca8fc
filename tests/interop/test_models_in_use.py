"""A model that a federation has deployed is used at a clinic alone, and says there what the run said of it."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from collaborator.site_records import site_records
from fedfair.cli.commands import app
from fedfair.cli.loopback import Workspace, prepare
from fedfair.ids import ParticipantId
from fedfair.plan.loading import load_plan
from fedfair.results.reading import read_result
from fedfair.simulation.evaluate import evaluate_sites
from fedfair.simulation.simulate import simulate_sites
from tests import plans
from tests.interop.federation_kit import Federation, play
from tests.plans import NAMES

MASKED = {"mode": "malicious", "most_records": 512}
TABLE = {
    "label": "died",
    "label_values": ["no", "yes"],
    "numeric": ["age", "pressure"],
    "ranges": {"age": [0, 120], "pressure": [0, 300]},
    "categorical": {"ward": ["A", "B"]},
    "missing": "mean",
    "missing_of": {"ward": "own"},
}


def deployed(folder: Path) -> Workspace:
    """Run a masked federation of three clinics, each with a file of its own, to its end."""
    task = {
        "data": {"csv": TABLE},
        "partition": None,
        "test_fraction": 0.3,
        "standardize": "secure",
        "model": {"name": "mlp", "hidden": [4]},
    }
    plan = plans.over(plans.small_plan(rounds=4, protection=MASKED, output="last"), task=task)
    workspace = prepare(folder, plan)
    draws = np.random.default_rng(6)
    for name in NAMES:
        rows = []
        for age in draws.integers(20, 100, 80):
            ward, pressure = ("A", "B", "C", "")[draws.integers(4)], draws.integers(80, 200)
            died = "yes" if age + draws.normal() * 15 > 60 else "no"
            rows.append(f"{age},{'?' if draws.random() < 0.1 else pressure},{ward},{died}")
        (folder / f"{name}.csv").write_text("\n".join(["age,pressure,ward,died", *rows]) + "\n")
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "data": {"train": f"{name}.csv"}}))

    play(workspace, Federation.everybody)
    return workspace


def test_a_clinic_alone_evaluates_and_predicts_as_the_deployed_run_and_its_simulation_did(tmp_path: Path) -> None:
    workspace = deployed(tmp_path)
    model = tmp_path / "save" / "last.safetensors"
    plan = load_plan(workspace.plan)
    result = json.loads(workspace.result.read_text())
    own = {name: site_records(tmp_path / f"{name}.yaml", workspace.plan, model) for name in NAMES}
    sites = {ParticipantId(name): found.splits for name, found in own.items()}
    simulated = simulate_sites(plan, sites, tmp_path)
    means, counts = [], []
    for name in NAMES:
        told = tmp_path / f"own-{name}.json"
        words = [
            "evaluate",
            "-c",
            str(tmp_path / f"{name}.yaml"),
            "-p",
            str(workspace.plan),
            "--model",
            str(model),
        ]
        done = CliRunner().invoke(app, [*words, "--output", str(told), "-q"])
        assert done.exit_code == 0, done.exception
        found = read_result(told).test
        assert found is not None
        means.append(found.mean)
        counts.append(found.n)
        # Its simulation, whose model is the deployed one up to the rounding of masked sums.
        assert found.mean == pytest.approx(simulated.losses[ParticipantId(name)]["test"].values.mean(), abs=1e-4)
        # The same records, from the raw file and the model's file alone.
        output = tmp_path / f"predicted-{name}.csv"
        words = [
            "predict",
            "--model",
            str(model),
            "--data",
            str(tmp_path / f"{name}.csv"),
            "--output",
            str(output),
        ]
        assert CliRunner().invoke(app, words).exit_code == 0
        with (tmp_path / f"{name}.csv").open() as truths, output.open() as predictions:
            pairs = zip(csv.DictReader(truths), csv.DictReader(predictions), strict=True)
            losses = [-np.log(float(made[f"probability_{truth['died']}"])) for truth, made in pairs]
        site = {ParticipantId(name): sites[ParticipantId(name)]}
        evaluated = evaluate_sites(plan, tmp_path, site, model, exact=False).losses[ParticipantId(name)]
        both = np.concatenate([evaluated[split].values for split in ("train", "test")])
        assert np.sort(losses) == pytest.approx(np.sort(both), abs=1e-6)
    # What the aggregator made of masked sums is the mean of what the clinics find alone.
    assert sum(counts) == result["test"]["n"]
    # The aggregator's losses were rounded to an eighth of a bin, at the sites.
    step = 8.0 * math.log(2) / (256 * 8)
    assert np.average(means, weights=counts) == pytest.approx(result["test"]["mean"], abs=0.5 * step + 1e-6)
