"""The difference of two workspaces in words: what a site must approve again, and what it would agree to.

Each side is a plan's file, a workspace's folder or its archive. Decides what a person must see before another plan
takes the place of the present one: every changed key, each guarantee before and after, and the code line by line.
No code of either side is run, whoever sent it; so the digest of a plan with own code is left to those who have
approved running it.
"""

from __future__ import annotations

import difflib
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fedfair.aggregation.masking_terms import guarantee
from fedfair.errors import FedfairError, PlanError
from fedfair.plan.description import summary
from fedfair.plan.difference import ChangedKey, Concern, changed_keys, is_same_plan
from fedfair.plan.digest import code_digest, format_digest
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.plan.module_code import SOURCE_FOLDER, code_digests
from fedfair.plan.schema import Plan
from fedfair.policy.disclosures import MEANING, of_run
from fedfair.workspace.archive import exported, read_archive, unpack
from fedfair.workspace.create import PLAN_FILE

MAX_LINES = 5000
"""Of a file that is compared line by line; finding the lines that two files share takes time with their square."""

ZIP_MARK = b"PK"
_SIDES = "name a workspace, an archive or a plan"

DigestOf = Callable[[Plan, Path], bytes]
"""From a plan without own code and its workspace to the 32 bytes that sites approve."""

_HEADINGS: Mapping[str, Concern] = {
    "federation": Concern.MEMBERSHIP,
    "protection": Concern.SECRECY,
    "guarantee": Concern.SECRECY,
    "differential privacy": Concern.PRIVACY,
    "leaves a site": Concern.PRIVACY,
    "reveals": Concern.PRIVACY,
}
"""By the heading of a sentence about a plan; every other one says what is computed."""


@dataclass(frozen=True, slots=True)
class WorkspaceSide:
    """One of two sides.

    Attributes:
        name: as the person named it.
        plan: its plan.
        code: the files under `src`, by their path in the workspace.
        code_digest: of the code that the plan names, as text; empty where it names none.
        digest: what sites approve, as text; empty where only running the plan's code could tell.
    """

    name: str
    plan: Plan
    code: Mapping[str, bytes]
    code_digest: str
    digest: str


@dataclass(frozen=True, slots=True)
class ChangedSentence:
    """One statement about a plan that is another one now; empty where there is none."""

    heading: str
    old: str
    new: str
    concern: Concern


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file of code that differs.

    Attributes:
        path: in the workspace.
        change: "added", "removed" or "changed".
        lines: the unified difference; where it cannot be shown, one line that says why.
    """

    path: str
    change: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkspaceDifference:
    """Everything that differs between two sides.

    Attributes:
        old: the side before.
        new: the side now.
        keys: changed keys, in the order of the plan.
        sentences: changed statements about the plan.
        files: changed files of code, sorted by their path.
    """

    old: WorkspaceSide
    new: WorkspaceSide
    keys: tuple[ChangedKey, ...]
    sentences: tuple[ChangedSentence, ...]
    files: tuple[ChangedFile, ...]

    @property
    def is_same(self) -> bool:
        """Return whether nothing differs, neither in the plans nor in the files of code."""
        return not self.keys and not self.files and self.keeps_approvals

    @property
    def keeps_approvals(self) -> bool:
        """Return whether both sides have one digest, so that what is approved stays approved."""
        return is_same_plan(self.old.plan, self.new.plan) and self.old.code_digest == self.new.code_digest


def side_of(path: Path, digest_of: DigestOf) -> WorkspaceSide:
    """Return one side of a comparison.

    Args:
        path: a plan's file, a workspace's folder, or its archive.
        digest_of: computes the digest of a plan without own code.

    Raises:
        PlanError: it cannot be read, or its plan breaks the schema.
    """
    if path.is_dir():
        if not (path / PLAN_FILE).is_file():
            raise PlanError(f"{path} is no workspace: it has no {PLAN_FILE}", _SIDES)
        return _side(str(path), path / PLAN_FILE, digest_of)
    if _is_archive(path):
        return side_of_archive(read_archive(path), str(path), digest_of)
    return _side(str(path), path, digest_of)


def side_of_archive(raw: bytes, name: str, digest_of: DigestOf) -> WorkspaceSide:
    """Return the side of an archive that was read already.

    Args:
        raw: the archive.
        name: its name, for people.
        digest_of: as for `side_of`.

    Raises:
        PlanError: it is not sound, or its plan breaks the schema.
    """
    with unpacked_archive(raw, name) as plan_file:
        return _side(name, plan_file, digest_of)


@contextmanager
def unpacked_archive(raw: bytes, name: str) -> Iterator[Path]:
    """Give the plan's file of an archive, in a folder that is removed at the end; a fault names the archive.

    Raises:
        PlanError: the archive is not sound, or holds no plan.
    """
    with tempfile.TemporaryDirectory(prefix="fedfair-archive-") as folder:
        try:
            unpack(raw, Path(folder))
            if not (Path(folder) / PLAN_FILE).is_file():
                raise PlanError(f"{name} holds no {PLAN_FILE}", "it is not an archive of a workspace")
            yield Path(folder) / PLAN_FILE
        except FedfairError as fault:
            message, remedy = fault.message, fault.remedy
            for place in (folder, str(Path(folder).resolve())):
                message, remedy = message.replace(place, name), remedy.replace(place, name)
            raise type(fault)(message, remedy) from fault


def _side(name: str, plan_file: Path, digest_of: DigestOf) -> WorkspaceSide:
    plan, workspace = load_plan(plan_file), workspace_of(plan_file)
    references = plan.task.references
    if references:
        return WorkspaceSide(
            name, plan, _code(workspace), format_digest(code_digest(code_digests(references, workspace))), ""
        )
    try:
        digest = format_digest(digest_of(plan, workspace))
    except PlanError:
        # A plan for a simulation may leave to its data what a digest needs.
        digest = ""
    is_workspace = plan_file.parts[-2:] == PLAN_FILE.parts
    return WorkspaceSide(name, plan, _code(workspace) if is_workspace else {}, "", digest)


def _is_archive(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(ZIP_MARK)) == ZIP_MARK
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}", _SIDES) from error


def _code(workspace: Path) -> dict[str, bytes]:
    names = (name for name in exported(workspace) if PurePosixPath(name).parts[0] == SOURCE_FOLDER)
    return {name: (workspace / name).read_bytes() for name in names if (workspace / name).is_file()}


def difference(old: WorkspaceSide, new: WorkspaceSide) -> WorkspaceDifference:
    """Return everything that differs between two sides."""
    return WorkspaceDifference(
        old, new, changed_keys(old.plan, new.plan), tuple(_sentences(old.plan, new.plan)), tuple(_files(old, new))
    )


def _sentences(old: Plan, new: Plan) -> Iterator[ChangedSentence]:
    before, after = _statements(old), _statements(new)
    for heading in dict.fromkeys((*before, *after)):
        pair = before.get(heading, ""), after.get(heading, "")
        if pair[0] != pair[1]:
            yield ChangedSentence(heading, *pair, _HEADINGS.get(heading, Concern.COMPUTATION))


def _statements(plan: Plan) -> dict[str, str]:
    revealed = "; ".join(f"{kind}: {MEANING[kind]}" for kind in of_run(plan))
    try:
        promised = guarantee(plan)
    except PlanError as fault:
        promised = f"none, for the plan cannot be run: {fault.message}"
    return {"guarantee": promised, **dict(summary(plan)), "reveals": revealed}


def _files(old: WorkspaceSide, new: WorkspaceSide) -> Iterator[ChangedFile]:
    for path in sorted({*old.code, *new.code}):
        before, after = old.code.get(path), new.code.get(path)
        if before == after:
            continue
        change = "added" if before is None else "removed" if after is None else "changed"
        yield ChangedFile(path, change, tuple(_line_difference(path, before or b"", after or b"")))


def _line_difference(path: str, old: bytes, new: bytes) -> Iterator[str]:
    sides = tuple(_text_lines(content) for content in (old, new))
    if None in sides:
        digests = " -> ".join(
            f"SHA-256 {hashlib.sha256(content).hexdigest()}" for content in (old, new) if content
        )
        yield f"cannot be shown line by line: not text, or more than {MAX_LINES} lines ({digests})"
        return
    before, after = sides
    yield from difflib.unified_diff(before or [], after or [], f"a/{path}", f"b/{path}", lineterm="")


def _text_lines(content: bytes) -> list[str] | None:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    # Only the end of a line is one: a form feed in it could otherwise hide how the lines are counted.
    lines = text.split("\n")
    ended = lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]} (no end of line)"]
    return None if "\0" in text or len(lines) > MAX_LINES else ended
