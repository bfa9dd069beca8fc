"""A fourth hospital joins a study of three: no two published results tell its own figures.

Over real sites, each with a file of its own. The old model was evaluated over three; if the new run evaluated it
over four, the difference of the two sums would be the newcomer's own evaluation.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from aggregator.preparation import initial_binding
from collaborator.preparation import find_site, make_ready, read_records
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import ApprovalError
from fedfair.ids import ParticipantId
from fedfair.plan.digest import beginning_digest, format_digest
from fedfair.plan.loading import initial_path, load_plan
from fedfair.policy.plan_check import PolicyError
from fedfair.results.risks import Moment
from fedfair.run.initial_model import stated_weights
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.dataset import Splits
from fedfair.training.freezing import freeze_from
from tests import plans
from tests.interop.federation_kit import NAMES, Federation, play
from tests.interop.test_continued_runs import approved
from tests.simulation.test_runs_from_a_file import saved
from tests.site_reading import read_site

FOUR = (*NAMES, ParticipantId("clinic-d"))
NEWCOMER = ParticipantId("clinic-d")
RECORDS = dict(zip(FOUR, (60, 50, 40, 37), strict=True))
MASKED = {"mode": "malicious", "most_records": 512}


def study(folder: Path, names: tuple[str, ...], standardize: str = "secure", **training: object) -> Workspace:
    """Return a workspace of hospitals, each of which has the same file in every study."""
    task = {
        "data": {"csv": {"label": "died", "numeric": ["age", "pressure"]}},
        "partition": None,
        "standardize": standardize,
        "model": {"name": "linear", "init": "random"},
    }
    plan = plans.small_plan(rounds=2, protection=MASKED, names=names, output="last", **training)
    workspace = prepare(folder, plans.over(plan, task=task, evaluation={"every": 2, "bins": 16, "min_group": 1}))  # type: ignore[arg-type]
    for place, name in enumerate(names):
        draws = np.random.default_rng(place)
        rows = []
        for age in draws.integers(20, 100, RECORDS[name]):
            pressure, died = draws.integers(80, 200), int(age + draws.normal() * 15 > 60)
            rows.append(f"{age},{pressure},{died}")
        (folder / f"{name}.csv").write_text("\n".join(["age,pressure,died", *rows]) + "\n")
        stated(workspace, name, {"data": {"train": f"{name}.csv"}})
    return workspace


def stated(workspace: Workspace, name: str, keys: dict[str, object], **policy: object) -> None:
    """Write keys and terms into a site's own file."""
    file = workspace.folder / f"{name}.yaml"
    site = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**site, **keys, "policy": {**site["policy"], **policy}}))


def run(workspace: Workspace) -> list[dict[str, object]]:
    """Run a study to its end, and return the evaluations that anyone may read."""
    assert play(workspace, Federation.everybody, binding=initial_binding).state.value == "finished"
    history = json.loads(workspace.result.read_text())["history"]
    assert isinstance(history, list)
    return history


def begun(folder: Path, three: Workspace) -> Workspace:
    """Return the study of four that begins with the model of three; its sites have what the page tells them."""
    four = study(folder, FOUR)
    freeze_from(four.plan, three.folder / "save" / "last.safetensors")
    approved(four)
    for name in NAMES:
        shutil.copytree(three.folder / "runs" / name, folder / "runs" / name)
    return four


def listed(workspace: Workspace) -> str:
    initial = load_plan(workspace.plan).training.initial
    assert initial is not None
    return format_digest(beginning_digest(initial))


def records_of(workspace: Workspace) -> dict[ParticipantId, Splits]:
    sites = [
        find_site(name, workspace.folder / f"{name}.yaml", workspace.plan, None)
        for name in workspace.collaborators
    ]
    return {site.participant: read_records(site).splits for site in sites}


def right(evaluation: Moment, names: tuple[str, ...]) -> float:
    """Return how many records a published evaluation found classified rightly."""
    assert evaluation.train.accuracy is not None
    return evaluation.train.accuracy * sum(RECORDS[name] for name in names)


def test_two_evaluations_of_one_model_over_three_and_four_sites_would_tell_the_fourth_ones_own(
    tmp_path: Path,
) -> None:
    three = study(tmp_path / "three", NAMES)
    ended = simulate_sites(load_plan(three.plan), records_of(three), three.folder)
    model = tmp_path / "three.safetensors"
    saved(ended, model)
    four = study(tmp_path / "four", FOUR)
    freeze_from(four.plan, model)
    plan, records = load_plan(four.plan), records_of(four)
    assert plan.training.initial is not None
    honest = simulate_sites(plan, records, four.folder)
    last = ended.result.history[-1]
    # What was published of the old model is of three sites, and nothing is of four.
    assert [past.round for past in honest.result.history] == [2]
    # With the one evaluation more, the newcomer's own figures are a difference.
    initial = plan.training.initial.model_copy(update={"same_sites": True})
    lying = plan.model_copy(update={"training": plan.training.model_copy(update={"initial": initial})})
    held = stated_weights(plan, four.plan)
    first = simulate_sites(lying, records, four.folder, initial=held).result.history[0]
    alone = simulate_sites(lying, {NEWCOMER: records[NEWCOMER]}, four.folder, initial=held).result.history[0]
    assert (last.round, first.round) == (2, 0)
    assert right(first, FOUR) - right(last, NAMES) == pytest.approx(right(alone, (NEWCOMER,)))


@pytest.mark.slow
def test_a_fourth_hospital_joins_and_the_old_model_is_evaluated_over_no_other_sites(tmp_path: Path) -> None:
    three = study(tmp_path / "three", NAMES)
    assert [past["round"] for past in run(three)] == [0, 2]
    four = begun(tmp_path / "four", three)
    digest = listed(four)
    with pytest.raises(PolicyError, match=f"add {digest} to policy.initial_weights in collaborator.yaml"):
        read_site(NEWCOMER, four.folder / f"{NEWCOMER}.yaml", four.plan, None)
    stated(four, NEWCOMER, {}, initial_weights=["seed", digest])
    assert [past["round"] for past in run(four)] == [2]
    # Nobody is fooled by a plan that says that its own sites have evaluated the model.
    initial_path(four.plan).write_text(initial_path(four.plan).read_text() + "same_sites: true\n")
    for name, words in (
        (NAMES[0], "by clinic-a's own copy, .*, other sites did"),
        (NEWCOMER, "clinic-d has evaluated its initial weights .*, and no copy of a run"),
    ):
        with pytest.raises(ApprovalError, match=words):
            read_site(name, four.folder / f"{name}.yaml", four.plan, None)


@pytest.mark.slow
def test_the_same_study_with_one_hospital_more_is_refused_by_the_history_of_the_others(tmp_path: Path) -> None:
    three = study(tmp_path / "three", NAMES)
    run(three)
    # A second plan over the same three is ordinary work.
    again = study(tmp_path / "again", NAMES, learning_rate=0.01)
    shutil.copytree(three.folder / "history", again.folder / "history")
    assert [past["round"] for past in run(again)] == [0, 2]
    four = study(tmp_path / "four", FOUR)
    shutil.copytree(again.folder / "history", four.folder / "history")
    for name in NAMES:
        with pytest.raises(PolicyError, match="has helped to open it over clinic-a, clinic-b, clinic-c under"):
            make_ready(read_site(name, four.folder / f"{name}.yaml", four.plan, None))
        stated(four, name, {}, earlier_cohort="any")
    # The newcomer has no history; where the others allow it, the run is made.
    assert [past["round"] for past in run(four)] == [0, 2]


@pytest.mark.slow
def test_a_model_of_the_seed_that_three_have_evaluated_is_not_evaluated_over_four(tmp_path: Path) -> None:
    three = study(tmp_path / "three", NAMES, standardize="none")
    assert [past["round"] for past in run(three)] == [0, 2]
    four = study(tmp_path / "four", FOUR, standardize="none")
    shutil.copytree(three.folder / "history", four.folder / "history")
    # The three leave that evaluation, and with it every site; the run continues.
    assert [past["round"] for past in run(four)] == [2]
    refused = [
        json.loads(line) for line in (four.folder / "logs" / "clinic-a_refusals.jsonl").read_text().splitlines()
    ]
    assert {(line["term"], line["purpose"], line["round"]) for line in refused} == {
        ("earlier_cohort", "evaluation", 0)
    }
