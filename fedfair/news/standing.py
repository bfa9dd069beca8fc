"""News of a site's standing service, for its operator."""

from __future__ import annotations

from fedfair.news.event import LogLevel, News


class ServiceStarted(News):
    """The standing service of a site has begun.

    Attributes:
        site: its name.
        hub: where the hub is.
        entries: of the record, that are known from before.
    """

    text = "{site} follows the hub at {hub}; {entries} entries of the record are known"

    site: str
    hub: str
    entries: int


class RecordExtended(News):
    """The record of acts has grown, and every new entry verifies.

    Attributes:
        entries: how many there are now.
        words: of the newest one: who did what.
    """

    text = "the record has {entries} entries; the newest: {words}"

    entries: int
    words: str


class HubUnreachable(News):
    """The hub does not answer now; studies that run go on, and the service asks again.

    Attributes:
        reason: why.
        seconds: until it asks again.
    """

    level = LogLevel.WARNING
    text = "no answer from the hub: {reason}; it is asked again in {seconds:.1f} s"

    reason: str
    seconds: float


class RecordRefused(News):
    """The hub answers, and the record cannot be followed: the hub refuses, or what it shows is refused here.

    Attributes:
        reason: why.
        remedy: what to do about it.
        seconds: until it is tried again.
    """

    level = LogLevel.ERROR
    text = "the record of the hub cannot be followed: {reason} -> {remedy}; it is tried again in {seconds:.1f} s"

    reason: str
    remedy: str
    seconds: float


class StudyArrived(News):
    """A proposed study is in the inbox, after every check of its archive.

    Attributes:
        study: its name.
        by: who proposes it.
    """

    text = "{study}, proposed by {by}, is in the inbox: `fedfair inbox show {study}`"

    study: str
    by: str


class StudyUnfit(News):
    """This site cannot take part in a study, whatever its people say.

    Attributes:
        study: its name.
        reason: why.
    """

    level = LogLevel.WARNING
    text = "{study} is refused: {reason}"

    study: str
    reason: str


class StudyDecided(News):
    """What this site's people have decided was told to the hub; who they are was not.

    Attributes:
        study: its name.
        act: approved, refused or withdrawn.
    """

    text = "{study}: the hub knows that this site has {act}"

    study: str
    act: str


class StudyStarted(News):
    """The process of a study was started.

    Attributes:
        study: its name.
        process: its number.
    """

    text = "{study} runs, process {process}"

    study: str
    process: int


class StudyStopped(News):
    """A running study was asked to stop.

    Attributes:
        study: its name.
        reason: why.
    """

    text = "{study} is stopped: {reason}"

    study: str
    reason: str


class StudyProcessEnded(News):
    """The process of a study has ended.

    Attributes:
        study: its name.
        status: its exit status, below 0 for a signal.
        reason: its last words; empty where its work is done.
        seconds: until it is started again; 0 where it is not.
    """

    study: str
    status: int
    reason: str
    seconds: float

    @property
    def sentence(self) -> str:
        """What the operator reads."""
        if not self.reason:
            return f"{self.study}: this site's part is done"
        again = f"; it is started again in {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.study}: its process has ended with status {self.status}: {self.reason}{again}"


class DiskTidied(News):
    """Files of a study that is over were removed, because the room of site.yaml is used up.

    Attributes:
        study: its name.
        files: what was removed; what an audit needs stays.
    """

    text = "{study}: {files} removed, for room on the disk"

    study: str
    files: str


class DecisionIgnored(News):
    """A decision in the inbox counts nothing.

    Attributes:
        study: its name.
        person: whose file it is.
        reason: why it does not count.
    """

    level = LogLevel.WARNING
    text = "{study}: the decision of {person} does not count: {reason}"

    study: str
    person: str
    reason: str


class ServiceFault(News):
    """A step of the service failed; the others go on, and it is tried again.

    Attributes:
        step: what was to be done.
        reason: why it failed.
    """

    level = LogLevel.WARNING
    text = "{step}: {reason}; it is tried again"

    step: str
    reason: str
