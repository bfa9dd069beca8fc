"""The inbox of a site: one folder for each study, which the service fills and in which people decide.

    studies/NAME/
        proposal.json        the signed act that proposed the study
        archive.zip          as it was fetched
        workspace/           unpacked after its checks
        decisions/PERSON.json
        approval.json        the site's own approval, made by the service once enough people have approved
        status.json          where the study stands, written by the service alone
        logs/ save/

Decides which file lies where, and how a decision is put there: a refusal or a withdrawal is never written over, so
a study that was ended is not begun again by mistake. What decisions come to is the business of `decisions.py`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fedfair.consent.approvers import Approvers
from fedfair.consent.decisions import (
    MAX_BYTES,
    Choice,
    DecisionFault,
    PersonDecision,
    StudySubject,
    verify_decision,
)
from fedfair.errors import ApprovalError, StateError
from fedfair.store.atomic_file import OWNER_ONLY, replace_file

STUDIES_FOLDER = "studies"
STATUS_FORMAT = "fedfair/study-status/1"
MAX_STATUS_BYTES = 65_536

_STUDY = re.compile(r"[a-z0-9-]{1,40}")


class SitePhase(StrEnum):
    """Where a study stands at a site."""

    ARRIVING = "arriving"
    PROPOSED = "proposed"
    APPROVED = "approved"
    REFUSED = "refused"
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    WITHDRAWN = "withdrawn"
    FAILED = "failed"


FINAL = frozenset({SitePhase.REFUSED, SitePhase.ENDED, SitePhase.WITHDRAWN, SitePhase.FAILED})
"""Phases that no decision changes any more."""


@dataclass(frozen=True, slots=True)
class StudyStatus:
    """Where a study stands, as the service wrote it last.

    Attributes:
        phase: the phase.
        words: one sentence for people; may be empty.
        since: when the phase began, in ISO 8601.
    """

    phase: SitePhase
    words: str
    since: str


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """The files of one study at a site.

    Attributes:
        path: the folder, whose name is that of the study.
    """

    path: Path

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.path.name

    @property
    def proposal(self) -> Path:
        """The bytes of the signed act that proposed it."""
        return self.path / "proposal.json"

    @property
    def archive(self) -> Path:
        """The archive as it was fetched."""
        return self.path / "archive.zip"

    @property
    def workspace(self) -> Path:
        """Plan and code, unpacked after their checks."""
        return self.path / "workspace"

    @property
    def plan(self) -> Path:
        """The plan's file."""
        return self.workspace / "plan" / "plan.yaml"

    @property
    def decisions(self) -> Path:
        """Folder of the decisions of people."""
        return self.path / "decisions"

    @property
    def approval(self) -> Path:
        """The site's own approval."""
        return self.path / "approval.json"

    @property
    def status(self) -> Path:
        """Where the study stands."""
        return self.path / "status.json"

    @property
    def logs(self) -> Path:
        """Folder of what a run writes about itself."""
        return self.path / "logs"

    @property
    def save(self) -> Path:
        """Folder of what a run saves."""
        return self.path / "save"


def parse_study(text: str) -> str:
    """Return a text as the name of a study.

    Raises:
        ApprovalError: it is not 1 to 40 of a-z, 0-9 and hyphens, so it can name no folder.
    """
    if not _STUDY.fullmatch(text):
        raise ApprovalError(
            f"{text[:80]!r} cannot name a study", "use 1 to 40 of a-z, 0-9 and '-', as `fedfair inbox` prints it"
        )
    return text


def inbox(site_folder: Path) -> tuple[StudyFolder, ...]:
    """Return the studies of a site, by name.

    Args:
        site_folder: the folder of `collaborator.yaml`.
    """
    folder = site_folder / STUDIES_FOLDER
    if not folder.is_dir():
        return ()
    found = (one for one in sorted(folder.iterdir()) if one.is_dir() and not one.is_symlink())
    return tuple(StudyFolder(one) for one in found if _STUDY.fullmatch(one.name))


def study_folder(site_folder: Path, name: str) -> StudyFolder:
    """Return one study of a site.

    Raises:
        ApprovalError: the name can name no study, or there is none.
    """
    known = {one.name: one for one in inbox(site_folder)}
    if parse_study(name) not in known:
        raise ApprovalError(
            f"there is no study {name!r} in {site_folder / STUDIES_FOLDER}",
            f"the studies are {', '.join(known)}" if known else "no study has arrived here yet",
        )
    return known[name]


def read_decisions(
    folder: StudyFolder, approvers: Approvers, subject: StudySubject
) -> tuple[tuple[PersonDecision, ...], tuple[DecisionFault, ...]]:
    """Return the verified decisions of a study, in the order of the people, and the named faults of the others.

    Args:
        folder: the study.
        approvers: the people as they are now.
        subject: what a decision must be about.
    """
    verified: list[PersonDecision] = []
    faults: list[DecisionFault] = []
    for name in sorted(_decided(folder)):
        try:
            person = approvers.person(name)
            raw = _bounded(folder.decisions / f"{name}.json", MAX_BYTES)
            verified.append(verify_decision(raw, subject=subject, person=name, public_key=person.key))
        except ApprovalError as fault:
            faults.append(DecisionFault(name, fault.message))
        except OSError as fault:
            faults.append(DecisionFault(name, f"its file cannot be read: {fault.strerror}"))
    order = {name: number for number, name in enumerate(approvers.people)}
    return tuple(sorted(verified, key=lambda one: order[one.person])), tuple(faults)


def write_decision(folder: StudyFolder, decision: PersonDecision, approvers: Approvers) -> Path:
    """Put a decision where the service finds it, in place of the same person's earlier approval.

    Args:
        folder: the study.
        decision: signed by one of the people.
        approvers: the people as they are now.

    Returns:
        its file.

    Raises:
        ApprovalError: the decision does not verify; it withdraws what was not approved; or the study was refused,
            withdrawn or ended before.
        OSError: it cannot be written.
    """
    person = approvers.person(decision.person)
    raw = decision.to_bytes()
    verify_decision(raw, subject=decision.subject, person=person.name, public_key=person.key)
    check_open(folder, decision.choice, approvers, decision.subject)
    folder.decisions.mkdir(exist_ok=True)
    target = folder.decisions / f"{person.name}.json"
    replace_file(target, [raw], OWNER_ONLY)
    return target


def check_open(folder: StudyFolder, choice: Choice, approvers: Approvers, subject: StudySubject) -> None:
    """Refuse a choice that a study no longer takes, or does not take yet.

    Raises:
        ApprovalError: the study was refused, withdrawn or ended; or it is not approved by anybody, and so not
            withdrawn from; or the site has approved it, and it is withdrawn and not refused.
    """
    phase = read_status(folder).phase
    verified, _ = read_decisions(folder, approvers, subject)
    ended = next((one for one in verified if one.choice is not Choice.APPROVE), None)
    if ended is not None:
        raise ApprovalError(
            f"{ended.person} has decided to {ended.choice} {folder.name}, and one decision ends it",
            "who proposed it may propose it again under another name",
        )
    if phase in FINAL:
        raise ApprovalError(f"{folder.name} is {phase}: nothing is decided about it any more")
    if phase is SitePhase.ARRIVING and choice is not Choice.REFUSE:
        raise ApprovalError(f"{folder.name} is still arriving", "decide once all of it is here and checked")
    agreed = bool(verified) or folder.approval.exists()
    if choice is Choice.WITHDRAW and not agreed:
        raise ApprovalError(f"nobody here has approved {folder.name}: nothing to withdraw", "refuse it")
    if choice is Choice.REFUSE and folder.approval.exists():
        raise ApprovalError(f"this site has approved {folder.name} already", "withdraw the approval")


def read_status(folder: StudyFolder) -> StudyStatus:
    """Return where a study stands; arriving, until the service has written something.

    Raises:
        StateError: the file is damaged.
    """
    try:
        found = json.loads(_bounded(folder.status, MAX_STATUS_BYTES))
        return StudyStatus(SitePhase(found["phase"]), str(found["words"]), str(found["since"]))
    except FileNotFoundError:
        return StudyStatus(SitePhase.ARRIVING, "", "")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StateError(
            f"{folder.status} does not tell where the study stands", "start `fedfair collaborator serve` again"
        ) from error


def write_status(folder: StudyFolder, status: StudyStatus) -> None:
    """Write where a study stands; the service alone does that.

    Raises:
        OSError: it cannot be written.
    """
    values = {
        "format": STATUS_FORMAT,
        "phase": status.phase.value,
        "words": status.words,
        "since": status.since,
    }
    replace_file(folder.status, [json.dumps(values, indent=1).encode("ascii"), b"\n"])


def _decided(folder: StudyFolder) -> list[str]:
    if not folder.decisions.is_dir():
        return []
    return [one.stem for one in folder.decisions.glob("*.json") if not one.name.startswith(".")]


def _bounded(path: Path, most: int) -> bytes:
    with path.open("rb") as source:
        return source.read(most + 1)
