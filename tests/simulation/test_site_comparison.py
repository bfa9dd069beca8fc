"""A site compares the federated model with what it could have alone, and fine-tunes it where that helps."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import collaborator.commands
from collaborator.known_models import ModelPlaces
from fedfair.errors import DataError
from fedfair.fairness.metrics import group_risk
from fedfair.ids import ParticipantId
from fedfair.plan.initial import ContinuedSection, InitialSection
from fedfair.prediction.loaded_model import load_model
from fedfair.results.outcome import RunSubject
from fedfair.run.saved_model import read_saved, save_model
from fedfair.simulation.personalisation import FineTuning, personalise
from fedfair.simulation.site_comparison import (
    FEDERATED,
    LOCAL,
    LOGISTIC,
    compare_at_site,
    local_plan,
    logistic_losses,
)
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.source import load_federation
from tests import plans
from tests.prediction.saved_runs import SavedRun, approved_run
from tests.rounding import rounding

SITE = ParticipantId("clinic-a")
SIZES = (0.05, 0.1, 0.2, 0.3, 0.5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    task = {
        "partition": {"scheme": "random"}, "standardize": "secure", "test_fraction": 0.3,
        "validation_fraction": 0.3,
    }  # fmt: skip
    training = {"rounds": 6, "local_steps": 2, "learning_rate": 0.02}
    values = plans.stated(task=task, objective={"worst_group_size": 0.5, "tradeoff": 0.9}, training=training)
    made = approved_run(tmp_path_factory.mktemp("sites"), values)
    site = {"collaborator": str(SITE)}
    (made.workspace / "collaborator.yaml").write_text(yaml.safe_dump(site))
    return made


def own(run: SavedRun) -> Splits:
    return load_federation(run.plan, run.workspace)[SITE]


def test_the_federated_model_and_the_logistic_regression_are_those_of_both_references(run: SavedRun) -> None:
    found = compare_at_site(run.plan, SITE, own(run), run.workspace, run.model)
    losses = run.losses(SITE, "test")
    assert (found.split, found.group_sizes, found.omitted) == ("test", tuple(sorted({*SIZES})), ())
    assert list(found.risks) == [FEDERATED, LOCAL, LOGISTIC]
    for size, risk in found.risks[FEDERATED].by_group_size.items():
        assert risk.worst == pytest.approx(group_risk(losses, size).worst, abs=1e-9)
    assert found.risks[LOCAL].mean != found.risks[FEDERATED].mean
    assert found.records(0.1) == int(np.ceil(0.1 * len(losses)))
    splits = own(run)
    assert splits.test is not None
    train, test = splits.train, splits.test
    mean, deviation = train.features.mean(axis=0), train.features.std(axis=0)
    model = LogisticRegression(max_iter=1000).fit((train.features - mean) / deviation, train.labels)
    chances = model.predict_proba((test.features - mean) / deviation)
    losses, correct = logistic_losses(train, test)
    assert losses == pytest.approx(-np.log(chances[np.arange(len(test)), test.labels]), abs=1e-6)
    assert correct.mean() == model.score((test.features - mean) / deviation, test.labels)


def test_what_is_compared_is_printed_and_small_sites_are_told_so(run: SavedRun) -> None:
    splits = own(run)
    one = splits.train.take(np.flatnonzero(splits.train.labels == 1))
    found = compare_at_site(run.plan, SITE, replace(splits, train=one), run.workspace, run.model)
    assert LOGISTIC not in found.risks
    assert found.omitted == ("no logistic regression: all training records of this site are of one class",)
    with pytest.raises(DataError, match="holds no records out"):
        compare_at_site(run.plan, SITE, Splits(splits.train), run.workspace, run.model)
    before = sorted(run.workspace.rglob("*"))
    words = ["compare", "-c", str(run.workspace / "collaborator.yaml"), "-p", str(run.plan_file)]
    done = CliRunner().invoke(collaborator.commands.app, [*words, "--model", str(run.model), "--json"])
    assert done.exit_code == 0, done.exception
    told = json.loads(done.stdout)
    assert told["models"][FEDERATED]["mean"] == pytest.approx(run.losses(SITE, "test").mean(), abs=1e-9)
    assert sorted(run.workspace.rglob("*")) == before


def test_a_fine_tuned_model_is_kept_where_the_worst_validation_records_gain(run: SavedRun, tmp_path: Path) -> None:
    found = personalise(
        run.plan, SITE, own(run), run.workspace, run.model, FineTuning(rounds=100, learning_rate=0.05)
    )
    assert found.round > 0
    validation = found.worst["validation"]
    assert validation.after < validation.before == group_risk(run.losses(SITE, "validation"), 0.1).worst
    path = tmp_path / "own.safetensors"
    save_model(path, found.layout, found.model, found.origin)
    assert read_saved(path).origin.fine_tuned_at == SITE
    model, test = load_model(path), own(run).test
    assert isinstance(test, Dataset)
    losses = -np.log(model.predict_proba(test.features)[np.arange(len(test)), test.labels])
    assert group_risk(losses, 0.1).worst == pytest.approx(found.worst["test"].after, abs=rounding(1e-9))


def test_a_model_without_gain_or_validation_records_is_not_kept(run: SavedRun, tmp_path: Path) -> None:
    output = tmp_path / "own.safetensors"
    words = ["personalise", "-c", str(run.workspace / "collaborator.yaml"), "-p", str(run.plan_file)]
    more = ["--model", str(run.model), "--output", str(output), "--rounds", "2", "--learning-rate", "1e30"]
    done = CliRunner().invoke(collaborator.commands.app, [*words, *more])
    assert done.exit_code == 0, done.exception
    assert "never gained, so nothing was written" in " ".join(done.stdout.split())
    assert not output.exists()
    with pytest.raises(DataError, match="has no validation records"):
        personalise(run.plan, SITE, Splits(own(run).train), run.workspace, run.model, FineTuning())


def test_a_fine_tuned_model_is_no_model_of_the_federation(run: SavedRun, tmp_path: Path) -> None:
    found = personalise(run.plan, SITE, own(run), run.workspace, run.model, FineTuning(rounds=1))
    path = tmp_path / "own.safetensors"
    save_model(path, found.layout, found.model, found.origin)
    subject = RunSubject(run.plan, found.origin.plan_digest, found.layout, own(run).train.schema)
    with pytest.raises(DataError, match="was fine-tuned at clinic-a"):
        ModelPlaces(SITE, tmp_path, tmp_path, subject).load(path)


def test_a_plan_that_extends_a_run_is_compared_as_that_run_was(run: SavedRun) -> None:
    # The state that an extended plan names is the federation's, and fits no plan of one site.
    continues = ContinuedSection(plans=("sha256:" + "0f" * 32,), rounds=3, state="sha256:" + "1e" * 32)
    initial = InitialSection(weights="sha256:" + "2d" * 32, continues=continues)
    extended = run.plan.model_copy(update={"training": run.plan.training.model_copy(update={"initial": initial})})
    assert local_plan(extended, SITE) == local_plan(run.plan, SITE)
    pretrained = InitialSection(weights="sha256:" + "2d" * 32)
    kept = run.plan.model_copy(update={"training": run.plan.training.model_copy(update={"initial": pretrained})})
    assert local_plan(kept, SITE).training.initial == pretrained
