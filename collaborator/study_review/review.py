"""A study beside the one before it: its parts, which of them differ, and why it cannot be approved, if so.

The study before is the one that this site approved last. A part differs if anything that it is made of does; the
ledger always does, because every study meets another sum of what was spent. What differs must be opened before an
approval: all parts, where this site has approved nothing yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from collaborator.study_review.blocks import Block, SourceText, TableBlock, fingerprint
from collaborator.study_review.examination import Examination
from collaborator.study_review.parts import (
    TITLES,
    ReviewPart,
    StudyFiles,
    code_blocks,
    ledger_blocks,
    policy_blocks,
    policy_terms,
    records_blocks,
    study_blocks,
    study_files,
)
from collaborator.study_review.proposal import StudyProposal, read_proposal
from fedfair.consent.inbox import StudyFolder, inbox
from fedfair.errors import ApprovalError, FedfairError
from fedfair.plan.difference import ABSENT
from fedfair.plan.digest import canonical_plan, parse_digest
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan
from fedfair.policy.site_config import load_site_config
from fedfair.workspace.difference import WorkspaceDifference, WorkspaceSide, difference, side_of


@dataclass(frozen=True, slots=True)
class ShownPart:
    """One part of a study.

    Attributes:
        part: which.
        title: its heading.
        blocks: what it holds.
        changes: how it differs from the study before; empty where it does not, or there is none.
        differs: whether it must be opened before an approval.
        fingerprint: 64 hex digits; another one whenever anything else is shown.
    """

    part: ReviewPart
    title: str
    blocks: tuple[Block, ...]
    changes: tuple[Block, ...]
    differs: bool
    fingerprint: str


@dataclass(frozen=True, slots=True)
class StudyReview:
    """A study as people read it.

    Attributes:
        folder: its files.
        proposal: who proposed what.
        site: the collaborator whose people decide.
        before: name of the study that this site approved last; empty where there is none.
        parts: all of them, in the order of reading.
        obstacles: why it cannot be approved as things are; none where it can.
    """

    folder: StudyFolder
    proposal: StudyProposal
    site: str
    before: str
    parts: Mapping[ReviewPart, ShownPart]
    obstacles: tuple[str, ...]

    @property
    def to_open(self) -> tuple[ReviewPart, ...]:
        """Return the parts that must be opened before an approval."""
        return tuple(part for part, shown in self.parts.items() if shown.differs)


def review_of(config_file: Path, folder: StudyFolder, found: Examination) -> StudyReview:
    """Return a study as people read it.

    Args:
        config_file: the site's `collaborator.yaml`.
        folder: the study.
        found: by `examined`, of this plan.

    Raises:
        FedfairError: the proposal, the plan or the site's own file cannot be read.
    """
    proposal, files = read_proposal(folder), _files(config_file, folder)
    earlier = last_approved(config_file.parent, folder.name)
    before = None if earlier is None else _files(config_file, earlier)
    blocks: Mapping[ReviewPart, Iterator[Block]] = {
        ReviewPart.STUDY: study_blocks(files, proposal),
        ReviewPart.POLICY: policy_blocks(files),
        ReviewPart.RECORDS: records_blocks(found),
        ReviewPart.LEDGER: ledger_blocks(found, files),
        ReviewPart.CODE: code_blocks(files, proposal, found),
    }
    changes: Mapping[ReviewPart, tuple[Block, ...]] = {}
    if before is not None and earlier is not None:
        sides = (_side(earlier, read_proposal(earlier)), _side(folder, proposal))
        changes = _changes(difference(*sides))
    parts = {}
    for part, made in blocks.items():
        shown = tuple(made)
        compared = _COMPARED[part]
        differs = before is None or compared is None or compared(before) != compared(files)
        told = changes.get(part, ()) if differs else ()
        parts[part] = ShownPart(part, TITLES[part], shown, told, differs, fingerprint((*shown, *told)))
    name = "" if earlier is None else earlier.name
    obstacles = tuple(_obstacles(files, proposal, found))
    return StudyReview(folder, proposal, files.config.collaborator, name, parts, obstacles)


def last_approved(home: Path, but: str) -> StudyFolder | None:
    """Return the study that a site approved last, without one that is being looked at; None where there is none.

    Args:
        home: the site's folder.
        but: name of the study that is being looked at.
    """
    dated = [(_approved_at(folder), folder.name, folder) for folder in inbox(home) if folder.name != but]
    return max((one for one in dated if one[0]), default=("", "", None))[2]


def _approved_at(folder: StudyFolder) -> str:
    """Return when the site's approval was made; empty where it has made none of what lies here."""
    try:
        found = json.loads(folder.approval.read_bytes())
        if found["plan_digest"] != read_proposal(folder).plan_digest or not folder.plan.is_file():
            return ""
        return str(found["approved_at"])
    except (OSError, ValueError, KeyError, TypeError, ApprovalError):
        return ""


def _files(config_file: Path, folder: StudyFolder) -> StudyFiles:
    if not folder.plan.is_file():
        raise ApprovalError(
            f"{folder.name} has not arrived: there is no {folder.plan}", "wait until the service has fetched it"
        )
    return StudyFiles(load_plan(folder.plan), folder.plan, load_site_config(config_file), config_file.parent)


def _task(plan: Plan) -> object:
    return plan.task.model_dump(mode="json")


def _terms(files: StudyFiles) -> object:
    try:
        return policy_terms(files)
    except FedfairError as fault:
        return fault.message


_COMPARED: Mapping[ReviewPart, Callable[[StudyFiles], object] | None] = {
    ReviewPart.STUDY: lambda files: canonical_plan(files.plan),
    ReviewPart.POLICY: _terms,
    ReviewPart.RECORDS: lambda files: _task(files.plan),
    ReviewPart.LEDGER: None,
    ReviewPart.CODE: lambda files: {
        name: found for name, found in study_files(files.plan_file).items() if not name.endswith(".yaml")
    },
}
"""What two studies are compared by, part by part; None for a part that differs whatever it holds."""


def _obstacles(files: StudyFiles, proposal: StudyProposal, found: Examination) -> Iterator[str]:
    """Yield why a start would refuse the study, or would run something else."""
    if proposal.federation != files.plan.federation.name:
        yield f"the proposal is of {proposal.federation!r}, the plan of {files.plan.federation.name!r}"
    if files.config.collaborator not in files.plan.federation.collaborators:
        yield f"{files.config.collaborator} is no collaborator of this plan"
    for step, fault in found.faults.items():
        yield f"{step}: {fault}"
    if not found.plan_digest and "digest" not in found.faults:
        yield "the digest of the plan is not known here"
    if found.plan_digest and found.plan_digest != proposal.plan_digest:
        yield f"what arrived has digest {found.plan_digest}, the proposal is of {proposal.plan_digest}"


def _side(folder: StudyFolder, proposal: StudyProposal) -> WorkspaceSide:
    # The digest is that of the proposal: whether it is right is found by the examination.
    found = side_of(folder.workspace, lambda _plan, _workspace: parse_digest(proposal.plan_digest))
    return WorkspaceSide(folder.name, found.plan, found.code, found.code_digest, found.digest)


def _changes(found: WorkspaceDifference) -> dict[ReviewPart, tuple[Block, ...]]:
    """Return how two studies differ, by the part that tells it."""
    old, new = found.old.name, found.new.name
    study: list[Block] = []
    if found.sentences:
        rows = [(one.heading, one.old or "none", one.new or "none") for one in found.sentences]
        study.append(TableBlock("How it differs, in words", ("about", old, new), tuple(rows)))
    if found.keys:
        keys = [(key.key, _value(key.old), _value(key.new), key.concern.value) for key in found.keys]
        study.append(TableBlock("Keys that differ", ("key", old, new, "is about"), tuple(keys)))
    code = [SourceText(f"{one.change}: {one.path}", "\n".join(one.lines), True) for one in found.files]
    return {ReviewPart.STUDY: tuple(study), ReviewPart.CODE: tuple(code)}


def _value(value: object) -> str:
    if value is ABSENT:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
