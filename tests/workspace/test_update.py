"""Another plan in the place of the present one: whole or not at all, whenever the process dies."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedfair.errors import PlanError
from fedfair.plan.loading import UPDATE_FOLDER, load_plan
from fedfair.workspace.archive import pack
from fedfair.workspace.create import create_workspace
from fedfair.workspace.update import apply_update, finish_update, planned_update


class StopError(Exception):
    """The process dies here."""


OWN = {"cert/clinic-a/signing.key": "key", "data/own.csv": "1,2", "collaborator.yaml": "mine", "runs/a/x": "run"}


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    create_workspace(folder, "heart", "breast-cancer")
    (folder / "src" / "part").mkdir()
    (folder / "src" / "part" / "old.py").write_text("OLD = 1\n")
    (folder / "src" / "same.py").write_text("SAME = 1\n")
    (folder / "src" / ".hidden").write_text("mine")
    for name, text in OWN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    folder = tmp_path / "lead"
    create_workspace(folder, "heart", "breast-cancer")
    plan = folder / "plan" / "plan.yaml"
    plan.write_text(plan.read_text().replace("rounds: 100", "rounds: 7"))
    (folder / "plan" / "roster.yaml").write_text("{}\n")
    (folder / "src" / "same.py").write_text("SAME = 1\n")
    (folder / "src" / "new.py").write_text("NEW = 1\n")
    return pack(folder)


def test_an_update_brings_what_travels_and_leaves_what_is_the_sites_own(site: Path, archive: bytes) -> None:
    plan = planned_update(archive, site)
    assert sorted(plan.replaced) == ["plan/plan.yaml", "plan/roster.yaml", "src/new.py"]
    assert plan.removed == ("src/part/old.py",)
    apply_update(plan, site)
    assert load_plan(site / "plan" / "plan.yaml").training.rounds == 7
    found = tree(site)
    assert {name: found[name].decode() for name in OWN} == OWN
    assert found["src/.hidden"] == b"mine"
    assert "src/part/old.py" not in found
    assert not (site / "src" / "part").exists()
    assert not [path for path in site.iterdir() if path.name.startswith(UPDATE_FOLDER)]
    assert planned_update(archive, site).is_empty


STEPS = [
    "write plan/plan.yaml", "write plan/roster.yaml", "write src/new.py", "copy plan/plan.yaml",
    "copy src/part/old.py", "begin", "place plan/plan.yaml", "place plan/roster.yaml", "place src/new.py",
    "remove src/part/old.py", "end",
]  # fmt: skip
BEGUN = STEPS[STEPS.index("begin") + 1 :]


def stops_before(step: str, fault: Exception) -> Callable[[str], None]:
    def reached(name: str) -> None:
        if name == step:
            raise fault

    return reached


def test_these_are_the_steps(site: Path, archive: bytes) -> None:
    steps: list[str] = []
    apply_update(planned_update(archive, site), site, steps.append)
    assert steps == STEPS


@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_dies_leaves_old_or_new(site: Path, archive: bytes, tmp_path: Path, step: str) -> None:
    before, whole = tree(site), tmp_path / "whole"
    shutil.copytree(site, whole)
    apply_update(planned_update(archive, whole), whole)
    with pytest.raises(StopError):
        apply_update(planned_update(archive, site), site, stops_before(step, StopError()))
    if step in BEGUN:
        with pytest.raises(PlanError, match="was interrupted"):
            load_plan(site / "plan" / "plan.yaml")
    assert finish_update(site) is (step in BEGUN)
    assert tree(site) == (tree(whole) if step in BEGUN else before)


@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_disk_that_is_full_leaves_the_old_plan(site: Path, archive: bytes, step: str) -> None:
    before = tree(site)
    full = OSError(errno.ENOSPC, "No space left on device", str(site))
    with pytest.raises(PlanError, match=r"the old plan is (whole|in place again)"):
        apply_update(planned_update(archive, site), site, stops_before(step, full))
    assert tree(site) == before
    apply_update(planned_update(archive, site), site)
    assert planned_update(archive, site).is_empty


def test_links_and_written_steps_do_not_reach_out_of_the_plan(site: Path, archive: bytes, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(site / "src")
    (site / "src").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlanError, match="nothing was written"):
        planned_update(archive, site)
    assert not list((tmp_path / "elsewhere").iterdir())
    (site / UPDATE_FOLDER).mkdir()
    (site / UPDATE_FOLDER / "steps.json").write_text('{"replaced": [], "removed": ["cert/clinic-a/signing.key"]}')
    with pytest.raises(PlanError, match="no update touches"):
        finish_update(site)
    assert (site / "cert" / "clinic-a" / "signing.key").exists()
