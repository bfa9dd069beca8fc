"""Who proposed a study and what exactly: read from the signed act that the service has verified and put there."""

from __future__ import annotations

from dataclasses import dataclass

from fedfair.consent.decisions import StudySubject
from fedfair.consent.inbox import StudyFolder
from fedfair.consortium.acts import MAX_BYTES, ActKind, parse_act
from fedfair.consortium.faults import ConsortiumError
from fedfair.errors import ApprovalError
from fedfair.plan.digest import format_digest


@dataclass(frozen=True, slots=True)
class StudyProposal:
    """What the act says.

    Attributes:
        federation: its name.
        study: its name.
        by: the member who proposes.
        at: when, in ISO 8601.
        words: why.
        plan_digest: "sha256:" and 64 hex digits.
        archive_digest: of the archive, in the same form.
    """

    federation: str
    study: str
    by: str
    at: str
    words: str
    plan_digest: str
    archive_digest: str

    def subject(self, site: str) -> StudySubject:
        """Return what the people of a site decide about."""
        return StudySubject(self.federation, site, self.study, self.plan_digest)


def read_proposal(folder: StudyFolder) -> StudyProposal:
    """Return who proposed a study. That the act is signed by who it names was checked before it was put there.

    Raises:
        ApprovalError: the act is missing, unreadable, or of another study.
    """
    remedy = "the service puts it there: is `fedfair collaborator serve` running?"
    try:
        with folder.proposal.open("rb") as source:
            act = parse_act(source.read(MAX_BYTES + 1))
    except OSError as error:
        raise ApprovalError(f"{folder.proposal} cannot be read: {error.strerror}", remedy) from error
    except ConsortiumError as error:
        raise ApprovalError(f"{folder.proposal}: {error.message}", remedy) from error
    if act.kind is not ActKind.SUBMITTED or act.study != folder.name:
        raise ApprovalError(f"{folder.proposal} does not propose {folder.name!r}", remedy)
    digests = format_digest(act.plan_digest), format_digest(act.archive_digest)
    return StudyProposal(act.federation, act.study, act.by, act.at, act.words, *digests)
