"""What a standing site has on its disk, and what it says about each study in `status.json`.

Decides nothing about what happens next (`schedule.py`) and starts nothing (`service.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from collaborator.standing.known_record import KnownRecord
from collaborator.standing.schedule import HubPhase, SiteSaid, StudyFacts
from fedfair.consent import decisions
from fedfair.consent.approvers import APPROVERS_FILE, Approvers, load_approvers
from fedfair.consent.inbox import (
    STUDIES_FOLDER,
    SitePhase,
    StudyFolder,
    StudyStatus,
    read_decisions,
    read_status,
    write_status,
)
from fedfair.consortium.members import FILE, read_consortium
from fedfair.consortium.studies import ConsortiumStudy, StudyPhase
from fedfair.errors import IdentityError, StateError
from fedfair.identity.store import SiteIdentity, load_site_identity
from fedfair.ids import ParticipantId
from fedfair.plan.digest import format_digest
from fedfair.policy.site_config import SiteConfig, load_site_config
from fedfair.policy.site_settings import SITE_FILE, SiteSettings, load_settings

_GIB = 1 << 30
_HUB = {
    StudyPhase.PROPOSED: HubPhase.PROPOSED,
    StudyPhase.READY: HubPhase.PROPOSED,
    StudyPhase.RUNNING: HubPhase.OPEN,
}


@dataclass(frozen=True, slots=True)
class StandingSite:
    """A site that stands: its own files, read and fitting together.

    Attributes:
        folder: of `collaborator.yaml`, absolute.
        config: that file.
        known: its copy of the record.
        passphrase: of its encrypted keys; None where they are not encrypted.
    """

    folder: Path
    config: SiteConfig
    known: KnownRecord
    passphrase: bytes | None = field(default=None, repr=False)

    @property
    def name(self) -> ParticipantId:
        """The site's name."""
        return ParticipantId(self.config.collaborator)

    @property
    def cert_folder(self) -> Path:
        """The folder of its keys and certificates."""
        return Path(self.config.cert_folder)

    @property
    def egress_folder(self) -> Path:
        """The folder of its egress records."""
        return self.folder / "egress" if self.config.egress is None else Path(self.config.egress).parent

    def identity(self) -> SiteIdentity:
        """Return its keys and certificate; read again each time, so that a renewal is used.

        Raises:
            IdentityError: something is missing, malformed, expired or revoked.
        """
        return load_site_identity(self.cert_folder, self.name, datetime.now(UTC), self.passphrase)

    def settings(self) -> SiteSettings:
        """Return `site.yaml` as it is now.

        Raises:
            PlanError: it breaks its schema.
        """
        return load_settings(self.folder)

    def approvers(self) -> Approvers:
        """Return the people who decide, as `approvers.yaml` names them now.

        Raises:
            FedfairError: the file is missing or wrong.
        """
        return load_approvers(self.folder / APPROVERS_FILE)

    def study_folder(self, name: str) -> StudyFolder:
        """Return the folder of a study."""
        return StudyFolder(self.folder / STUDIES_FOLDER / name)

    def studies(self) -> dict[str, ConsortiumStudy]:
        """Return the studies of the record that name this site, in the order in which they were proposed."""
        return {
            name: study for name, study in self.known.record.studies.items() if self.name in study.submitted.sites
        }

    def subject(self, study: ConsortiumStudy) -> decisions.StudySubject:
        """Return what a decision about a study is about."""
        digest = format_digest(study.submitted.plan_digest)
        return decisions.StudySubject(study.submitted.federation, self.name, study.name, digest)

    def consent(
        self, study: ConsortiumStudy, approvers: Approvers
    ) -> tuple[decisions.Consent, tuple[decisions.DecisionFault, ...]]:
        """Return what this site's people have decided about a study, and which decisions count nothing."""
        verified, faults = read_decisions(self.study_folder(study.name), approvers, self.subject(study))
        return decisions.tally(verified, approvers), faults

    def words(self, study: ConsortiumStudy) -> str:
        """Return the words of whoever has refused or withdrawn, without the name; empty where nobody has."""
        verified, _ = read_decisions(self.study_folder(study.name), self.approvers(), self.subject(study))
        return next((one.words for one in verified if one.choice is not decisions.Choice.APPROVE), "")

    def used_gib(self) -> float:
        """Return how much the folder of studies holds, in GiB."""
        folder = self.folder / STUDIES_FOLDER
        return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / _GIB


def open_site(folder: Path, passphrase: Callable[[SiteConfig], bytes | None]) -> StandingSite:
    """Return the site of a folder, after everything about its own files was checked.

    Args:
        folder: of `collaborator.yaml`.
        passphrase: returns that of the site's keys.

    Raises:
        FedfairError: a file is missing or wrong, or does not fit the others.
    """
    config = load_site_config(folder / SITE_FILE)
    consortium = read_consortium(folder / FILE)
    load_approvers(folder / APPROVERS_FILE)
    load_settings(folder)
    known = KnownRecord(folder.resolve() / STUDIES_FOLDER, consortium)
    site = StandingSite(folder.resolve(), config, known, passphrase(config))
    member = consortium.members.get(site.name)
    identity = site.identity()
    own = identity.signing_key.public_key()
    if identity.participant.federation != consortium.federation:
        raise IdentityError(
            f"{folder / FILE} is of {consortium.federation}; this site's certificate is of "
            f"{identity.participant.federation}",
            "ask the lead for the consortium.yaml of your federation",
        )
    if member is None or member.public_key.public_bytes_raw() != own.public_bytes_raw():
        fault = "does not name" if member is None else "has another key for"
        raise IdentityError(
            f"{folder / FILE} {fault} {site.name}", "send the lead cert/<name>/signing.pub, and ask for a new list"
        )
    return site


def facts_of(
    site: StandingSite, study: ConsortiumStudy, consent: decisions.ConsentState, *, is_unfit: bool
) -> StudyFacts:
    """Return what is known of a study from the record and from disk.

    Args:
        site: whose.
        study: by the record.
        consent: what its people have decided.
        is_unfit: whether this site cannot take it.
    """
    folder = site.study_folder(study.name)
    is_here = folder.plan.exists() and folder.archive.exists()
    is_tidied = not folder.archive.exists() and not folder.workspace.exists()
    return StudyFacts(
        study.name,
        _HUB.get(study.phase, HubPhase.OVER),
        study.number,
        is_here=is_here,
        is_refused_here=is_unfit,
        consent=consent,
        said=said_of(study, site.name),
        is_tidied=is_tidied or (site.name in study.approved and not folder.workspace.exists()),
    )


def said_of(study: ConsortiumStudy, site: ParticipantId) -> SiteSaid:
    """Return what a site's last act about a study is."""
    if site in study.withdrawn:
        return SiteSaid.WITHDRAWN
    if site in study.refused:
        return SiteSaid.REFUSED
    return SiteSaid.APPROVED if site in study.approved else SiteSaid.NOTHING


def tidy(folder: StudyFolder, *, approved: bool) -> str:
    """Remove what of a study that is over needs no keeping; return what that was, for the log.

    Proposal, decisions, approval, logs and the archive of what this site has approved stay: whoever audits the
    site can unpack the archive again. Ledger, history, egress records and runs lie elsewhere and are not touched.

    Args:
        folder: of the study.
        approved: whether this site had approved it.
    """
    removed = []
    if folder.workspace.exists():
        shutil.rmtree(folder.workspace)
        removed.append("the unpacked archive")
    if not approved:
        for path in (folder.archive, folder.archive.with_name(f"{folder.archive.name}.part")):
            if path.exists():
                path.unlink()
                removed.append(path.name)
    return " and ".join(removed) or "nothing"


def phase_of(study: ConsortiumStudy, facts: StudyFacts, waiting: str) -> tuple[SitePhase, str]:  # noqa: PLR0911 - one case per phase
    """Return where a study stands at this site, and the sentence about it.

    Args:
        study: by the record.
        facts: what this site knows of it.
        waiting: why it does not run although it may; empty where its turn has not come.
    """
    others = ", ".join(study.waiting_for)
    if facts.running is not None:
        return SitePhase.RUNNING, "it is being stopped" if facts.running.stopping else ""
    if facts.said is SiteSaid.WITHDRAWN or facts.consent is decisions.ConsentState.WITHDRAWN:
        return SitePhase.WITHDRAWN, "this site takes part no more"
    if facts.said is SiteSaid.REFUSED or facts.consent is decisions.ConsentState.REFUSED or facts.is_refused_here:
        return SitePhase.REFUSED, waiting
    if facts.hub is HubPhase.OVER:
        return SitePhase.ENDED, f"{study.phase.value}{': ' if study.words else ''}{study.words}"
    if not facts.is_here:
        return SitePhase.ARRIVING, waiting
    if facts.consent is decisions.ConsentState.WAITING and facts.said is SiteSaid.NOTHING:
        return SitePhase.PROPOSED, ""
    if facts.hub is HubPhase.PROPOSED:
        return SitePhase.APPROVED, f"it waits for {others}" if others else "it waits for its turn at the hub"
    if facts.is_done:
        return SitePhase.ENDED, "this site's part is done"
    return SitePhase.QUEUED, waiting or "it waits for its turn here"


def note_status(folder: StudyFolder, phase: SitePhase, words: str, now: datetime) -> None:
    """Write where a study stands, where that has changed.

    Raises:
        OSError: it cannot be written.
    """
    try:
        known = read_status(folder)
    except StateError:
        known = StudyStatus(SitePhase.ARRIVING, "", "")
    if (known.phase, known.words) == (phase, words) and folder.status.exists():
        return
    since = known.since if known.phase is phase and known.since else now.isoformat(timespec="seconds")
    folder.path.mkdir(parents=True, exist_ok=True)
    write_status(folder, StudyStatus(phase, words, since))
