"""A changed plan on its way: `workspace export --update` writes it, `workspace import --update` takes it."""

from __future__ import annotations

from pathlib import Path

from fedfair.cli.answers import Answers
from fedfair.errors import PlanError
from fedfair.process.terminal import say
from fedfair.store.atomic_file import replace_file
from fedfair.workspace import archive
from fedfair.workspace.create import PLAN_FILE


def replace_archive(target: Path, raw: bytes, workspace: Path, *, quiet: bool = False) -> bytes:
    """Replace an older archive and show what changes; one that would be the same is left alone.

    Args:
        target: the older archive.
        raw: the one that is to take its place.
        workspace: what it was made of.
        quiet: whether to say nothing.

    Returns:
        The bytes of the archive that is there now.

    Raises:
        PlanError: what is there is no archive of a workspace.
    """
    from fedfair.cli.difference_text import digest_of_plan, show_difference
    from fedfair.workspace.difference import difference, side_of

    found = difference(side_of(target, digest_of_plan), side_of(workspace, digest_of_plan))
    inform = _silent if quiet else say
    if not quiet:
        show_difference(found)
    before = archive.read_contents(archive.read_archive(target))
    if before == archive.read_contents(raw):
        inform(f"{target} holds all of it already; it was left alone")
        return archive.read_archive(target)
    replace_file(target, [raw])
    inform(f"each site runs: fedfair workspace import {target.name} --update (or: fedfair join {target.name})")
    return raw


def take_update(raw: bytes, source: str, workspace: Path, answers: Answers, *, quiet: bool = False) -> bool:
    """Show what an archive changes in a workspace, ask, and put it in place: all of it or nothing.

    Args:
        raw: the archive.
        source: its name, for people.
        workspace: a workspace with a plan.
        answers: how the question whether to continue is answered.
        quiet: whether to say nothing, for programs.

    Returns:
        Whether anything was changed.

    Raises:
        PlanError: a run has begun, the archive is not sound, the operator did not agree, or a file
            cannot be written; the old workspace is whole.
    """
    from collaborator.plan_change import check_not_begun, site_folder, void_approval
    from fedfair.cli.difference_text import digest_of_plan, show_difference
    from fedfair.workspace.difference import difference, side_of, side_of_archive
    from fedfair.workspace.update import apply_update, finish_update, planned_update

    inform = _silent if quiet else say
    if finish_update(workspace):
        inform("an update that was interrupted is finished now")
    if not (workspace / PLAN_FILE).is_file():
        raise PlanError(f"{workspace} has no {PLAN_FILE} to update", "import the archive without --update")
    update = planned_update(raw, workspace)
    if update.is_empty:
        inform("the plan and its code are the same as here; nothing was changed")
        return False
    # What was read is compared and put in place, whatever becomes of the file meanwhile.
    arrived = side_of_archive(raw, source, digest_of_plan)
    found = difference(side_of(workspace, digest_of_plan), arrived)
    if not quiet:
        show_difference(found)
    site = site_folder(workspace)
    voids = site is not None and not found.keeps_approvals
    if site is not None and voids:
        check_not_begun(site)
    answers.confirm("Put this plan in the place of the present one?", "--yes", "nothing was changed")
    apply_update(update, workspace)
    inform(f"{len(update.replaced)} files written, {len(update.removed)} removed; all others are as they were")
    void = void_approval(site) if site is not None and voids else None
    if void is not None:
        inform(f"the approval of the old plan is void: it was moved from {void} to {void.parent / 'void'}")
    if voids:
        inform("next: `fedfair plan check -c collaborator.yaml`, then `fedfair plan approve`")
    return True


def _silent(text: str) -> None:
    """Say nothing."""
