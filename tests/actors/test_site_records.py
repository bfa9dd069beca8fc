"""A site alone uses a model of a plan that it has approved, and runs no code of any other plan."""

import json
import re
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import collaborator.commands
from collaborator.run_recording import SiteFiguresLog
from collaborator.site_records import site_records
from fedfair.aggregation.cvar_bounds import Interval
from fedfair.aggregation.evaluator import Evaluation
from fedfair.aggregation.ranking import ClassRanking
from fedfair.cli.commands import app
from fedfair.errors import ApprovalError, FedfairError
from fedfair.fairness.record_losses import Losses, SiteLosses
from fedfair.news.processors import text_lines
from fedfair.news.site import OwnRecordsEvaluated
from fedfair.plan.schema import Plan
from fedfair.policy.plan_check import PolicyError
from fedfair.results.site_figures import AggregateFigures, LocalLosses, SiteFigures, SplitFigures, site_figures
from fedfair.run.progress import Progress
from fedfair.run.saved_model import read_saved, save_model
from fedfair.run.training_run import TrainingRun
from tests import imports, plans
from tests.actors.site_play import played, small
from tests.full_disk import full_beyond
from tests.plans import small_plan
from tests.prediction.saved_runs import SavedRun, approved_run

MODULE = "fedfair_test_own_records"
CODE = """
from pathlib import Path

from torch import nn

(Path({place!r}) / "ran").write_text("ran")

def build(schema):
    return nn.Linear(schema.input_shape[0], schema.classes)
"""
SITE = "clinic-a"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SavedRun]:
    """Yield an approved run of a model of own code, which tells when it is imported."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / f"{MODULE}.py").write_text(CODE.format(place=str(tmp_path)))
    plan = small_plan(rounds=1)
    task = plan["task"]
    task |= {"model": f"{MODULE}:build", "validation_fraction": 0.2, "test_fraction": 0.2}
    made = approved_run(tmp_path, plan | {"task": task})
    allow(made, allow_module_code=True)
    forget(made)
    yield made
    forget(made)


def forget(run: SavedRun) -> None:
    sys.modules.pop(MODULE, None)
    (run.workspace / "ran").unlink(missing_ok=True)


def has_run(run: SavedRun) -> bool:
    return MODULE in sys.modules or (run.workspace / "ran").exists()


def allow(run: SavedRun, **terms: object) -> None:
    file = run.workspace / f"{SITE}.yaml"
    stated = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**stated, "policy": {**stated["policy"], **terms}}))


def change_code(run: SavedRun) -> None:
    """Change one byte."""
    source = run.workspace / "src" / f"{MODULE}.py"
    source.write_text(source.read_text().replace('"ran")\n', '"RAN")\n'))


def words_of(run: SavedRun, *command: str) -> list[str]:
    place = ["-c", str(run.workspace / f"{SITE}.yaml"), "-p", str(run.plan_file), "--model", str(run.model)]
    return [*command, *place]


def refused(run: SavedRun, command: str) -> FedfairError:
    more = {"personalise": ["--output", str(run.workspace / "own.safetensors")], "groups": ["--by", "any"]}
    program = app if command == "evaluate" else collaborator.commands.app
    fault = CliRunner().invoke(program, [*words_of(run, command), *more.get(command, [])]).exception
    assert isinstance(fault, FedfairError), fault
    return fault


COMMANDS = ("evaluate", "compare", "personalise", "groups")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_plan_that_the_site_has_not_approved_runs_none_of_its_code(run: SavedRun, command: str) -> None:
    approval = run.workspace / "approvals" / f"{SITE}.json"
    approved = approval.read_bytes()
    approval.unlink()
    fault = refused(run, command)
    assert isinstance(fault, ApprovalError)
    assert f"{SITE} has not approved the plan" in fault.message
    assert "fedfair plan approve" in fault.remedy
    approval.write_bytes(approved)
    change_code(run)
    fault = refused(run, command)
    assert isinstance(fault, ApprovalError)
    assert f"{SITE} has approved plan {run.outcome.origin.plan_digest}, this plan is sha256:" in fault.message
    assert not has_run(run)


def test_the_approval_of_another_site_or_of_another_key_does_not_count(run: SavedRun) -> None:
    approvals = run.workspace / "approvals"
    (approvals / f"{SITE}.json").write_bytes((approvals / "clinic-b.json").read_bytes())
    assert "is for participant 'clinic-b'" in refused(run, "evaluate").message
    assert not has_run(run)


def test_an_approved_plan_is_evaluated_by_its_own_code(run: SavedRun) -> None:
    done = CliRunner().invoke(app, [*words_of(run, "evaluate"), "-q"], catch_exceptions=False)
    assert done.exit_code == 0
    assert has_run(run)


def test_a_model_without_its_initial_weights_needs_code_that_the_policy_names(run: SavedRun) -> None:
    found = read_saved(run.model)
    save_model(run.model, found.layout, found.saved, replace(found.origin, initial_weights=None))
    fault = refused(run, "compare")
    assert isinstance(fault, ApprovalError)
    assert not has_run(run)
    allow(run, module_code=[fault.remedy.split("name ")[1].split(" in ")[0]])
    assert site_records(run.workspace / f"{SITE}.yaml", run.plan_file, run.model).participant == SITE
    forget(run)
    change_code(run)
    assert isinstance(refused(run, "compare"), PolicyError)
    assert not has_run(run)


def test_the_approval_of_a_model_lets_it_be_evaluated_and_nothing_else(run: SavedRun) -> None:
    (run.workspace / "approvals" / f"{SITE}.json").unlink()
    approve = ["plan", "approve", "-n", SITE, "-p", str(run.plan_file), "--model", str(run.model), "--yes"]
    assert CliRunner().invoke(app, approve, catch_exceptions=False).exit_code == 0
    forget(run)
    assert isinstance(refused(run, "personalise"), ApprovalError)
    assert isinstance(refused(run, "compare"), ApprovalError)
    assert not has_run(run)
    done = CliRunner().invoke(app, [*words_of(run, "evaluate"), "-q"], catch_exceptions=False)
    assert done.exit_code == 0
    forget(run)
    change_code(run)
    assert isinstance(refused(run, "evaluate"), ApprovalError)
    assert not has_run(run)


# ---- a site sees how its own records fare under the global model, and nobody else does

MODEL = bytes(32)


def seen(folder: Path, plan: Plan) -> list[tuple[SiteLosses, Evaluation, SiteFigures]]:
    found: list[tuple[SiteLosses, Evaluation, SiteFigures]] = []

    def heard(progress: Progress, training_run: TrainingRun, losses: SiteLosses) -> None:
        evaluation, evaluated = progress.evaluation, progress.evaluated
        if evaluation is not None and evaluated is not None:
            rankings = training_run.rules.evaluator.rankings(evaluated.header)
            own, judged = LocalLosses(MODEL, losses), AggregateFigures(MODEL, evaluation, rankings)
            figures = site_figures(plan, own, judged)
            found.append((dict(losses), evaluation, figures))

    played(plan, folder, heard)
    return found


def test_the_figures_are_those_of_the_sites_own_losses_beside_those_of_all_sites(tmp_path: Path) -> None:
    found = seen(tmp_path, small())
    assert [figures.round for _, _, figures in found] == [0, 1, 2, 3]
    for losses, evaluation, figures in found:
        assert figures.group_size == 0.3
        assert list(figures.own) == list(figures.everybody) == ["train", "test"]
        for name, own in figures.own.items():
            ordered = np.sort(losses[name].values)[::-1]
            # Worked by hand: the worst 30 % with a part of one record at its edge.
            whole, part = divmod(0.3 * len(ordered), 1)
            worst = (ordered[: int(whole)].sum() + part * ordered[int(whole)]) / (0.3 * len(ordered))
            assert (own.records, own.worst_records) == (len(ordered), int(whole) + (part > 1e-9))
            assert (own.mean, own.worst) == (pytest.approx(ordered.mean()), pytest.approx(worst))
            assert own.accuracy == np.mean(losses[name].labels == losses[name].predictions)
            summary, everybody = evaluation.splits[name], figures.everybody[name]
            assert (everybody.records, everybody.mean) == (summary.n, summary.mean)
            assert everybody.accuracy == summary.accuracy
            assert everybody.worst == summary.by_group_size[0.3].worst
            assert everybody.records > own.records


def test_a_group_that_is_too_small_is_shown_of_own_records_and_not_of_all(tmp_path: Path) -> None:
    plan = small()
    losses, evaluation, _ = seen(tmp_path, plan)[-1]
    strict = plan.model_copy(update={"evaluation": plan.evaluation.model_copy(update={"min_group": 100_000})})
    few = {"train": Losses(np.array([0.5, 2.0]), np.array([0, 1]), np.array([0, 0]))}
    judged = AggregateFigures(MODEL, evaluation, {})
    figures = site_figures(strict, LocalLosses(MODEL, few), judged)
    assert figures.own == {"train": SplitFigures(2, 1.25, 2.0, 1, 0.5)}
    assert figures.everybody["train"].worst is None
    assert list(site_figures(plan, LocalLosses(MODEL, {}), judged).own) == []
    assert "test" in losses


def test_a_site_sees_how_its_own_scores_rank_beside_those_of_all(tmp_path: Path) -> None:
    plan = Plan.model_validate(plans.over(small().model_dump(), evaluation={"scores": True}))
    lines: list[str] = []
    losses, evaluation, figures = seen(tmp_path, plan)[-1]
    text_lines(lines.append)(OwnRecordsEvaluated(figures))
    for line, name in zip(lines, ("train", "test"), strict=True):
        own, everybody = figures.own[name].auc, figures.everybody[name].auc
        assert own == pytest.approx(roc_auc_score(losses[name].labels, losses[name].scores[:, 0]), abs=1e-12)
        assert everybody is not None
        assert line.endswith(f"AUC {own:.3f} / {everybody:.3f}")
    with closing(SiteFiguresLog(tmp_path, "clinic-b")) as log:
        log.append("ab" * 16, figures)
    written = json.loads((tmp_path / "clinic-b_own_figures.jsonl").read_text())
    assert written["own"]["test"]["auc"] == figures.own["test"].auc
    # Of too few people the overall figure is not shown; a site's own is.
    strict = plan.model_copy(update={"evaluation": plan.evaluation.model_copy(update={"min_group": 100_000})})
    rankings = {"test": (ClassRanking(1, 9, 9, Interval(0.5, 0.5), 0.1, ()),)}
    again = site_figures(strict, LocalLosses(MODEL, losses), AggregateFigures(MODEL, evaluation, rankings))
    assert (again.everybody["test"].auc, again.own["test"].auc) == (None, figures.own["test"].auc)


def test_the_log_has_one_line_for_each_evaluation_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    found = seen(tmp_path, small())
    with closing(SiteFiguresLog(tmp_path, "clinic-b")) as log:
        for _, _, figures in found:
            log.append("ab" * 16, figures)
    path = tmp_path / "clinic-b_own_figures.jsonl"
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["round"] for line in written] == [0, 1, 2, 3]
    assert {line["run_id"] for line in written} == {"ab" * 16}
    own = found[-1][2].own["test"]
    assert written[-1]["own"]["test"] == {
        "records": own.records, "mean": own.mean, "worst": own.worst, "worst_records": own.worst_records,
        "accuracy": own.accuracy,
    }  # fmt: skip
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_rotated_log_of_own_figures_is_its_owners_alone_too(tmp_path: Path) -> None:
    figures = seen(tmp_path, small())[-1][2]
    with closing(SiteFiguresLog(tmp_path, "clinic-b", max_log_bytes=10)) as log:
        for _ in range(3):
            log.append("ab" * 16, figures)
    files = sorted(tmp_path.glob("clinic-b_own_figures.jsonl*"))
    assert (len(files), {stat.S_IMODE(path.stat().st_mode) for path in files}) == (3, {0o600})


def test_a_full_disk_names_the_log(tmp_path: Path) -> None:
    figures = SiteFigures("sha256:0", False, 1, 0.1, {"train": SplitFigures(5, 1.0, 2.0, 1, 1.0)}, {})
    figures, log = replace(figures, everybody=figures.own), SiteFiguresLog(tmp_path, "clinic-b")
    with pytest.raises(FedfairError, match=r"clinic-b_own_figures\.jsonl cannot be written"), full_beyond(10):
        log.append("ab" * 16, figures)
    log.close()


SENDS = {"collaborator/link.py", "collaborator/plain_worker.py", "collaborator/masked_worker.py"}


def reached(*modules: str) -> set[str]:
    """Return every file of ours that these import, directly or through others."""
    found: set[Path] = set()
    waiting = [imports.REPOSITORY / module for module in modules]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += imports.imported_files(path)
    return {path.relative_to(imports.REPOSITORY).as_posix() for path in found}


def test_what_shows_own_figures_has_no_way_to_the_network() -> None:
    shows = reached(
        "collaborator/run_recording.py", "fedfair/news/site.py", "fedfair/news/processors.py",
        "fedfair/results/site_figures.py",
    )  # fmt: skip
    assert shows & SENDS == set()
    assert reached("collaborator/group_tables.py") & SENDS == set()
    assert not {path for path in shows if path.startswith(("fedfair/wire/", "aggregator/"))}
    connects = re.compile(r"^\s*(?:import|from) (?:socket|ssl|grpc|http|urllib)\b", re.MULTILINE)
    assert not {path for path in shows if connects.search((imports.REPOSITORY / path).read_text("utf-8"))}
    # A value that holds numbers alone carries no link with it.
    assert SiteFigures.__annotations__.keys() == {
        "model", "is_returned", "round", "group_size", "own", "everybody"
    }  # fmt: skip
    assert set(SplitFigures.__annotations__.values()) == {"int", "float", "float | None"}


def test_what_makes_messages_knows_nothing_of_own_figures() -> None:
    def knows(paths: Collection[str]) -> set[str]:
        own = ("site_figures", "group_figures", "site_groups", "group_tables")
        return {path for path in paths if any(name in path for name in own) or path == "collaborator/notices.py"}

    wire = [f"fedfair/wire/{path.name}" for path in (imports.REPOSITORY / "fedfair" / "wire").glob("*.py")]
    assert knows(reached(*SENDS, *wire)) == set()
    # The check itself finds what it looks for.
    assert knows(reached("collaborator/run_recording.py"))
    assert knows(reached("collaborator/group_tables.py"))
