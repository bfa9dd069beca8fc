"""One decision that a form asks for: every rule of it is checked here, whatever the browser has shown.

An approval is taken only if this login has opened each part that differs, as it is now. So a plan, a policy or a
ledger that has changed since it was read is read again first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collaborator.consent_page.sessions import PageSession, PageSessions
from collaborator.study_review.examination import Examination
from collaborator.study_review.listing import SiteInbox
from collaborator.study_review.proposal import read_proposal
from collaborator.study_review.review import StudyReview, review_of
from fedfair.consent.decisions import Choice, Signer, decide
from fedfair.consent.inbox import StudyFolder, check_open, write_decision
from fedfair.consent.person_keys import file_signer, key_file
from fedfair.errors import ApprovalError, IdentityError


@dataclass(frozen=True, slots=True)
class AskedDecision:
    """What a form holds.

    Attributes:
        person: who decides.
        choice: approve, refuse or withdraw.
        digest: of the plan that was shown.
        words: why.
        passphrase: of the person's key.
    """

    person: str
    choice: str
    digest: str
    words: str
    passphrase: str = field(repr=False)


def asked_decision(form: Mapping[str, str]) -> AskedDecision:
    """Return what a form holds; what it lacks is empty."""
    return AskedDecision(*(form.get(name, "") for name in ("person", "choice", "digest", "words", "passphrase")))


def unopened(review: StudyReview, session: PageSession) -> tuple[str, ...]:
    """Return the titles of the parts that a login must still open, as they are now, before an approval."""
    return tuple(
        review.parts[part].title
        for part in review.to_open
        if session.opened.get((review.folder.name, part.value)) != review.parts[part].fingerprint
    )


@dataclass(frozen=True, slots=True)
class Deciding:
    """Takes decisions.

    Attributes:
        sessions: count wrong passphrases.
        now: the time in ISO 8601.
    """

    sessions: PageSessions
    now: Callable[[], str]

    def take(
        self,
        site: SiteInbox,
        folder: StudyFolder,
        session: PageSession,
        found: Examination | None,
        asked: AskedDecision,
    ) -> Path:
        """Sign and write a decision.

        Args:
            site: as its files say now.
            folder: the study.
            session: the login.
            found: of the study; None while it is being looked for.
            asked: the form.

        Returns:
            the decision's file.

        Raises:
            FedfairError: a rule refuses it; nothing is written.
        """
        person, subject = site.approvers.person(asked.person), read_proposal(folder).subject(site.site)
        if asked.choice not in set(Choice):
            raise ApprovalError(f"{asked.choice[:40]!r} is no decision", "approve, refuse or withdraw")
        choice = Choice(asked.choice)
        if session.person not in {"", person.name}:
            raise ApprovalError(
                f"this login is {session.person}'s, who has decided in it",
                f"{person.name} logs in with the link that the terminal shows now, and reads the study",
            )
        if asked.digest != subject.plan_digest:
            raise ApprovalError("the study has changed since this page was shown", "read it again")
        check_open(folder, choice, site.approvers, subject)
        if choice is Choice.APPROVE:
            _check_read(site, folder, session, found)
        elif not asked.words.strip():
            raise ApprovalError(
                f"a decision to {choice} needs words", "say why in one line; who proposed it reads it"
            )
        signer = self._signer(site, asked)
        parts = tuple(part for study, part in session.opened if study == folder.name)
        made = decide(subject, person.name, choice, signer, at=self.now(), words=asked.words.strip(), parts=parts)
        written = write_decision(folder, made, site.approvers)
        session.person = person.name
        return written

    def _signer(self, site: SiteInbox, asked: AskedDecision) -> Signer:
        """Return what signs this once; a wrong passphrase is counted."""
        self.sessions.check_tries(asked.person)
        path = key_file(site.home, asked.person)
        if not path.exists():
            raise ApprovalError(
                f"the key of {asked.person} is not in {path.parent}",
                "decide with `fedfair inbox` in a terminal, with --key or an ssh-agent",
            )
        try:
            return file_signer(site.approvers.person(asked.person), path, asked.passphrase.encode())
        except IdentityError:
            self.sessions.wrong(asked.person)
            raise


def _check_read(site: SiteInbox, folder: StudyFolder, session: PageSession, found: Examination | None) -> None:
    if found is None:
        raise ApprovalError("this site's records are still being looked at", "wait until the page shows them")
    review = review_of(site.config_file, folder, found)
    if review.obstacles:
        raise ApprovalError(
            f"{folder.name} cannot be approved: {'; '.join(review.obstacles)}",
            "change collaborator.yaml if you agree, or refuse the study",
        )
    if left := unopened(review, session):
        raise ApprovalError(
            f"not opened in this login, or changed since: {'; '.join(left)}", "open each part that differs"
        )
