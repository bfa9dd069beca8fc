"""Tasks other than plain classes over real sockets: the model, figures and certificate of their simulation."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import yaml

from aggregator.commands import initial_status
from collaborator.commands import initial_status as site_status
from collaborator.preparation import make_ready
from fedfair.aggregation.evaluation_file import parse_evaluation
from fedfair.certificate.check import check_figures, check_plan
from fedfair.certificate.issue import IssueTerms, draft
from fedfair.certificate.page import certificate_page
from fedfair.certificate.sentences import in_words
from fedfair.cli.loopback import Workspace, prepare
from fedfair.plan.loading import load_plan
from fedfair.prediction.loaded_model import load_model
from fedfair.report.run_page import run_page
from fedfair.results.document import ResultDocument
from fedfair.results.reading import read_result
from fedfair.simulation.simulate import simulate
from fedfair.watching.document import status_document
from fedfair.watching.metrics import metrics_text
from tests.interop.federation_kit import NAMES, Federation, model_files_agree, play, prepared, states_agree
from tests.plans import small_plan
from tests.simulation.other_tasks import columns, task_of, write_table
from tests.site_reading import read_site

MASKED = {"mode": "malicious", "most_records": 512, "clip": 1.0}


def ready(
    folder: Path, name: str, protection: Mapping[str, object] | None, standardize: str = "secure", **more: object
) -> Workspace:
    plan = small_plan(rounds=2, protection=protection)
    plan |= {
        "task": {
            "model": {"name": "linear"},
            "standardize": standardize,
            "test_fraction": 0.25,
            "input_shape": [3],
            **task_of(name),
        },
        "objective": {"measure": "loss", "worst_group_size": 0.2, "tradeoff": 0.1},
        "evaluation": {"every": 5, "group_sizes": [0.2, 0.5], "site_means": True},
        **more,
    }
    workspace = prepare(folder, plan)
    table = write_table(folder)
    for site in workspace.collaborators:
        place = folder / f"{site}.yaml"
        own = yaml.safe_load(place.read_text())
        place.write_text(yaml.safe_dump(own | {"data": {"train": table.name}}))
    return workspace


OWN_CODE = {
    "masks": """
import numpy as np


def load(folder):
    source = np.random.default_rng(8)
    images = source.random((240, 1, 4, 4)).astype(np.float32)
    return images, (images[:, 0] > 0.5).astype(np.int64)
""",
    "cost": """
import torch


def cost(outputs, targets):
    return torch.relu((outputs[:, 0] - targets).abs() - 0.1)
""",
}
"""Modules of a workspace's own: each is used by one test, for a process imports a name from one place only."""

OWN_TASKS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "segmentation": {
        "task": {
            "data": "deployed_masks:load", "loss": "segmentation", "classes": 2, "input_shape": [1, 4, 4],
            "standardize": "none",
        },
    },
    "own": {
        "task": {**task_of("squared"), "loss": "deployed_cost:cost"},
        "evaluation": {"loss_range": 16.0},
    },
}  # fmt: skip


def ready_with_own_code(folder: Path, name: str) -> Workspace:
    (folder / "src").mkdir()
    for module, code in OWN_CODE.items():
        (folder / "src" / f"deployed_{module}.py").write_text(code)
    plan = small_plan(rounds=2, protection=MASKED)
    usual = {"model": {"name": "linear"}, "standardize": "secure", "test_fraction": 0.25, "input_shape": [3]}
    stated = OWN_TASKS[name]
    plan |= {
        "task": {"partition": {"scheme": "random"}, **usual, **stated["task"]},
        "objective": {"measure": "loss", "worst_group_size": 0.2, "tradeoff": 0.1},
        "evaluation": {"every": 5, "group_sizes": [0.2, 0.5], **stated.get("evaluation", {})},
    }
    workspace = prepare(folder, plan)
    table = write_table(folder)
    for site in workspace.collaborators:
        place = folder / f"{site}.yaml"
        own = yaml.safe_load(place.read_text())
        own["policy"]["allow_module_code"] = True
        place.write_text(yaml.safe_dump(own | ({"data": {"train": table.name}} if name == "own" else {})))
    return workspace


def test_whoever_watches_a_run_is_told_the_unit_of_its_losses(tmp_path: Path) -> None:
    workspace = ready(tmp_path, "squared", None)
    site = make_ready(read_site(NAMES[0], tmp_path / f"{NAMES[0]}.yaml", workspace.plan, None))
    run = prepared(workspace)
    run.records.close()
    now = datetime.now(UTC)
    for status in (initial_status(run, now), site_status(site, now)):
        assert status.loss_unit == "squared units of the target"
        assert status_document(status, now)["loss_unit"] == status.loss_unit
        assert f'loss_unit="{status.loss_unit}"' in metrics_text(status, now).decode()


@pytest.fixture(scope="module")
def masked_squares(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A finished run whose numbers are predicted under masks."""
    workspace = ready(tmp_path_factory.mktemp("squares"), "squared", MASKED)
    assert play(workspace, Federation.everybody).state.value == "finished"
    return workspace


def deployed(workspace: Workspace) -> ResultDocument:
    return read_result(workspace.result)


def rounded_by(workspace: Workspace, mean: float) -> float:
    """Return how far a mean of losses may be from that of the losses that sites have rounded, at most."""
    record = parse_evaluation((workspace.folder / "save" / "evaluation.json").read_bytes(), "evaluation.json")
    rounding = record.spec.rounding
    return rounding.inside + rounding.beyond * mean


FIGURES = 2.0**-7
"""Errors are rounded to 2^-9 of themselves or less, so their squares and quotients of sums of them to 2^-7."""


@pytest.mark.parametrize(
    ("name", "protection", "tolerance"),
    [("squared", MASKED, 1e-3), ("survival", None, 1e-9), ("multi_label", MASKED, 1e-3), ("binary", None, 1e-9)],
)
def test_a_deployment_gives_the_model_and_figures_of_its_simulation(
    tmp_path: Path, masked_squares: Workspace, name: str, protection: Mapping[str, object] | None, tolerance: float
) -> None:
    workspace = masked_squares if name == "squared" else ready(tmp_path, name, protection)
    if name != "squared":
        assert play(workspace, Federation.everybody).state.value == "finished"
    simulated = simulate(load_plan(workspace.plan), workspace.folder)
    # In the clear these are the same numbers in another order; masks round each to the steps of the ring.
    model_files_agree(workspace, tolerance, simulated)
    exact, told = simulated.result, deployed(workspace)
    assert told.plan is not None
    assert exact.plan is not None
    assert told.plan.loss == exact.plan.loss
    for split in ("train", "test"):
        known, found = exact.splits[split], told.splits[split]
        assert known is not None
        assert found is not None
        assert found.n == known.n
        assert found.above_range == known.above_range
        assert found.mean == pytest.approx(known.mean, abs=10 * tolerance + rounded_by(workspace, known.mean))
        assert (found.accuracy is None) == (known.accuracy is None) == (name != "binary")
        assert set(found.metrics or {}) == set(known.metrics or {})
        for key, value in (known.metrics or {}).items():
            one, other = (np.array(each, np.float64) for each in (value, (found.metrics or {})[key]))
            np.testing.assert_allclose(other, one, rtol=FIGURES, atol=50 * tolerance + FIGURES)
        for size, group in found.by_group_size.items():
            assert group.bound is not None
            truth = known.by_group_size[size].worst
            assert truth is not None
            assert group.bound[0] - 50 * tolerance <= truth <= group.bound[1] + 50 * tolerance


@pytest.mark.parametrize("name", ["huber", "pinball", "ordinal", "segmentation", "own"])
def test_every_other_loss_is_deployed_under_masks_as_it_is_simulated(tmp_path: Path, name: str) -> None:
    own = name in OWN_TASKS
    workspace = ready_with_own_code(tmp_path, name) if own else ready(tmp_path, name, MASKED)
    assert play(workspace, Federation.everybody).state.value == "finished"
    simulated = simulate(load_plan(workspace.plan), workspace.folder)
    model_files_agree(workspace, 1e-6, simulated)
    states_agree(workspace)
    exact, told = simulated.result, deployed(workspace)
    for split in ("train", "test"):
        known, found = exact.splits[split], told.splits[split]
        assert known is not None
        assert found is not None
        assert (found.n, found.accuracy, found.above_range) == (known.n, known.accuracy, known.above_range)
        assert found.mean == pytest.approx(known.mean, abs=1e-5 + rounded_by(workspace, known.mean))
        for size, group in found.by_group_size.items():
            assert group.bound is not None
            truth = known.by_group_size[size].worst
            assert truth is not None
            assert group.bound[0] - 1e-5 <= truth <= group.bound[1] + 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pinball", "ordinal", "multi_label", "survival"])
def test_noise_for_records_is_deployed_with_any_loss_and_no_figure_is_told_without_it(
    tmp_path: Path, name: str
) -> None:
    workspace = ready(
        tmp_path, name, MASKED, "none",
        privacy={"sample_level": {"noise_multiplier": 2.0}},
        evaluation={"every": 5, "group_sizes": [0.2, 0.5]},
    )  # fmt: skip
    assert play(workspace, Federation.everybody).state.value == "finished"
    states_agree(workspace)
    told = deployed(workspace)
    assert told.privacy is not None
    assert told.privacy.sample_level is not None
    assert told.privacy.sample_level.noise_multiplier == 2.0
    trained = told.splits["train"]
    assert trained is not None
    assert trained.metrics is None
    assert all(group.bound is None for group in trained.by_group_size.values())


def test_a_certificate_states_the_loss_in_its_unit_and_the_page_shows_the_metrics(
    masked_squares: Workspace,
) -> None:
    plan = load_plan(masked_squares.plan)
    record = parse_evaluation((masked_squares.folder / "save" / "evaluation.json").read_bytes(), "here")
    assert record.classes is None
    made = draft(record, plan, IssueTerms("test", (0.2, 0.5)), issued_at="2030-01-01T00:00:00Z")
    check_figures(made)
    check_plan(made, plan, record.plan_digest)
    sentence = in_words(made).sample
    assert "has a mean squared error above" in sentence
    assert sentence.endswith("squared units of the target.")
    assert made.uniform_floor is made.verdict is made.outcomes is None
    page = certificate_page(made)
    assert "nats" not in page
    assert "squared units of the target" in page
    shown = run_page({"result.json": deployed(masked_squares)})
    assert "r squared" in shown
    assert "nats" not in shown
    assert "predictions are right" not in shown


def test_a_saved_model_predicts_numbers_from_its_file_alone(masked_squares: Workspace) -> None:
    model, table = load_model(masked_squares.folder / "save" / "last.safetensors"), columns()
    features = {name: table[name] for name in ("x1", "x2", "x3")}
    predicted = model.predict(features)
    assert predicted.shape == (len(table["amount"]),)
    losses = model.losses({**features, "amount": table["amount"]})
    assert losses == pytest.approx((predicted - table["amount"]) ** 2, rel=1e-12)
    assert model.classes == ()
    metadata = json.loads(model.description.words()["loss"])
    assert metadata["name"] == "squared"
