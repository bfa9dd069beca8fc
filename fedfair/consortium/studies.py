"""The studies of a federation: a fold of its acts, the same for everybody who has the same record.

    proposed -> ready      every site of the plan has decided, and enough of them approved
             -> refused    too many sites refused
    ready    -> running    the hub started it
    running  -> finished   the hub ended it with a result
             -> aborted    the hub ended it without one, and says why
    proposed, ready, running -> withdrawn   by who submitted it, by the lead, or because too few sites are left

Enough is `needed` of the submitted act: the plan's `min_collaborators`, or all sites where the plan says none. A
site decides once; after it has approved it may still withdraw, and then the study goes on without it where enough
sites are left. A name is unique for ever.

    study = record.studies["stroke-2"]
    study.phase, study.approved, study.waiting_for
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Never

from fedfair.consortium.acts import Act, ActKind, StudyOutcome, check_study_name
from fedfair.consortium.faults import ConsortiumError, RecordCheck
from fedfair.consortium.members import Consortium, ConsortiumMember, MemberRole, Right
from fedfair.errors import ApprovalError
from fedfair.ids import ParticipantId
from fedfair.plan.approval import verify_approval
from fedfair.plan.digest import format_digest


def _nobody() -> Mapping[str, Never]:
    return MappingProxyType({})


class StudyPhase(enum.Enum):
    """The phase of a study; the value is the word for people."""

    PROPOSED = "proposed"
    READY = "ready"
    RUNNING = "running"
    FINISHED = "finished"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    ABORTED = "aborted"

    @property
    def is_over(self) -> bool:
        """Whether nothing more can happen to the study."""
        return self in {StudyPhase.FINISHED, StudyPhase.REFUSED, StudyPhase.WITHDRAWN, StudyPhase.ABORTED}


@dataclass(frozen=True, slots=True)
class ConsortiumStudy:
    """Where one study is.

    Attributes:
        submitted: the act that proposed it, with its plan, archive, sites and `needed`.
        number: of the entry that proposed it; studies are started in this order.
        phase: of the study.
        approved: the approval, `fedfair/approval/1`, of each site that approved, withdrawn since or not.
        refused: the words of each site that refused.
        withdrawn: the words of each site that withdrew, or is no member any more.
        words: of the act that ended it; empty before.
        since: when the phase began, as its act says.
        result_digest: of the archive of its result; empty where there is none.
        result_bytes: its length.
    """

    submitted: Act
    number: int
    phase: StudyPhase = StudyPhase.PROPOSED
    approved: Mapping[str, bytes] = field(default_factory=_nobody, repr=False)
    refused: Mapping[str, str] = field(default_factory=_nobody)
    withdrawn: Mapping[str, str] = field(default_factory=_nobody)
    words: str = ""
    since: str = ""
    result_digest: bytes = b""
    result_bytes: int = 0

    @property
    def name(self) -> str:
        """Its name."""
        return self.submitted.study

    @property
    def taking_part(self) -> tuple[str, ...]:
        """The sites that approved and have not withdrawn, in the plan's order."""
        return tuple(name for name in self.submitted.sites if name in self.approved and name not in self.withdrawn)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The sites that have not decided, in the plan's order."""
        decided = {*self.approved, *self.refused, *self.withdrawn}
        return tuple(name for name in self.submitted.sites if name not in decided)

    def is_open_to(self, member: ConsortiumMember) -> bool:
        """Return whether a member may fetch its archive."""
        return member.name in (self.submitted.by, *self.submitted.sites) or member.role in {
            MemberRole.LEAD,
            MemberRole.HUB,
        }

    def shows_result_to(self, member: ConsortiumMember) -> bool:
        """Return whether a member may fetch its result."""
        return (
            member.may(Right.RESULTS_ALL)
            or (member.may(Right.RESULTS_OWN) and member.name == self.submitted.by)
            or (member.may(Right.RESULTS_JOINED) and member.name in self.approved)
        )


def follow(
    studies: Mapping[str, ConsortiumStudy], act: Act, number: int, consortium: Consortium
) -> ConsortiumStudy:
    """Return the study of an act as the act leaves it.

    Args:
        studies: before the act, by name.
        act: about a study; its signature was verified.
        number: of the entry that it would have.
        consortium: the members at this time.

    Raises:
        ConsortiumError: the role of its author, or the phase of its study, does not allow it.
    """
    author = consortium.member(act.by)
    if act.kind is ActKind.SUBMITTED:
        return _submitted(studies, act, number, author, consortium)
    study = studies.get(act.study)
    if study is None:
        raise ConsortiumError(
            RecordCheck.STUDY,
            f"nobody has submitted a study called {act.study!r}",
            "see `fedfair study status` for the names of all studies",
        )
    if act.plan_digest != study.submitted.plan_digest:
        raise ConsortiumError(
            RecordCheck.STUDY,
            f"the act is about plan {format_digest(act.plan_digest)}, the study {study.name} is plan "
            f"{format_digest(study.submitted.plan_digest)}",
            "fetch the study again and decide about what it is now",
        )
    return _STEPS[act.kind](study, act, author, consortium)


def without_members(studies: Mapping[str, ConsortiumStudy], consortium: Consortium) -> dict[str, ConsortiumStudy]:
    """Return the studies after a change of members: a site that is no member any more has withdrawn."""
    found = dict(studies)
    for name, study in studies.items():
        gone = [site for site in study.submitted.sites if not _is_site(site, consortium)]
        new = {site: "is no member any more" for site in gone if site not in study.withdrawn}
        if new and not study.phase.is_over:
            found[name] = _settled(replace(study, withdrawn=MappingProxyType({**study.withdrawn, **new})), "")
    return found


def _is_site(name: str, consortium: Consortium) -> bool:
    member = consortium.members.get(ParticipantId(name))
    return member is not None and member.role is MemberRole.SITE


def _submitted(
    studies: Mapping[str, ConsortiumStudy], act: Act, number: int, author: ConsortiumMember, consortium: Consortium
) -> ConsortiumStudy:
    check_study_name(act.study)
    _check_right(author, Right.SUBMIT)
    if act.study in studies:
        raise ConsortiumError(
            RecordCheck.STUDY,
            f"there is a study called {act.study} already, submitted by {studies[act.study].submitted.by}",
            "give this one another name: a name is used once",
        )
    for other in studies.values():
        if other.submitted.plan_digest == act.plan_digest and not other.phase.is_over:
            raise ConsortiumError(
                RecordCheck.STUDY,
                f"this plan is the study {other.name} already, which is {other.phase.value}",
                "wait for its end, withdraw it, or change the plan",
            )
    strangers = [name for name in act.sites if not _is_site(name, consortium)]
    if strangers:
        raise ConsortiumError(
            RecordCheck.PAYLOAD,
            f"the plan names {', '.join(strangers[:10])}, no sites of {consortium.federation}",
            "name sites that consortium.yaml has, or have the lead add them",
        )
    if not 1 <= act.needed <= len(act.sites):
        raise ConsortiumError(
            RecordCheck.PAYLOAD,
            f"{act.needed} of {len(act.sites)} sites are needed",
            "state from 1 to all sites of the plan",
        )
    return ConsortiumStudy(act, number, since=act.at)


def _approved(
    study: ConsortiumStudy, act: Act, author: ConsortiumMember, consortium: Consortium
) -> ConsortiumStudy:
    _check_decides(study, author)
    try:
        verify_approval(
            act.payload,
            plan_digest=act.plan_digest,
            federation=consortium.federation,
            participant=author.name,
            public_key=author.public_key,
        )
    except ApprovalError as error:
        raise ConsortiumError(RecordCheck.PAYLOAD, error.message, error.remedy) from error
    return _settled(
        replace(study, approved=MappingProxyType({**study.approved, author.name: act.payload})), act.at
    )


def _refused(study: ConsortiumStudy, act: Act, author: ConsortiumMember, _: Consortium) -> ConsortiumStudy:
    _check_decides(study, author)
    refused = MappingProxyType({**study.refused, author.name: act.words})
    return _settled(replace(study, refused=refused), act.at)


def _check_decides(study: ConsortiumStudy, author: ConsortiumMember) -> None:
    _check_right(author, Right.DECIDE)
    _check_takes_part(study, author)
    _check_phase(study, (StudyPhase.PROPOSED,), "decided about")
    if author.name not in study.waiting_for:
        raise ConsortiumError(
            RecordCheck.PHASE,
            f"{author.name} has decided about {study.name} already",
            "a site decides once; who has approved may withdraw",
        )


def _check_takes_part(study: ConsortiumStudy, author: ConsortiumMember) -> None:
    if author.name not in study.submitted.sites:
        raise ConsortiumError(
            RecordCheck.ROLE,
            f"{author.name} is no site of the study {study.name}",
            f"its sites are {', '.join(study.submitted.sites[:10])}",
        )


def _withdrawn(study: ConsortiumStudy, act: Act, author: ConsortiumMember, _: Consortium) -> ConsortiumStudy:
    _check_phase(study, (StudyPhase.PROPOSED, StudyPhase.READY, StudyPhase.RUNNING), "withdrawn")
    owns = author.may(Right.WITHDRAW_OWN) and author.name == study.submitted.by
    if author.may(Right.WITHDRAW_ANY) or owns:
        words = f"{author.name} withdrew it: {act.words}"
        return replace(study, phase=StudyPhase.WITHDRAWN, words=words, since=act.at)
    if not author.may(Right.LEAVE):
        raise ConsortiumError(
            RecordCheck.ROLE,
            f"{author.name} ({author.role.value}) may not withdraw {study.name} of {study.submitted.by}",
            "who submitted it may, and the lead; a site withdraws its own part",
        )
    _check_takes_part(study, author)
    if author.name not in study.taking_part:
        raise ConsortiumError(
            RecordCheck.PHASE,
            f"{author.name} takes no part in {study.name}",
            "a site withdraws after it has approved",
        )
    withdrawn = MappingProxyType({**study.withdrawn, author.name: act.words})
    return _settled(replace(study, withdrawn=withdrawn), act.at)


def _started(study: ConsortiumStudy, act: Act, author: ConsortiumMember, _: Consortium) -> ConsortiumStudy:
    _check_right(author, Right.DRIVE)
    _check_phase(study, (StudyPhase.READY,), "started")
    return replace(study, phase=StudyPhase.RUNNING, since=act.at)


def _ended(study: ConsortiumStudy, act: Act, author: ConsortiumMember, _: Consortium) -> ConsortiumStudy:
    _check_right(author, Right.DRIVE)
    finished = act.outcome is StudyOutcome.FINISHED
    before = (StudyPhase.RUNNING,) if finished else (StudyPhase.PROPOSED, StudyPhase.READY, StudyPhase.RUNNING)
    _check_phase(study, before, "ended")
    return replace(
        study,
        phase=StudyPhase.FINISHED if finished else StudyPhase.ABORTED,
        words=act.words,
        since=act.at,
        result_digest=act.result_digest,
        result_bytes=act.result_bytes,
    )


def _settled(study: ConsortiumStudy, at: str) -> ConsortiumStudy:
    """Return a study after a site has decided, withdrawn or gone: in the phase that follows from all decisions."""
    needed, left = study.submitted.needed, len(study.taking_part)
    possible = left + len(study.waiting_for)
    if possible < needed:
        return replace(
            study, phase=_too_few(study), words=_too_few_words(study, possible), since=at or study.since
        )
    if study.phase is StudyPhase.PROPOSED and not study.waiting_for:
        return replace(study, phase=StudyPhase.READY, since=at or study.since)
    return study


def _too_few(study: ConsortiumStudy) -> StudyPhase:
    return StudyPhase.WITHDRAWN if study.withdrawn else StudyPhase.REFUSED


def _too_few_words(study: ConsortiumStudy, possible: int) -> str:
    gone = {**study.refused, **study.withdrawn}
    said = "; ".join(f"{name}: {words}" if words else name for name, words in gone.items())
    return f"{study.submitted.needed} sites are needed, and at most {possible} take part. {said}"


def _check_right(author: ConsortiumMember, right: Right) -> None:
    if not author.may(right):
        raise ConsortiumError(
            RecordCheck.ROLE,
            f"{author.name} ({author.role.value}) may not {right.value}",
            "ask the lead for another role, or have somebody do it who may",
        )


def _check_phase(study: ConsortiumStudy, phases: Collection[StudyPhase], what: str) -> None:
    if study.phase not in phases:
        raise ConsortiumError(
            RecordCheck.PHASE,
            f"{study.name} is {study.phase.value}, so it cannot be {what} now",
            "see `fedfair study status`",
        )


_STEPS: Mapping[ActKind, Callable[[ConsortiumStudy, Act, ConsortiumMember, Consortium], ConsortiumStudy]] = (
    MappingProxyType(
        {
            ActKind.APPROVED: _approved,
            ActKind.REFUSED: _refused,
            ActKind.WITHDRAWN: _withdrawn,
            ActKind.STARTED: _started,
            ActKind.ENDED: _ended,
        }
    )
)
