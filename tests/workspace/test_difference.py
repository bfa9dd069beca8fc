"""Two workspaces side by side: plans, guarantees and code, of folders, archives and plans; nothing is run."""

import shutil
from pathlib import Path

import pytest

from fedfair.errors import PlanError
from fedfair.plan.difference import Concern
from fedfair.plan.schema import Plan
from fedfair.workspace.archive import pack
from fedfair.workspace.create import create_workspace, write_module
from fedfair.workspace.difference import MAX_LINES, WorkspaceDifference, difference, side_of

TRAP = "raise SystemExit('ran')\n"


def no_digest(_plan: Plan, _workspace: Path) -> bytes:
    return bytes(32)


def compared(old: Path, new: Path) -> WorkspaceDifference:
    return difference(side_of(old, no_digest), side_of(new, no_digest))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    create_workspace(tmp_path / "old", "heart", "breast-cancer")
    return tmp_path / "old"


@pytest.fixture
def new(old: Path, tmp_path: Path) -> Path:
    shutil.copytree(old, tmp_path / "new")
    return tmp_path / "new"


def edit(folder: Path, *pairs: tuple[str, str]) -> None:
    plan = folder / "plan" / "plan.yaml"
    for before, after in pairs:
        assert before in plan.read_text()
        plan.write_text(plan.read_text().replace(before, after))


def test_code_is_compared_line_by_line_and_never_run(old: Path, new: Path, tmp_path: Path) -> None:
    for folder in (old, new):
        write_module(folder, "own")
        edit(folder, ("model: {name: linear}", 'model: "own:model"'))
    (new / "src" / "own.py").write_text(TRAP)
    (tmp_path / "new.zip").write_bytes(pack(new))
    found = compared(old, tmp_path / "new.zip")
    (changed,) = found.files
    assert (changed.path, changed.change) == ("src/own.py", "changed")
    assert f"+{TRAP.rstrip()}" in changed.lines
    assert found.keys == ()
    assert found.old.code_digest != found.new.code_digest
    assert (found.old.digest, found.new.digest) == ("", "")
    assert not found.keeps_approvals


def test_folders_archives_comments_and_order_are_no_difference(old: Path, tmp_path: Path, new: Path) -> None:
    (tmp_path / "old.zip").write_bytes(pack(old))
    for other in (old, tmp_path / "old.zip", old / "plan" / "plan.yaml"):
        assert compared(old, other).is_same
    edit(new, ("# What the consortium agrees on.", "# Another comment."))
    assert compared(old, new).is_same
    (new / "src" / "notes.py").write_text("X = 1\n")
    found = compared(old, new)
    assert [one.change for one in found.files] == ["added"]
    assert found.keeps_approvals
    assert not found.is_same


@pytest.mark.parametrize("content", [b"\x00\x01", b"\xff\xfe", b"x\n" * (MAX_LINES + 1)])
def test_what_cannot_be_shown_line_by_line_is_named_with_its_digest(old: Path, new: Path, content: bytes) -> None:
    (new / "src" / "weights.bin").write_bytes(content)
    (line,) = compared(old, new).files[0].lines
    assert "cannot be shown line by line" in line
    assert "SHA-256 " in line


def test_guarantees_and_faults_are_told_with_their_places(old: Path, new: Path, tmp_path: Path) -> None:
    edit(new, ("mode: malicious", 'mode: "off"'), ("rounds: 100", "rounds: 7"))
    found = compared(old, new)
    told = {one.heading: one for one in found.sentences}
    assert told["guarantee"].concern is Concern.SECRECY
    assert told["guarantee"].new.startswith("NONE: secure aggregation is OFF")
    assert told["trains"].concern is Concern.COMPUTATION
    assert not found.is_same
    assert not found.keeps_approvals
    edit(new, ("rounds: 7", "rounds: none"))
    (tmp_path / "new.zip").write_bytes(pack(new))
    with pytest.raises(PlanError) as fault:
        compared(old, tmp_path / "new.zip")
    assert f"{tmp_path}/new.zip/plan/plan.yaml" in fault.value.message


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_what_is_no_workspace_is_refused(old: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(PlanError, match=r"cannot be read|is no workspace"):
        compared(old, tmp_path / name)
