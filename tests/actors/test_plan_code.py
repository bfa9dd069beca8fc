"""Code that a plan names, at a site whose policy names its digest: what was read is what runs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml

from collaborator.plan_code import plan_code
from collaborator.preparation import make_ready
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import ApprovalError, PlanError
from fedfair.plan.digest import format_digest
from fedfair.policy.plan_check import DEPRECATED_CODE
from tests.plans import small_plan
from tests.site_reading import read_site

REFERENCE = "fedfair_test_approved:build"
APPROVED = """
from torch import nn

def build(schema):
    return nn.Linear(schema.input_shape[0], schema.classes)
"""
EVIL = APPROVED.replace("nn.Linear(", "nn.Sequential(nn.Linear(").replace("classes)", "classes))")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    torch.set_num_threads(1)
    source = tmp_path / "src" / "fedfair_test_approved.py"
    source.parent.mkdir()
    source.write_text(APPROVED)
    plan = small_plan(rounds=1)
    task = plan["task"]
    yield prepare(tmp_path, plan | {"task": task | {"model": REFERENCE}})
    _forget()


def _forget() -> None:
    sys.modules.pop("fedfair_test_approved", None)


def name_code(workspace: Workspace, *digests: str) -> Path:
    file = workspace.folder / "clinic-a.yaml"
    site = yaml.safe_load(file.read_text())
    site["policy"]["module_code"] = list(digests)
    file.write_text(yaml.safe_dump(site))
    return file


def digest_of(workspace: Workspace) -> str:
    digest = plan_code((REFERENCE,), workspace.folder, frozen=False).digest
    assert digest is not None
    return format_digest(digest)


def test_code_exchanged_after_the_policy_was_asked_neither_runs_nor_counts(workspace: Workspace) -> None:
    file = name_code(workspace, digest_of(workspace))
    _forget()  # The digest that was approved was made in this very process.
    site = read_site("clinic-a", file, workspace.plan, None)
    assert not site.code.folder.is_relative_to(workspace.folder)
    (workspace.folder / "src" / "fedfair_test_approved.py").write_text(EVIL)
    make_ready(site)  # It compares the plan's digest, which the model that the code makes is part of.
    ran = sys.modules["fedfair_test_approved"].__file__
    assert ran is not None
    assert Path(ran).is_relative_to(site.code.folder)
    assert site.code_warnings == ()


def test_code_that_is_exchanged_where_any_may_run_is_at_least_no_approved_plan(workspace: Workspace) -> None:
    file = workspace.folder / "clinic-a.yaml"
    stated = yaml.safe_load(file.read_text())
    stated["policy"]["allow_module_code"] = True
    file.write_text(yaml.safe_dump(stated))
    site = read_site("clinic-a", file, workspace.plan, None)
    _forget()
    (workspace.folder / "src" / "fedfair_test_approved.py").write_text(EVIL)
    with pytest.raises(ApprovalError, match="has approved plan"):
        make_ready(site)


def test_other_code_is_refused_before_any_of_it_runs(workspace: Workspace) -> None:
    file = name_code(workspace, digest_of(workspace))
    _forget()
    mark = workspace.folder / "the-code-has-run"
    source = workspace.folder / "src" / "fedfair_test_approved.py"
    source.write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n{APPROVED}")
    with pytest.raises(PlanError, match="runs other code here"):
        read_site("clinic-a", file, workspace.plan, None)
    assert not mark.exists()


def test_a_policy_that_allows_any_code_still_does_and_is_told_of_the_better_way(workspace: Workspace) -> None:
    file = workspace.folder / "clinic-a.yaml"
    site = yaml.safe_load(file.read_text())
    site["policy"]["allow_module_code"] = True
    file.write_text(yaml.safe_dump(site))
    found = read_site("clinic-a", file, workspace.plan, None)
    assert (found.code_warnings, found.code.folder) == ((DEPRECATED_CODE,), workspace.folder.resolve())
