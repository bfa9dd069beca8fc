"""Simulations from Python: of plans, of arrays by site, and the evaluation of their model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from fedfair.api.simulation import SimulatedFederation, UntrainedModelWarning, simulate
from fedfair.errors import DataError, FedfairError, PlanError
from fedfair.fairness.worst_group import worst_group_risk
from fedfair.plan.loading import load_plan
from fedfair.prediction.loaded_model import load_model
from fedfair.simulation.simulate import simulate as simulate_plan
from fedfair.tables.source import load_federation
from tests.plans import parsed
from tests.rounding import rounding

Array = NDArray[Any]
SHORT = {"rounds": 20, "output": "last"}

FEW_SUMS = {"reference": {"rounds": 10}}
"""The default, the excess, with references that are soon trained."""

BY_LOSS = {"measure": "loss"}
"""Without the references of the excess, where it does not matter what is measured."""

PLAN = """\
federation: {name: heart, collaborators: [clinic-a, clinic-b]}
task:
  data: {csv: {label: outcome, label_values: [well, ill], numeric: [age, dose], train: data/all.csv,
               collaborator: site}}
  test_fraction: 0.25
  standardize: secure
  model: {name: linear}
objective: {measure: loss}
training: {rounds: 10, threshold_init: bound}
"""


def clinics(count: int = 3) -> dict[str, tuple[Array, Array]]:
    features, labels = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    parts = np.array_split(order, count)
    return {f"clinic-{name}": (features[part], labels[part]) for name, part in zip("abcd", parts, strict=False)}


@pytest.fixture(scope="module")
def outcome() -> SimulatedFederation:
    return simulate(clinics(), task={"test_fraction": 0.2}, training=SHORT, objective=FEW_SUMS)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    draw = np.random.default_rng(1)
    age, dose = draw.normal(50, 10, 80), draw.normal(size=80)
    table = pd.DataFrame(
        {
            "age": age.round(1), "dose": dose.round(3), "outcome": np.where(age + 8 * dose > 50, "ill", "well"),
            "site": np.where(np.arange(80) < 50, "clinic-a", "clinic-b"),
        }
    )  # fmt: skip
    (tmp_path / "plan").mkdir()
    (tmp_path / "data").mkdir()
    table.to_csv(tmp_path / "data" / "all.csv", index=False)
    (tmp_path / "plan" / "plan.yaml").write_text(PLAN)
    return tmp_path


def test_evaluations_are_of_the_scores_or_of_the_held_out_records(outcome: SimulatedFederation) -> None:
    features, labels = load_breast_cancer(return_X_y=True)
    chances = outcome.model.scores(features)[np.arange(len(labels)), labels]
    losses = outcome.record_losses(features, labels)
    np.testing.assert_allclose(losses, -np.log(chances), atol=rounding(1e-9))
    risks = outcome.evaluate(features, labels, group_sizes=[0.1, 1.0])
    assert risks.count == len(labels)
    assert risks.mean == pytest.approx(losses.mean())
    assert risks.by_group_size[0.1].worst == pytest.approx(worst_group_risk(losses, 0.1))
    risks, test = outcome.evaluate(), outcome.result.test
    assert test is not None
    assert (risks.count, risks.mean, risks.accuracy) == (test.n, test.mean, test.accuracy)
    with pytest.raises(DataError, match="features without labels"):
        outcome.evaluate(np.zeros((1, 30)))


def test_arrays_become_a_model_that_predicts_and_is_saved(outcome: SimulatedFederation, tmp_path: Path) -> None:
    features, labels = load_breast_cancer(return_X_y=True)
    assert outcome.result.setting == "simulation"
    assert outcome.result.test is not None
    assert outcome.result.test.n == pytest.approx(0.2 * len(labels), abs=3)
    model = outcome.model
    assert model.classes == (0, 1)
    assert (model.predict(features) == labels).mean() > 0.94
    assert outcome.plan.federation.collaborators == ("clinic-a", "clinic-b", "clinic-c")
    features, _ = load_breast_cancer(return_X_y=True)
    outcome.save(tmp_path / "model.safetensors")
    read = load_model(tmp_path / "model.safetensors")
    assert np.array_equal(read.predict_proba(features), outcome.model.predict_proba(features))
    assert outcome.plan.evaluation.scores
    assert outcome.model.is_calibrated
    chances = outcome.model.predict_proba(features)
    assert not np.array_equal(chances, outcome.model.scores(features))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-12)


def test_a_plan_runs_as_the_command(workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    plan = load_plan(workspace / "plan" / "plan.yaml")
    assert plan.workspace == workspace
    found, expected = simulate(plan), simulate_plan(plan, workspace)
    for field in ("plan_digest", "threshold", "train", "test", "objective"):
        assert getattr(found.result, field) == getattr(expected.result, field), field
    assert simulate(str(workspace / "plan" / "plan.yaml")).result.test == found.result.test
    held = load_federation(plan, workspace)
    features = np.concatenate([site.test.features for site in held.values() if site.test is not None])
    labels = np.concatenate([site.test.labels for site in held.values() if site.test is not None])
    again = found.evaluate(features, np.array(["well", "ill"])[labels])
    assert again.mean == pytest.approx(found.evaluate().mean, abs=1e-12)


def test_arrays_by_a_plan_are_the_plans_own_simulation(workspace: Path) -> None:
    table = pd.read_csv(workspace / "data" / "all.csv")
    sites = {
        str(name): (rows[["dose", "age"]], rows["outcome"]) for name, rows in table.groupby("site", sort=False)
    }
    plan = workspace / "plan" / "plan.yaml"
    assert simulate(sites, plan).result.train == simulate(plan).result.train


def test_texts_tables_and_tensors_are_taken() -> None:
    features, labels = load_breast_cancer(return_X_y=True)
    names = np.array(["malignant", "benign"])[labels]
    table = pd.DataFrame(features[:, :3], columns=["radius", "texture", "perimeter"])
    found = simulate(
        {
            "a": (table[:300], pd.Series(names[:300], name="diagnosis")),
            "b": (table[300:], names[300:].astype(object)),
        },
        training=SHORT,
        objective=BY_LOSS,
    )
    assert found.model.columns == ("radius", "texture", "perimeter")
    assert found.model.classes == ("benign", "malignant")
    assert set(found.model.predict(table[::-1])) == {"benign", "malignant"}
    shuffled = table[["texture", "radius", "perimeter"]]
    assert found.evaluate(shuffled, names).mean == found.evaluate(table, names).mean
    tensors = simulate(
        {"a": (torch.tensor(features), torch.tensor(labels, dtype=torch.float32))},
        training=SHORT,
        objective=BY_LOSS,
    )
    assert tensors.model.classes == (0, 1)


def _changed(change: Callable[[Array, Array], tuple[Any, Any]]) -> dict[str, Any]:
    sites: dict[str, Any] = clinics()
    sites["clinic-b"] = change(*sites["clinic-b"])
    return sites


def _with(features: Array, value: float) -> Array:
    changed = features.copy()
    changed[5, 2] = value
    return changed


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        ({}, "there are no sites"),
        ([(1, 2)], "list is neither a plan"),
        ({7: (np.zeros((2, 2)), [0, 1])}, "7 is no name of a site"),
        ({"Clinic A": (np.zeros((2, 2)), [0, 1])}, "'Clinic A' is not usable"),
        (_changed(lambda x, _: x), "clinic-b: the records are ndarray"),
        (_changed(lambda x, y: (x, y, y)), "clinic-b: the records are tuple of 3"),
        (_changed(lambda x, y: (x[:, 0], y)), r"clinic-b: the features have shape \(190,\)"),
        (_changed(lambda x, y: (x, y[:-1])), r"clinic-b: .*shape \(190, 30\) and the labels \(189,\)"),
        (_changed(lambda x, y: (x, y.reshape(-1, 1))), r"the labels \(190, 1\)"),
        (_changed(lambda x, y: (x[:0], y[:0])), "clinic-b: there are no records"),
        (_changed(lambda x, y: (x[:, :0], y)), "clinic-b: the features have no columns"),
        (_changed(lambda x, y: (x[:, :9], y)), r"clinic-b: a record has shape \(9,\), one of clinic-a has"),
        (_changed(lambda x, y: (_with(x, np.nan), y)), "clinic-b: 1 values are NaN .* column 2 of record 5"),
        (_changed(lambda x, y: (_with(x, -np.inf), y)), "clinic-b: 1 values are NaN or infinite"),
        (_changed(lambda x, y: (x.astype(str), y)), "clinic-b: the features are of type <U"),
        (_changed(lambda x, y: (x, y + 0.5)), "clinic-b: a label is 0.5, and labels are classes"),
        (_changed(lambda x, y: (x, np.where(y > 0, np.nan, 0.0))), "clinic-b: a label is nan"),
        (_changed(lambda x, y: (x, y.astype(str))), "the labels of clinic-a are numbers and those of clinic-b"),
        (_changed(lambda x, y: (x, [None] * len(y))), "clinic-b: the labels are of type NoneType"),
        (_changed(lambda x, y: ([*x.tolist()[:-1], [1.0]], y)), "clinic-b: the features are no array"),
        (_changed(lambda x, y: {"test": (x, y)}), "clinic-b: there are no training records"),
        (_changed(lambda x, y: {"train": (x, y), "dev": (x, y)}), "clinic-b: 'dev' is no split"),
        ({"a": (np.zeros((3, 2)), [1, 1, 1])}, "every label of every site is 1"),
        (_changed(lambda x, y: (pd.DataFrame(x).astype(object), y)), "clinic-b: column '0' is of type object"),
    ],
)
def test_records_that_are_none_are_refused_in_one_sentence(sites: Any, words: str) -> None:  # noqa: ANN401
    with pytest.raises(FedfairError, match=words) as fault:
        simulate(sites)
    assert "\n" not in fault.value.message


def test_a_simulation_that_returns_the_untrained_model_warns() -> None:
    # Labels that no feature tells anything of.
    noise = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    with pytest.warns(UntrainedModelWarning, match="the untrained model: no trained one was better"):
        found = simulate({"a": noise}, training={"rounds": 20, "output": "best"}, objective=FEW_SUMS)
    assert found.result.model is not None
    assert found.result.model.round == 0
    # Any other warning than that one is an error in these tests.
    simulate({"a": noise}, training=SHORT, objective=BY_LOSS)
    simulate(clinics(), training={"rounds": 20, "output": "best"}, objective=FEW_SUMS)


def test_a_label_that_only_one_site_has_and_none_beside_all_others_is_refused() -> None:
    features = np.random.default_rng(0).normal(size=(20, 2))
    words = np.where(np.arange(20) % 2, "ja", "nein")
    slip = np.where(np.arange(20) % 2, "ja", "not")
    with pytest.raises(DataError, match="b has the labels 'not', which a has not: it has 'ja', 'nein'") as fault:
        simulate({"a": (features, words), "b": (features, slip)}, training=SHORT, objective=BY_LOSS)
    assert "correct the labels" in fault.value.remedy
    # A site with fewer classes is nothing strange, and stated classes need no site that has all.
    simulate({"a": (features, words), "b": (features, np.full(20, "ja"))}, training=SHORT, objective=BY_LOSS)
    halves = {"a": (features, np.arange(20) % 2), "b": (features, 2 + np.arange(20) % 2)}
    with pytest.raises(DataError, match="b has the labels 2, 3"):
        simulate(halves, training=SHORT, objective=BY_LOSS)
    assert simulate(halves, training=SHORT, objective=BY_LOSS, task={"classes": 4}).model.classes == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"training": {"round": 3}}, r"simulate: training\.round.*rounds"),
        ({"trainin": {"rounds": 3}}, "'trainin' is no section of a plan"),
        ({"objective": 0.3}, "objective is 0.3, not a section"),
        ({"objective": {"worst_group_size": 2.0}}, r"objective\.worst_group_size: must be <= 1"),
        ({"task": {"data": "digits"}}, "data is stated, and the arrays say it already"),
        ({"plan": parsed()}, "the plan and the arrays do not name the same sites"),
        ({"plan": 7}, "int is neither a plan"),
        ({"plan": parsed(), "training": {"rounds": 3}}, "both a plan and training are given"),
        ({"task": {"input_shape": [7]}}, r"task.input_shape: is \[7\]"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        simulate(clinics(2), **settings)


def test_images_are_taken_and_progress_is_told() -> None:
    draw = np.random.default_rng(0)
    images, labels = draw.normal(size=(40, 1, 8, 8)).astype(np.float32), np.arange(40) % 3
    parts = {"train": (images[:20], labels[:20]), "test": (images[20:], labels[20:])}
    model = {"model": {"name": "mlp", "hidden": [4]}}
    found = simulate({"a": parts, "b": (images, labels)}, task=model, training={"rounds": 2}, objective=BY_LOSS)
    assert found.result.test is not None
    assert found.result.test.n == 20
    assert found.model.predict(images).shape == (40,)
    told = []
    simulate(clinics(2), training={**SHORT, "rounds": 4}, objective=BY_LOSS, on_progress=told.append)
    assert len(told) >= 4


def test_columns_are_aligned_by_name_or_refused() -> None:
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.normal(size=(40, 3)), columns=["age", "dose", "weight"])
    labels = (table["dose"] > 0).to_numpy().astype(int)
    straight = simulate(
        {"a": (table[:20], labels[:20]), "b": (table[20:], labels[20:])}, training=SHORT, objective=BY_LOSS
    )
    turned = table[["weight", "age", "dose"]]
    found = simulate(
        {"a": (table[:20], labels[:20]), "b": (turned[20:], labels[20:])}, training=SHORT, objective=BY_LOSS
    )
    assert found.model.predict(table).tolist() == straight.model.predict(table).tolist()
    assert found.result.train == straight.result.train
    # By position instead, the two columns of site b would be another site's.
    wrong = simulate(
        {"a": (table[:20], labels[:20]), "b": (turned[20:].to_numpy(), labels[20:])},
        training=SHORT,
        objective=BY_LOSS,
    )
    assert wrong.result.train != straight.result.train
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["age", "dose"])
    labels = np.arange(20) % 2
    with pytest.raises(DataError, match="b: there is a column 'weight', and a has 'dose' in its place"):
        simulate({"a": (table, labels), "b": (table.rename(columns={"dose": "weight"}), labels)})
    found = simulate({"a": (table, labels)}, training=SHORT, objective=BY_LOSS)
    with pytest.raises(DataError, match="there is no column 'dose'"):
        found.evaluate(table.rename(columns={"dose": "weight"}), labels)
    with pytest.raises(DataError, match=r"a record has shape \(1,\), the model takes \(2,\)"):
        found.evaluate(table[["age"]].to_numpy(), labels)
    with pytest.raises(DataError, match="labels of no class: 7, 8"):
        found.evaluate(table, labels + 7)
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.normal(size=(40, 2)), columns=["age", "dose"]).astype("Float64")
    labels = pd.Series(np.arange(40) % 2).astype("Int64")
    assert simulate({"a": (table, labels)}, training=SHORT, objective=BY_LOSS).model.classes == (0, 1)
    table.iloc[3, 1] = pd.NA
    with pytest.raises(DataError, match="a: 1 values are NaN or infinite, the first is 'dose' of record 3"):
        simulate({"a": (table, labels)})


def test_sections_are_stated_once_and_labels_within_their_classes() -> None:
    found = simulate(
        clinics(2), objective={"worst_group_size": 0.2, "tradeoff": 0.1},
        training={"rounds": 3, "algorithm": "fedavg"}, secure_aggregation={"mode": "off"}, engine="loop",
    )  # fmt: skip
    assert found.plan.objective.worst_group_size == 0.2
    assert found.result.algorithm == "fedavg"
    with pytest.raises(DataError, match="clinic-a: labels of no class: 2; there are 2 classes"):
        simulate({"clinic-a": (np.zeros((3, 2)), [0, 1, 2])}, task={"classes": 2})
    found = simulate(clinics(), training=SHORT, objective=BY_LOSS, task={"classes": 3})
    assert found.model.classes == (0, 1, 2)
    with pytest.raises(PlanError, match="training is given beside a plan, which states everything itself"):
        simulate(parsed(), training=SHORT)
    with pytest.raises(PlanError, match=r"nowhere\.yaml"):
        simulate("nowhere.yaml")
    with pytest.raises(PlanError, match="int is neither a plan"):
        simulate(3)  # type: ignore[arg-type]
    features = np.random.default_rng(0).normal(size=(40, 2))
    turns = np.arange(40) % 2
    for labels, classes in (
        (pd.Categorical(np.where(turns, "ill", "well")), ("ill", "well")),
        (turns == 1, (0, 1)),
        (turns * 2 - 1, (-1, 1)),
        (turns + 0.0, (0, 1)),
    ):
        found = simulate({"a": (features, labels)}, training=SHORT, objective=BY_LOSS)
        assert found.model.classes == classes
        assert set(found.model.predict(features)) <= set(classes)


def test_raw_columns_of_a_plan_with_categories_are_evaluated_as_in_training(workspace: Path) -> None:
    table = pd.read_csv(workspace / "data" / "all.csv")
    table["ward"] = np.where(np.arange(80) % 3 == 0, "east", "west")
    table.loc[5, "ward"] = "north"
    table.to_csv(workspace / "data" / "all.csv", index=False)
    plan = PLAN.replace("numeric: [age, dose]", "numeric: [age, dose], categorical: {ward: [east, west]}")
    (workspace / "plan" / "plan.yaml").write_text(plan.replace("test_fraction: 0.25", "test_fraction: 0.0"))
    found = simulate(workspace / "plan" / "plan.yaml")
    risks = found.evaluate(table.drop(columns=["outcome", "site"]), table["outcome"])
    assert risks.mean == pytest.approx(found.evaluate().mean, abs=1e-12)
    assert risks.accuracy == found.evaluate().accuracy
    with pytest.raises(DataError, match="labels of no class: 'dead'"):
        found.evaluate(table[["age", "dose", "ward"]][:1], ["dead"])


class Net(torch.nn.Module):
    """A model that only this program has."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(30, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        return self.layers(records)


def test_a_model_that_the_program_holds_is_trained_and_its_file_says_that_it_has_no_architecture(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    held = Net()
    before = [parameter.clone() for parameter in held.parameters()]
    run = simulate(clinics(), model=held, training=SHORT)
    assert run.plan.task.model == "in_memory:Net"
    features, labels = clinics()["clinic-a"]
    assert run.evaluate(features, labels).accuracy > 0.85
    # The model that was given is where training begins, and stays as it is.
    assert all(torch.equal(*pair) for pair in zip(before, held.parameters(), strict=True))
    still = {"rounds": 1, "learning_rate": 1e-9, "server_optimizer": {"name": "sgd"}, "output": "last"}
    again = simulate(clinics(), run.plan.with_(training=still))
    vector = again._simulated.model.vector
    stated = np.concatenate([parameter.detach().numpy().ravel() for parameter in before])
    np.testing.assert_allclose(np.sort(vector), np.sort(stated), atol=1e-6)
    run.save(tmp_path / "net.safetensors")
    with pytest.raises(DataError, match="holds the weights of a model that a program held, in_memory:Net"):
        load_model(tmp_path / "net.safetensors")
    one, other = (simulate(clinics(), model=made, training=SHORT) for made in (Net, lambda _: Net()))
    assert one.plan.task.model not in {run.plan.task.model, other.plan.task.model}
    assert one.evaluate(features, labels) == other.evaluate(features, labels)


def test_models_that_cannot_be_held_are_refused() -> None:
    with pytest.raises(PlanError, match=r"model is 'mlp', no torch\.nn\.Module"):
        simulate(clinics(), model="mlp")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="the workers of Ray have no model that this program holds"):
        simulate(clinics(), model=Net, engine="ray")
    with pytest.raises(PlanError, match="cannot take records of shape"):
        simulate(clinics(), model=torch.nn.Linear(3, 2), training=SHORT)
