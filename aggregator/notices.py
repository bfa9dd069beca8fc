"""The notices to the aggregator's operator, as values; `notice_words` renders them.

One class for each kind of news, all of them in the union `Notice`. The driver makes them; an observer shows,
stores or counts them, and nobody reads a sentence back. Decides nothing about a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from fedfair.identity.expiry import Expiry
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.rounds.events import Waiting
from fedfair.statistics.table import Purpose
from fedfair.tracking.failure import TrackerFailed


@dataclass(frozen=True, slots=True)
class ProtectionStated:
    """The aggregator starts under a plan whose sums are masked, or in the clear.

    Attributes:
        guarantee: what the plan's sums keep from whom; empty where they are in the clear.
    """

    guarantee: str


@dataclass(frozen=True, slots=True)
class IdentityWarned:
    """A certificate or a list of revoked ones is good, but not for long.

    Attributes:
        reason: which, and until when.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class EarlierRunKept:
    """The files of a finished run, whose plan was extended, were set aside for the run that goes on from it.

    Attributes:
        folder: where they are now.
    """

    folder: Path


@dataclass(frozen=True, slots=True)
class RunContinued:
    """An earlier process has begun this run, and its journal is there.

    Attributes:
        run_id: the run.
        rounds_done: training rounds that the journal holds.
    """

    run_id: str
    rounds_done: RoundNumber


@dataclass(frozen=True, slots=True)
class PortOpened:
    """Connections are accepted.

    Attributes:
        port: the TCP port.
        collaborators: who may connect, in the plan's order.
    """

    port: int
    collaborators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StatusServed:
    """The status of the run can be read.

    Attributes:
        address: its URL.
    """

    address: str


@dataclass(frozen=True, slots=True)
class EntryRefused:
    """Somebody was not let in.

    Attributes:
        who: its name, or words for a stranger.
        reason: why.
    """

    who: str
    reason: str


@dataclass(frozen=True, slots=True)
class InvitationDeclined:
    """A collaborator does not come.

    Attributes:
        who: its name.
        reason: from the closed list, in words.
    """

    who: ParticipantId
    reason: str


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """A collaborator connected.

    Attributes:
        who: its name.
        replaces: whether an older stream of the same collaborator makes way.
    """

    who: ParticipantId
    replaces: bool


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """A collaborator is no longer connected.

    Attributes:
        who: its name.
    """

    who: ParticipantId


@dataclass(frozen=True, slots=True)
class SitesAwaited:
    """The run waits for collaborators.

    Attributes:
        facts: for whom, and what happens then.
        until: when the first deadline passes, with a time zone.
        told_at: when this is said, with a time zone.
    """

    facts: Waiting
    until: datetime
    told_at: datetime


@dataclass(frozen=True, slots=True)
class AnswerUnawaited:
    """A sum continues without a collaborator.

    Attributes:
        who: its name.
        purpose: of the sum.
        round: of the sum.
        reason: why.
    """

    who: ParticipantId
    purpose: Purpose
    round: RoundNumber
    reason: str


@dataclass(frozen=True, slots=True)
class SiteLeftBehind:
    """A sum goes on without a connected collaborator that has not answered; it is asked again later.

    Attributes:
        who: its name.
        purpose: of the sum.
        round: of the sum.
        seconds: how long it has been asked.
        median_seconds: what the sites took, by the last answer of each; None where nobody was timed.
    """

    who: ParticipantId
    purpose: Purpose
    round: RoundNumber
    seconds: float
    median_seconds: float | None


@dataclass(frozen=True, slots=True)
class SiteCaughtUp:
    """A collaborator that was left behind has answered, too late for that sum.

    Attributes:
        who: its name.
        seconds: what it took.
        median_seconds: what the sites took, by the last answer of each; None where nobody was timed.
    """

    who: ParticipantId
    seconds: float
    median_seconds: float | None


@dataclass(frozen=True, slots=True)
class LieSuspected:
    """A collaborator's messages contradict those of others.

    Attributes:
        who: its name.
        reason: in words, with the names of the others.
    """

    who: ParticipantId
    reason: str


@dataclass(frozen=True, slots=True)
class SentAway:
    """A collaborator is disconnected by this side.

    Attributes:
        who: its name.
        reason: why.
    """

    who: ParticipantId
    reason: str


@dataclass(frozen=True, slots=True)
class SiteWithdrew:
    """A collaborator leaves for good.

    Attributes:
        who: its name.
        rounds_done: training rounds that were done.
        reason: why, from the closed list, in words.
    """

    who: ParticipantId
    rounds_done: int
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptLost:
    """An attempt at a sum has no total.

    Attributes:
        purpose: of the sum.
        round: of the sum.
        attempt: which attempt, from 1.
        reason: why.
    """

    purpose: Purpose
    round: RoundNumber
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class EvaluationOmitted:
    """The run continues without an evaluation.

    Attributes:
        round: after which it was due.
        reason: why.
    """

    round: RoundNumber
    reason: str


@dataclass(frozen=True, slots=True)
class JournalBehind:
    """Collaborators say that they know more rounds than the journal.

    Attributes:
        leads: by how many rounds each is ahead.
        rounds: how many of them are believed; 0 where too few say so.
    """

    leads: Mapping[ParticipantId, int]
    rounds: int


@dataclass(frozen=True, slots=True)
class ChangesClipped:
    """Changes of the model were larger than the clip, for the first time since a sum without any.

    Attributes:
        round: training rounds done.
        clipped: how many changes, over all sites and parameters.
        clip: the clip.
    """

    round: RoundNumber
    clipped: int
    clip: float


@dataclass(frozen=True, slots=True)
class ValuesReplaced:
    """Values could not be summed, for the first time since a sum without any.

    Attributes:
        round: training rounds done.
        purpose: of the sum.
        values: how many values were replaced.
        sites: how many sites had such values.
    """

    round: RoundNumber
    purpose: Purpose
    values: int
    sites: int


@dataclass(frozen=True, slots=True)
class OlderTrustKept:
    """A newer revocation list cannot be relied upon.

    Attributes:
        reason: why.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class RevocationListChanged:
    """Another revocation list is in force from now on, and connected sites are sent it.

    Attributes:
        number: of the list; it grows with every list.
        revoked: how many certificates are on it.
    """

    number: int
    revoked: int


@dataclass(frozen=True, slots=True)
class CertificateEnding:
    """A certificate or the revocation list ends in 30, 7 or 1 days, or has ended; each is told once.

    Attributes:
        ending: which, when, and what to do.
    """

    ending: Expiry


@dataclass(frozen=True, slots=True)
class CertificateRenewed:
    """New connections are shown a renewed certificate of the aggregator from now on.

    Attributes:
        until: its end, with a time zone.
    """

    until: datetime


@dataclass(frozen=True, slots=True)
class CertificateUnusable:
    """The aggregator's certificate on the disk is another one and cannot be used; the present one stays.

    Attributes:
        reason: why.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class StopBegun:
    """The operator asked for an orderly end.

    Attributes:
        signal_name: of the signal.
    """

    signal_name: str


@dataclass(frozen=True, slots=True)
class AbsentSitesAwaited:
    """The run is over, and collaborators that are away do not know it.

    Attributes:
        seconds: how long this side continues to listen.
        names: who is away.
    """

    seconds: float
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndMissed:
    """A collaborator has heard that the run is over, and its own copy lacks the last sums.

    Attributes:
        participant: who.
    """

    participant: ParticipantId


Notice: TypeAlias = (
    ProtectionStated
    | IdentityWarned
    | EarlierRunKept
    | RunContinued
    | PortOpened
    | StatusServed
    | EntryRefused
    | InvitationDeclined
    | StreamOpened
    | StreamEnded
    | SitesAwaited
    | AnswerUnawaited
    | SiteLeftBehind
    | SiteCaughtUp
    | LieSuspected
    | SentAway
    | SiteWithdrew
    | AttemptLost
    | EvaluationOmitted
    | JournalBehind
    | ChangesClipped
    | ValuesReplaced
    | OlderTrustKept
    | RevocationListChanged
    | CertificateEnding
    | CertificateRenewed
    | CertificateUnusable
    | StopBegun
    | AbsentSitesAwaited
    | EndMissed
    | TrackerFailed
)
