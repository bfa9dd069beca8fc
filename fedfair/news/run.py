"""News of a run for the aggregator's operator: its start and end, who comes and goes, certificates.

Whom the run waits for, until when, and what happens then, is one text for the terminal, the log and the notes:
`fedfair.rounds` decides the facts, the driver knows the time.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from fedfair.aggregation.masking_terms import IN_THE_CLEAR
from fedfair.identity.expiry import Expiry
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.news.event import LogLevel, News
from fedfair.rounds.events import AfterWaiting, Waiting
from fedfair.watching.run_status import RunStatus, WatchedState


def waiting_words(waiting: Waiting, until: datetime, now: datetime) -> str:
    """Return the sentences; times are in UTC and say so, with the date where it is another day than `now`.

    Args:
        waiting: the facts.
        until: when the first of its deadlines passes, with a time zone.
        now: the time, with a time zone.
    """
    there, stated = waiting.present, now.astimezone(UTC)
    attendance = f"{there} of {waiting.total} sites {'is' if there == 1 else 'are'} here"
    if there < waiting.needed:
        attendance += f", {waiting.needed} are needed"
    end = until.astimezone(UTC)
    clock = f"{end:%H:%M:%S} UTC" if end.date() == stated.date() else f"{end:%Y-%m-%d %H:%M:%S} UTC"
    names = ", ".join(waiting.missing)
    return f"{attendance}.{_who_alone(waiting)} Waiting for {names} until {clock}, then {_then(waiting)}."


def _sum(waiting: Waiting) -> str:
    request = waiting.request
    return "next sum" if request is None else f"{request.purpose.value} sum of round {request.round}"


def _who_alone(waiting: Waiting) -> str:
    names = ", ".join(waiting.only)
    if not waiting.only:
        return ""
    if waiting.reopens:
        who = f"only {names} together" if waiting.needed == len(waiting.only) else names
        return f" The {_sum(waiting)} was interrupted, and {who} can open it from what they have sent."
    return (
        f" Only {names} can repeat the {_sum(waiting)}, because they have helped to open it; for others, each of "
        "them would have to raise policy.max_reopened_sums."
    )


def _then(waiting: Waiting) -> str:
    match waiting.then:
        case AfterWaiting.START_WITHOUT:
            return f"starting without {'it' if len(waiting.missing) == 1 else 'them'}"
        case AfterWaiting.SKIP:
            return f"omitting the {_sum(waiting)}"
        case AfterWaiting.REPEAT:
            return f"restarting the {_sum(waiting)} with those who are here"
        case AfterWaiting.END:
            return "ending the run, which resumes when the aggregator is restarted"


class ProtectionStated(News):
    """The aggregator starts under a plan whose sums are masked, or in the clear.

    Attributes:
        guarantee: what the plan's sums keep from whom; empty where they are in the clear.
    """

    guarantee: str

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        return f"secure aggregation: {self.guarantee}" if self.guarantee else IN_THE_CLEAR


class IdentityWarned(News):
    """A certificate or a list of revoked ones is good, but not for long.

    Attributes:
        reason: which, and until when.
    """

    level = LogLevel.WARNING
    text = "{reason}"

    reason: str


class EarlierRunKept(News):
    """The files of a finished run, whose plan was extended, were set aside for the run that continues from it.

    Attributes:
        folder: where they are now.
    """

    text = "the run continues from a finished one, whose files are in {folder} now"

    folder: Path


class RunContinued(News):
    """An earlier process has begun this run, and its journal is there.

    Attributes:
        run_id: the run.
        rounds_done: training rounds that the journal holds.
    """

    text = "continuing run {run_id:.8} after round {rounds_done}, as recorded in the journal"

    run_id: str
    rounds_done: RoundNumber

    def change(self, status: RunStatus, _now: datetime) -> RunStatus:
        """Return the status after it."""
        return replace(status, run_id=self.run_id, rounds_done=int(self.rounds_done))


class PortOpened(News):
    """Connections are accepted.

    Attributes:
        port: the TCP port.
        collaborators: who may connect, in the plan's order.
    """

    port: int
    collaborators: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        return f"listening on port {self.port} for {', '.join(self.collaborators)}"


class StatusServed(News):
    """The status of the run can be read.

    Attributes:
        address: its URL.
    """

    text = "the status of the run is at {address}"

    address: str


class EntryRefused(News):
    """Somebody was not let in.

    Attributes:
        who: its name, or words for a stranger.
        reason: why.
    """

    level = LogLevel.WARNING
    refusal = "entry"
    text = "{who} was refused: {reason}"

    who: str
    reason: str


class InvitationDeclined(News):
    """A collaborator does not come.

    Attributes:
        who: its name.
        reason: from the closed list, in words.
    """

    level = LogLevel.WARNING
    refusal = "invitation"
    text = "{who} refuses to take part: {reason}"

    who: ParticipantId
    reason: str

    def change(self, status: RunStatus, _now: datetime) -> RunStatus:
        """Return the status after it."""
        return replace(status, withdrawn={**status.withdrawn, self.who: self.reason})


class StreamOpened(News):
    """A collaborator connected.

    Attributes:
        who: its name.
        replaces: whether an older stream of the same collaborator makes way.
    """

    who: ParticipantId
    replaces: bool

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        if not self.replaces:
            return f"{self.who} connected"
        again = "said again and again, it means that two machines use its identity"
        return f"{self.who} returned on a new stream in place of its older one; {again}"

    def change(self, status: RunStatus, _now: datetime) -> RunStatus:
        """Return the status after it."""
        left = {name: why for name, why in status.withdrawn.items() if name != self.who}
        return replace(status, withdrawn=left)


class StreamEnded(News):
    """A collaborator is no longer connected.

    Attributes:
        who: its name.
    """

    text = "{who} disconnected"

    who: ParticipantId


class StatementDiffers(News):
    """A site has signed another transcript of the run than this side has.

    Attributes:
        who: its name.
        difference: in which way.
    """

    level = LogLevel.WARNING
    text = (
        "{who} has signed another transcript of the run: {difference}; its statement is kept in "
        "save/transcript.json, and one of the two copies of the run is not what the sums have made of the plan"
    )

    who: ParticipantId
    difference: str


class SitesAwaited(News):
    """The run waits for collaborators.

    Attributes:
        facts: for whom, and what happens then.
        until: when the first deadline passes, with a time zone.
        told_at: when this is said, with a time zone.
    """

    facts: Waiting
    until: datetime
    told_at: datetime

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        return waiting_words(self.facts, self.until, self.told_at)

    def change(self, status: RunStatus, _now: datetime) -> RunStatus:
        """Return the status after it."""
        return replace(status, waiting_words=self.sentence, awaited_until=self.until)


class SentAway(News):
    """A collaborator is disconnected by this side.

    Attributes:
        who: its name.
        reason: why.
    """

    level = LogLevel.WARNING
    refusal = "stream"
    text = "{who} is disconnected: {reason}"

    who: ParticipantId
    reason: str


class SiteWithdrew(News):
    """A collaborator leaves for good.

    Attributes:
        who: its name.
        rounds_done: training rounds that were done.
        reason: why, from the closed list, in words.
    """

    level = LogLevel.WARNING
    refusal = "withdrawal"
    text = "{who} withdraws from the federation after round {rounds_done}: {reason}"

    who: ParticipantId
    rounds_done: int
    reason: str

    def change(self, status: RunStatus, _now: datetime) -> RunStatus:
        """Return the status after it."""
        return replace(status, withdrawn={**status.withdrawn, self.who: self.reason})


class StopBegun(News):
    """The operator asked for an orderly end.

    Attributes:
        signal_name: of the signal.
    """

    text = "{signal_name}: telling the collaborators and recording the run; once more to stop at once"

    signal_name: str

    def change(self, status: RunStatus, _now: datetime) -> RunStatus:
        """Return the status after it."""
        return replace(status, state=WatchedState.STOPPING)


class AbsentSitesAwaited(News):
    """The run is over, and collaborators that are away do not know it.

    Attributes:
        seconds: how long this side continues to listen.
        names: who is away.
    """

    seconds: float
    names: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        return (
            f"the run is over; listening {self.seconds:.0f} s longer to tell {', '.join(self.names)}, who are away"
        )


class EndMissed(News):
    """A collaborator has heard that the run is over, and its own copy lacks the last sums.

    Attributes:
        participant: who.
    """

    level = LogLevel.WARNING
    text = (
        "{participant} has heard that the run is over, but its own copy lacks the last sums -> send it "
        "save/last.safetensors"
    )

    participant: ParticipantId


class OlderTrustKept(News):
    """A newer revocation list cannot be relied upon.

    Attributes:
        reason: why.
    """

    level = LogLevel.WARNING
    text = "open streams are checked against the earlier revocation list: {reason}"

    reason: str


class RevocationListChanged(News):
    """Another revocation list is in force from now on, and connected sites are sent it.

    Attributes:
        number: of the list; it grows with every list.
        revoked: how many certificates are on it.
    """

    text = "revocation list {number} is in force, with {revoked} certificate(s); connected sites are sent it"

    number: int
    revoked: int


class CertificateEnding(News):
    """A certificate or the revocation list ends in 30, 7 or 1 days, or has ended; each is reported once.

    Attributes:
        ending: which, when, and what to do.
    """

    level = LogLevel.WARNING
    text = "{ending.words}"

    ending: Expiry


class CertificateRenewed(News):
    """New connections are shown a renewed certificate of the aggregator from now on.

    Attributes:
        until: its end, with a time zone.
    """

    text = "new connections are shown the renewed certificate, good until {until:%Y-%m-%d %H:%M} UTC"

    until: datetime

    def change(self, status: RunStatus, _now: datetime) -> RunStatus:
        """Return the status after it."""
        return replace(status, certificate_ends=self.until)


class CertificateUnusable(News):
    """The aggregator's certificate on the disk is another one and cannot be used; the present one stays.

    Attributes:
        reason: why.
    """

    level = LogLevel.WARNING
    text = "the certificate on the disk cannot be used, so the present one stays: {reason}"

    reason: str
