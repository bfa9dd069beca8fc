"""The inbox in lines: where each study stands, who has decided, and what is awaited."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collaborator.study_review.proposal import StudyProposal, read_proposal
from fedfair.consent.approvers import APPROVERS_FILE, Approvers, load_approvers
from fedfair.consent.decisions import Consent, DecisionFault, PersonDecision, tally
from fedfair.consent.inbox import FINAL, SitePhase, StudyFolder, StudyStatus, inbox, read_decisions, read_status
from fedfair.errors import FedfairError
from fedfair.policy.site_config import load_site_config


@dataclass(frozen=True, slots=True)
class SiteInbox:
    """A site whose people decide.

    Attributes:
        config_file: its `collaborator.yaml`.
        site: its name.
        approvers: its people, as they are now.
    """

    config_file: Path
    site: str
    approvers: Approvers

    @property
    def home(self) -> Path:
        """Folder of the site."""
        return self.config_file.parent

    def studies(self) -> tuple[StudyFolder, ...]:
        """Return the studies, those on which somebody is awaited first."""
        return tuple(sorted(inbox(self.home), key=lambda one: (listed(self, one).is_over, one.name)))


@dataclass(frozen=True, slots=True)
class ListedStudy:
    """One study of the inbox.

    Attributes:
        name: its name.
        status: where it stands.
        proposal: who proposed what; None where that cannot be read.
        consent: what the decisions come to; None without a proposal.
        decisions: those that count.
        faults: those that do not, and what else cannot be read.
    """

    name: str
    status: StudyStatus
    proposal: StudyProposal | None
    consent: Consent | None
    decisions: tuple[PersonDecision, ...]
    faults: tuple[DecisionFault, ...]

    @property
    def is_over(self) -> bool:
        """Return whether nobody is awaited any more."""
        return self.status.phase in FINAL

    def words(self) -> str:
        """Return who has decided and what is awaited."""
        return "" if self.consent is None else self.consent.words()


def site_inbox(config_file: Path) -> SiteInbox:
    """Return a site by its files, read now.

    Raises:
        PlanError: `collaborator.yaml` or `approvers.yaml` is missing or wrong.
    """
    site = load_site_config(config_file)
    approvers = load_approvers(config_file.parent / APPROVERS_FILE)
    return SiteInbox(config_file, site.collaborator, approvers)


def listed(site: SiteInbox, folder: StudyFolder) -> ListedStudy:
    """Return where a study stands; what cannot be read is told as a fault."""
    unread: list[DecisionFault] = []
    status = StudyStatus(SitePhase.ARRIVING, "", "")
    try:
        status = read_status(folder)
        proposal = read_proposal(folder)
    except FedfairError as fault:
        if status.phase is not SitePhase.ARRIVING or folder.proposal.exists():
            unread.append(DecisionFault(folder.name, fault.message))
        return ListedStudy(folder.name, status, None, None, (), tuple(unread))
    verified, faults = read_decisions(folder, site.approvers, proposal.subject(site.site))
    return ListedStudy(folder.name, status, proposal, tally(verified, site.approvers), verified, faults)
