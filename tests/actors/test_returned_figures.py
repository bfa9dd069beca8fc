"""What stands side by side at a site is of one model, and at the end of a run that is the model it returns."""

import dataclasses
import importlib
import json
import pkgutil

import numpy as np
import pytest
import torch

import collaborator
import fedfair.results
from collaborator.run_recording import RunRecording, SiteFiguresLog
from fedfair.errors import LocalProtocolError
from fedfair.fairness.record_losses import SiteLosses
from fedfair.news.site import OwnRecordsEvaluated
from fedfair.plan.digest import format_digest
from fedfair.plan.schema import Plan
from fedfair.results.loss_text import loss_text
from fedfair.results.outcome import RunSubject
from fedfair.results.site_figures import AggregateFigures, LocalLosses, SiteFigures, site_figures
from fedfair.run.progress import Progress
from fedfair.run.replica import RunReplica, Unkept
from fedfair.run.training_run import TrainingRun
from fedfair.tables.source import load_federation
from fedfair.tracking.tracker import own_risk_figures
from fedfair.training.assembly import flat_model
from fedfair.training.binding import plan_binding
from fedfair.training.client import TrainingClient
from tests import plans
from tests.actors.site_play import MINE, small
from tests.actors.site_play import played as play_run

torch.set_num_threads(1)

TOO_FAST = 100.0
"""A rate whose steps leave the last model worse than an earlier one."""


@dataclasses.dataclass
class RecordedRun:
    """A run whose best model is not the last, as one site has recorded it."""

    training_run: TrainingRun
    task: TrainingClient
    figures: list[SiteFigures]
    words: str
    lines: list[dict[str, object]]
    result: dict[str, object]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    folder = tmp_path_factory.mktemp("run")
    values = plans.over(small(output="best").model_dump(), training={"learning_rate": TOO_FAST})
    plan = Plan.model_validate(values)
    binding, own = plan_binding(plan, folder), load_federation(plan, folder)[MINE]
    task = TrainingClient(plan, MINE, own, flat_model(plan, binding.schema, torch.device("cpu"), folder))
    subject = RunSubject(plan, "sha256:" + "0" * 64, binding.layout, binding.schema)
    recording = RunRecording(task, subject, folder / "runs", SiteFiguresLog(folder, MINE))
    before = TrainingRun(plan, binding.layout, binding.schema, binding.vector).model

    def told(progress: Progress, training_run: TrainingRun, _losses: SiteLosses) -> None:
        nonlocal before
        if training_run.scaling is not None and task.scaling is None:
            task.apply_scaling(training_run.scaling)
        recording.progressed(replica_of(training_run), before, progress, kept=True)
        before = training_run.model

    def replica_of(training_run: TrainingRun) -> RunReplica:
        replica = RunReplica(training_run, bytes(32), Unkept())
        replica.restore("ab" * 16, training_run.state)
        return replica

    done = play_run(plan, folder, told).training_run
    recording.ended(replica_of(done), "all rounds are done", finished=True)
    recording.close()
    notices = [notice for notice in recording.take_notices() if isinstance(notice, OwnRecordsEvaluated)]
    log = (folder / f"{MINE}_own_figures.jsonl").read_text().splitlines()
    result = json.loads((folder / "runs" / ("ab" * 16) / "result.json").read_text())
    lines = [json.loads(line) for line in log]
    return RecordedRun(done, task, [each.figures for each in notices], notices[-1].sentence, lines, result)


def means(run: RecordedRun) -> tuple[float, float]:
    """Return the mean training loss of the model that the run returned: this site's, and all sites'."""
    evaluation = run.training_run.result().evaluation
    own = run.task.losses_of(run.training_run.model)["train"].values.mean()
    return float(own), evaluation.splits["train"].mean


def test_the_last_figures_are_of_the_model_that_the_run_returned(recorded: RecordedRun) -> None:
    returned, last = recorded.training_run.model, recorded.figures[-1]
    # The run is one whose best model is not the last.
    assert recorded.training_run.history[-1].round > recorded.training_run.result().evaluation.round  # type: ignore[union-attr]
    assert returned.vector_sha256 != recorded.training_run.trained.vector_sha256
    assert (last.model, last.is_returned) == (format_digest(returned.vector_sha256), True)
    assert (last.own["train"].mean, last.everybody["train"].mean) == pytest.approx(means(recorded))


def test_every_output_has_both_figures_of_the_returned_model(recorded: RecordedRun) -> None:
    own, everybody = means(recorded)
    line, tracked = recorded.lines[-1], own_risk_figures(recorded.figures[-1])
    words = recorded.words.splitlines()[0]
    assert words.startswith("the model returned (round ")
    assert f"mean loss {loss_text(own, 4):>7} / {loss_text(everybody, 4):>7}" in words
    assert line["returned"] is True
    assert line["model"] == format_digest(recorded.training_run.model.vector_sha256)
    assert [line[whose]["train"]["mean"] for whose in ("own", "everybody")] == pytest.approx([own, everybody])  # type: ignore[index]
    assert [tracked[f"{whose}/train/mean"] for whose in ("own", "everybody")] == pytest.approx([own, everybody])
    assert recorded.result["train"]["mean"] == pytest.approx(everybody)  # type: ignore[index]


def test_every_line_on_the_way_has_both_figures_of_the_model_of_its_round(recorded: RecordedRun) -> None:
    history = {past.round: past for past in recorded.training_run.history}
    assert [line["round"] for line in recorded.lines[:-1]] == sorted(history)
    digests = [line["model"] for line in recorded.lines[:-1]]
    assert len(set(digests)) == len(digests)
    for figures in recorded.figures:
        assert figures.everybody["train"].mean == history[figures.round].splits["train"].mean  # type: ignore[index]


def test_figures_of_two_models_are_never_put_side_by_side(recorded: RecordedRun) -> None:
    run = recorded.training_run
    evaluation = run.result().evaluation
    assert evaluation is not None
    own = LocalLosses(run.trained.vector_sha256, recorded.task.losses_of(run.trained))
    judged = AggregateFigures(run.model.vector_sha256, evaluation, {})
    with pytest.raises(LocalProtocolError, match="this site's own losses are of the model"):
        site_figures(small(), own, judged)
    assert np.isfinite(means(recorded)).all()


def test_whatever_holds_own_and_overall_figures_says_of_which_model() -> None:
    """Find every value with figures of two sides: it must carry the model's digest."""
    found = set()
    for package in (fedfair.results, collaborator):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if module.name.endswith("__main__"):
                continue
            for held in vars(importlib.import_module(module.name)).values():
                if isinstance(held, type) and dataclasses.is_dataclass(held):
                    names = {field.name for field in dataclasses.fields(held)}
                    if {"own", "everybody"} <= names:
                        found.add(held)
                        assert "model" in names, held
    assert SiteFigures in found
