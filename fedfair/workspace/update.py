"""Puts a changed plan in the place of the present one: all of its files, or none.

    .update/new/         every file that arrived and differs, whole
    .update/old/         every file that it replaces or removes
    .update/steps.json   which files are replaced and which are removed
    .update.part/        the same, until everything in it is on the disk

`.update` appears in one step, by a rename; before it, the old workspace is whole. From then on the update only
goes forward: each step can be done again, and `finish_update` does what is left after a crash. A plan is not read
meanwhile (`fedfair.plan.loading`), so nothing ever runs on half of an update. Only the files that travel change:
those of `plan/` and `src/`. Keys, data, the site's own file, records and models stay as they are.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fedfair.errors import PlanError
from fedfair.plan.loading import UPDATE_FOLDER
from fedfair.store.atomic_file import replace_file, sync_folder
from fedfair.store.vector_files import no_step
from fedfair.workspace.archive import exported, read_contents
from fedfair.workspace.create import PLAN_FILE

_PART = f"{UPDATE_FOLDER}.part"
_STEPS = "steps.json"
_NEW, _OLD = "new", "old"


@dataclass(frozen=True, slots=True)
class PlanUpdate:
    """The changes that an archive makes in a workspace.

    Attributes:
        replaced: contents of the files that are new or differ, by their path in the workspace.
        removed: files that the archive no longer has, by their path.
    """

    replaced: Mapping[str, bytes]
    removed: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether every file is as it would be."""
        return not self.replaced and not self.removed


def planned_update(raw: bytes, workspace: Path) -> PlanUpdate:
    """Return what an archive changes in a workspace; nothing is written.

    Raises:
        PlanError: the archive is not sound or has no plan, or a file cannot be read or leads out of the workspace.
    """
    arrived = {name: content for name, content in read_contents(raw).items() if _is_shared(name)}
    if PLAN_FILE.as_posix() not in arrived:
        raise PlanError(f"the archive has no {PLAN_FILE}", "it is not an archive of a workspace")
    present = {name: _content(workspace, name) for name in exported(workspace)}
    removed = tuple(sorted(present.keys() - arrived.keys()))
    replaced = {name: content for name, content in arrived.items() if present.get(name) != content}
    for name in (*replaced, *removed):
        _check_place(workspace, name)
    return PlanUpdate(replaced, removed)


def apply_update(update: PlanUpdate, workspace: Path, reached: Callable[[str], None] = no_step) -> None:
    """Put an update in place: all of it or nothing, whenever the process dies.

    Args:
        update: of this workspace.
        workspace: its folder.
        reached: called with the name of each step before it is taken; a test can stop there.

    Raises:
        PlanError: a file cannot be written; the old workspace is whole.
    """
    part = workspace / _PART
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        for name, content in update.replaced.items():
            reached(f"write {name}")
            _write(part / _NEW / name, content)
        for name in (*update.replaced, *update.removed):
            if (workspace / name).exists():
                reached(f"copy {name}")
                _write(part / _OLD / name, (workspace / name).read_bytes())
        steps = {"replaced": sorted(update.replaced), "removed": list(update.removed)}
        _write(part / _STEPS, json.dumps(steps).encode("utf-8"))
        reached("begin")
        part.rename(workspace / UPDATE_FOLDER)
        sync_folder(workspace)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        remedy = "make room on the disk, or let this user write there"
        raise _unwritten(error, workspace, "the old plan is whole", remedy) from error
    finish_update(workspace, reached)


def finish_update(workspace: Path, reached: Callable[[str], None] = no_step) -> bool:
    """Finish an update that has begun, where there is one; return whether there was.

    Args:
        workspace: its folder.
        reached: as for `apply_update`.

    Raises:
        PlanError: a file cannot be written. The files that were replaced are the old ones again, unless that fails
            too; then no plan is read here until this succeeds.
    """
    update, part = workspace / UPDATE_FOLDER, workspace / _PART
    if part.is_dir():
        # A process died before its update had begun.
        shutil.rmtree(part, ignore_errors=True)
    if not update.is_dir():
        return False
    replaced, removed = _read_steps(update)
    try:
        for name in replaced:
            reached(f"place {name}")
            _move(update / _NEW / name, workspace / name)
        for name in removed:
            reached(f"remove {name}")
            (workspace / name).unlink(missing_ok=True)
    except OSError as error:
        _take_back(update, workspace, replaced)
        raise _unwritten(error, workspace, "the old plan is in place again") from error
    _drop_empty_folders(workspace, removed)
    reached("end")
    _end(update, workspace)
    return True


def _unwritten(
    error: OSError,
    workspace: Path,
    state: str,
    remedy: str = "let this user write there, then run the same command again",
) -> PlanError:
    return PlanError(f"{error.filename or workspace} cannot be written: {error.strerror}; {state}", remedy)


def _read_steps(update: Path) -> tuple[list[str], list[str]]:
    try:
        steps = json.loads((update / _STEPS).read_text(encoding="utf-8"))
        replaced, removed = list(map(str, steps["replaced"])), list(map(str, steps["removed"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(
            f"{update}/{_STEPS} is damaged",
            f"move {update} away, and import the archive into a folder of its own",
        ) from error
    if not all(_is_shared(name) for name in (*replaced, *removed)):
        raise PlanError(f"{update}/{_STEPS} names files that no update touches", f"move {update} away")
    return replaced, removed


def _move(source: Path, target: Path) -> None:
    """Put a file in its place; one that has been put there by an earlier try is there already."""
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)


def _take_back(update: Path, workspace: Path, replaced: Iterable[str]) -> None:
    """Put the old files back; after a failure here the update stays begun."""
    try:
        for name in replaced:
            if not (update / _OLD / name).exists() and not (update / _NEW / name).exists():
                (workspace / name).unlink(missing_ok=True)
        for path in sorted((update / _OLD).rglob("*")):
            if path.is_file():
                replace_file(workspace / path.relative_to(update / _OLD), [path.read_bytes()])
    except OSError as error:
        state = "the update is half done, and no command uses this plan"
        raise _unwritten(error, workspace, state) from error
    _end(update, workspace)


def _end(update: Path, workspace: Path) -> None:
    sync_folder(workspace)
    # The rename ends the update in one step; what is left of its folder means nothing.
    done = workspace / _PART
    shutil.rmtree(done, ignore_errors=True)
    update.rename(done)
    shutil.rmtree(done, ignore_errors=True)


def _drop_empty_folders(workspace: Path, removed: Iterable[str]) -> None:
    for name in removed:
        for parent in (workspace / name).parents:
            if parent.parent == workspace or not parent.is_dir() or any(parent.iterdir()):
                break
            parent.rmdir()


def _is_shared(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and parts[0] in {"plan", "src"}


def _content(workspace: Path, name: str) -> bytes:
    try:
        return (workspace / name).read_bytes()
    except OSError as error:
        raise PlanError(f"{workspace / name} cannot be read: {error.strerror}; nothing was written") from error


def _check_place(workspace: Path, name: str) -> None:
    path = workspace / name
    inside = path.parent.resolve().is_relative_to(workspace.resolve())
    blocked = any(parent.exists() and not parent.is_dir() for parent in path.parents)
    if path.is_symlink() or not inside or blocked or (path.exists() and not path.is_file()):
        raise PlanError(f"{path} is no plain file of this workspace; nothing was written", "move it away first")


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [content])
