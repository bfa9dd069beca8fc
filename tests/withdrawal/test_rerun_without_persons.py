"""A federation whose site loses persons: the run without them, and what would tell of one of them alone."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from typer.testing import CliRunner

from collaborator.preparation import make_ready
from collaborator.withdrawn.recording import record_withdrawal
from collaborator.withdrawn.tracing import trace_person
from fedfair.cli.commands import app
from fedfair.cli.loopback import Workspace, prepare
from fedfair.cli.model_faults import faults_of_model
from fedfair.identity.store import load_signing_key
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.policy.plan_check import PolicyError
from fedfair.run.initial_model import read_initial_model, vector_digest
from fedfair.run.saved_model import read_saved
from fedfair.simulation.simulate import simulate
from fedfair.withdrawal.notice import AffectedRun, WithdrawalNotice
from tests.interop.federation_kit import Federation, play
from tests.interop.test_continued_runs import extended
from tests.plans import small_plan
from tests.site_reading import read_site
from tests.withdrawal.test_withdraw_command import NOW

PERSONS = 60
GONE = [f"p {number}" for number in range(0, PERSONS, 3)]
TABLE = {"label": "died", "label_values": [0, 1], "numeric": ["age"], "categorical": {"ward": ["a", "b"]}}


def federation(folder: Path, *gone: str, protection: dict[str, object] | None = None) -> Workspace:
    """Prepare two clinics, whose sums have one order; the table of clinic-a lacks the rows of some."""
    folder.mkdir()
    plan = small_plan(rounds=2, names=("clinic-a", "clinic-b"), protection=protection)
    held = {"validation_fraction": 0.2, "test_fraction": 0.2}
    model = {"name": "linear", "init": "zeros"}
    plan["task"] = {"data": {"csv": {**TABLE, "missing": "mean"}}, "standardize": "secure", "model": model, **held}
    workspace = prepare(folder, plan)
    for number, name in enumerate(workspace.collaborators):
        draw = np.random.default_rng(number)
        rows = [
            f"p {person},{draw.integers(20, 90)},{'abc'[draw.integers(3)]},{draw.integers(2)}"
            for person in (*range(PERSONS), *range(0, PERSONS, 4))
        ]
        stay = [row for row in rows if name != "clinic-a" or row.split(",")[0] not in gone]
        (folder / f"{name}.csv").write_text("\n".join(["patient,age,ward,died", *stay]) + "\n")
        file = folder / f"{name}.yaml"
        site = yaml.safe_load(file.read_text())
        file.write_text(yaml.safe_dump({**site, "data": {"train": f"{name}.csv", "record_id": "patient"}}))
    return workspace


def played(workspace: Workspace, *, fresh: bool = False) -> NDArray[np.floating]:
    """Play a run to its end; return its model."""
    play(workspace, Federation.everybody, fresh=fresh)
    return read_saved(workspace.folder / "save/last.safetensors").saved.model.vector


def noticed(workspace: Workspace) -> Path:
    """Return the signed notice of clinic-a, which says neither who nor how many."""
    place = workspace.folder / "notice.json"
    files = ["-c", str(workspace.folder / "clinic-a.yaml"), "-p", str(workspace.plan), "-o", str(place)]
    done = CliRunner().invoke(app, ["data", "withdrawal-notice", *files])
    assert done.exit_code == 0, done.output
    return place


def rerun(workspace: Workspace, notice: Path) -> str:
    """Return what the lead is told."""
    done = CliRunner().invoke(app, ["plan", "rerun", "--notice", str(notice), "-p", str(workspace.plan)])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def simulated(workspace: Workspace) -> NDArray[np.floating]:
    """Simulate the same plan on the tables of its sites; return its model."""
    stated = yaml.safe_load(workspace.plan.read_text())
    stated["task"]["data"]["csv"]["train_of"] = {name: f"{name}.csv" for name in workspace.collaborators}
    return simulate(Plan.model_validate(stated), workspace.folder, engine="loop").model.vector


def test_a_rerun_without_persons_has_every_bit_of_a_run_on_tables_without_their_rows(tmp_path: Path) -> None:
    whole = federation(tmp_path / "whole")
    config = whole.folder / "clinic-a.yaml"
    first = played(whole)
    record_withdrawal(config, whole.plan, GONE[:1], "", NOW)

    # One person alone is refused before anything is summed.
    with pytest.raises(PolicyError, match="counted 1 persons who have withdrawn since, ") as refused:
        make_ready(read_site("clinic-a", config, whole.plan, None))
    assert [term.key for term in refused.value.broken] == ["withdrawals"]

    record_withdrawal(config, whole.plan, GONE, "", NOW)
    told = rerun(whole, noticed(whole))
    assert "run again: plan sha256:" in told
    assert "clinic-a: records that counted in this model were withdrawn" in told
    second = played(whole, fresh=True)
    assert "nothing has to be run again" in rerun(whole, noticed(whole))
    (superseded,) = json.loads(noticed(whole).read_bytes())["runs"]
    digests = [format_digest(vector_digest(model)) for model in (first, second)]
    assert [digest in superseded[-1] for digest in digests] == [True, False]
    assert second.tobytes() != first.tobytes()
    deleted = federation(tmp_path / "deleted", *GONE)
    assert second.tobytes() == played(deleted).tobytes() == simulated(deleted).tobytes()

    # A plan that was extended is put back as it was, if its first run is affected.
    before = (
        load_plan(deleted.plan),
        format_digest(read_initial_model(deleted.plan, load_plan(deleted.plan)).plan_digest),
    )
    extended(deleted, 2)
    affected = WithdrawalNotice("heart", "clinic-a", "2030-02-01", (AffectedRun("run-1", before[1]),))
    file = deleted.folder / "notice.json"
    file.write_bytes(affected.signed(load_signing_key(deleted.folder / "cert", "clinic-a")))
    assert f"run again: plan {before[1]}, put back" in rerun(deleted, file)
    assert load_plan(deleted.plan) == before[0]

    gone, stayed = trace_person(config, GONE[1]), trace_person(config, "p 1")
    assert (gone.withdrawn[:10], stayed.withdrawn) == ("2030-01-31", "")
    assert len(gone.runs) == 1
    assert len(stayed.runs) == 2
    (run,) = gone.runs
    assert (run.after_round, run.until_round, run.through) == (0, None, ())
    # Whoever uses this site's own copy of the model is told.
    (whole.folder / "collaborator.yaml").write_bytes(config.read_bytes())
    copies = [whole.folder / f"runs/clinic-a/{each.run}/save/last.safetensors" for each in (run, stayed.runs[1])]
    told_of = [[said for said in faults_of_model(copy, run.plan) if "withdrawn" in said] for copy in copies]
    assert told_of[0][0].startswith(f"{len(GONE)} persons have withdrawn whose records counted in this model")
    assert told_of[1] == []

    digests = [{model.file: model.weights for model in each.models} for each in (run, stayed.runs[1])]
    assert digests[0]["last.safetensors"] != digests[1]["last.safetensors"]
    _nothing_names_a_person(whole.folder)


@pytest.mark.slow
def test_a_masked_rerun_is_that_run_but_for_the_rounding_of_masked_numbers(tmp_path: Path) -> None:
    protection = {"mode": "malicious", "colluders": 0}
    whole, deleted = (federation(tmp_path / str(len(gone)), *gone, protection=protection) for gone in ((), GONE))
    first = played(whole)
    record_withdrawal(whole.folder / "clinic-a.yaml", whole.plan, GONE, "", NOW)
    played(deleted)
    # A masked site draws other batches at every attempt at a round, so a second run is compared with a second one.
    second, expected = played(whole, fresh=True), played(deleted, fresh=True)
    assert np.abs(second - expected).max() < 1e-4 < np.abs(second - first).max()


def _nothing_names_a_person(folder: Path) -> None:
    """Look for identifiers in every file but the tables."""
    found = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".csv" and b"p 27" in path.read_bytes()
    ]
    assert found == []


@pytest.mark.slow
def test_a_process_that_computes_apart_leaves_them_out_and_says_whose_its_records_are(tmp_path: Path) -> None:
    workspace = federation(tmp_path / "whole")
    config = workspace.folder / "clinic-a.yaml"
    site = yaml.safe_load(config.read_text())
    own = read_site("clinic-a", config, workspace.plan, None)
    here = make_ready(own)
    record_withdrawal(config, workspace.plan, GONE, "", NOW)
    config.write_text(yaml.safe_dump({**site, "worker": {"process": True}}))
    apart = make_ready(read_site("clinic-a", config, workspace.plan, None))
    try:
        left = {name: set(owners.tolist()) for name, owners in apart.owners.items()}
        assert left.keys() == {"train", "validation", "test"}
        assert len(set().union(*left.values())) == PERSONS - len(GONE)
        assert set().union(*left.values()) < set().union(*(set(one.tolist()) for one in here.owners.values()))
    finally:
        apart.computation.close()
        here.computation.close()
