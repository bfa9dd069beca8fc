"""A saved model of own code ("module:function"): which code in a workspace may run for it.

Decides that plan and code are compared with what the model's file says before any of that code runs, and that what
was compared is what runs. A file that states no initial weights cannot be compared before: its user names code.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from fedfair.errors import DataError
from fedfair.plan.digest import code_digest, format_digest, parse_digest
from fedfair.plan.loading import PLAN_FOLDER, load_plan
from fedfair.plan.module_code import code_digests
from fedfair.plan.schema import Plan
from fedfair.plan.task import ModelSpec
from fedfair.run.model_description import schema_of
from fedfair.run.model_provenance import digest_with
from fedfair.run.saved_model import DescribedModel
from fedfair.training.binding import bound
from fedfair.training.frozen_code import frozen_code

PLAN_FILE = "plan.yaml"


@dataclass(frozen=True, slots=True)
class OwnCode:
    """A saved model, and where its own code is said to be.

    Attributes:
        path: of the model's file.
        described: what the file says.
        workspace: the folder of the plan; None where none was named.
        stated: the digest of code that its user lets run, "sha256:" and 64 hex digits; None where none was named.
    """

    path: Path
    described: DescribedModel
    workspace: Path | None
    stated: str | None = None


def checked_code(own: OwnCode, reference: str) -> tuple[Path, int]:
    """Return the folder that a model's own code is to be run from, and its plan's seed.

    Args:
        own: the model, and where its code is said to be.
        reference: "module:function", of the model.

    Raises:
        DataError: no workspace was named, its plan or code did not train the model, or nothing tells before the
            code runs; none of it has run.
        PlanError: the workspace has no such plan or code.
    """
    if own.workspace is None:
        raise DataError(
            f"{own.path} holds a model of own code, {reference}, which its file does not contain",
            "name the workspace that has the plan and the code, with --workspace; that code is run here",
        )
    plan = load_plan(own.workspace / PLAN_FOLDER / PLAN_FILE)
    if reference not in (plan.task.model, plan.task.loss.name):
        raise DataError(
            f"{own.path} holds a model of {reference}, the plan in {own.workspace} states task.model "
            f"{_in_words(plan.task.model)} and task.loss {plan.task.loss.name}",
            "name the workspace of the run that trained it, unchanged",
        )
    folder = _folder(plan, own.workspace, reference)
    found = digest_with(own.described, plan, folder)
    if found is None:
        _check_stated(own, plan, folder)
        found = bound(plan, schema_of(own.described.origin.description), folder).digest
    trained_by = own.described.saved.plan_digest
    if format_digest(found) != trained_by:
        raise DataError(
            f"{own.path} was trained by the plan {trained_by or '(not said)'}, the plan and code in "
            f"{own.workspace} are {format_digest(found)}",
            "name the workspace of the run that trained it, unchanged",
        )
    return folder, plan.training.seed


def _in_words(model: ModelSpec) -> str:
    return model if isinstance(model, str) else model.name


def _folder(plan: Plan, workspace: Path, reference: str) -> Path:
    """Return a copy of the code, or the workspace where this process has already imported the code from there."""
    module = sys.modules.get(reference.partition(":")[0])
    source = None if module is None else module.__file__
    if source is not None and Path(source).resolve().is_relative_to(workspace.resolve()):
        return workspace
    return frozen_code(plan.task.references, workspace)


def _check_stated(own: OwnCode, plan: Plan, folder: Path) -> None:
    """Refuse code that the user has not named, where the model's file cannot tell what trained it."""
    found = format_digest(code_digest(code_digests(plan.task.references, folder)))
    if own.stated is None:
        raise DataError(
            f"{own.path} does not state its initial weights, so its plan cannot be compared before the code in "
            f"{own.workspace} runs",
            f"read that code; if it may run here, give --code-digest {found}",
        )
    if parse_digest(own.stated) != parse_digest(found):
        raise DataError(
            f"the code in {own.workspace} has the digest {found}, not {own.stated}",
            "name the code that you have read",
        )
