"""The events of a federation, and the effects that it asks for.

Two vocabularies of frozen values. The driver reports an `Event`; `Federation.receive` answers with a list of
`Effect`s, which the driver carries out in their order. Nothing here does anything: there is no socket, no clock
and no file on this side of the border, so a whole federation can be played through in a test.

What the driver owes:

* `Started` comes first, once.
* One stream per participant speaks. When a second one authenticates, the driver reports `Connected` again, closes
  the older stream, and drops whatever the older stream still says, its end included.
* A deadline that fires after `CancelDeadline` may still be reported; it is recognised as stale and ignored.
* After `Finish` or `Abort` every event is answered with no effects at all.

Source: the division into events and effects follows h11 (sans-IO).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.rounds.continued import NOTHING_SEEN, Seen

if TYPE_CHECKING:
    from fedfair.aggregation.requests import SumRequest
    from fedfair.ids import ParticipantId, SumNumber
    from fedfair.rounds.exit_reasons import ExitReason
    from fedfair.run.training_run import Progress
    from fedfair.secagg.masking import MaskedVector


class DeadlineKind(enum.Enum):
    """The wait that a deadline ends."""

    JOIN = "join"
    """Until enough collaborators are connected for a sum to start."""
    SETTLE = "settle"
    """After an interruption: from a quorum being back until the sum starts without the others."""
    SUM = "sum"
    """Until a sum closes with those who have answered."""
    MASKS = "masks"
    """Until a masked sum continues without those who have not answered in its present phase; after `SUM`."""
    STRAGGLERS = "stragglers"
    """Until a sum that enough have answered continues without those who are connected and have not."""
    GRACE = "grace"
    """Until a collaborator who dropped out of an open sum is no longer waited for."""


@dataclass(frozen=True, slots=True)
class DeadlineToken:
    """One deadline that was set; a number is never used twice within a run."""

    kind: DeadlineKind
    number: int


class CheckpointKind(enum.Enum):
    """The model file to write from the training run's present state."""

    INITIAL = "init"
    LAST = "last"
    BEST = "best"
    TRAINED = "trained"


# ------------------------------------------------------------------ events: what happened


@dataclass(frozen=True, slots=True)
class Started:
    """The aggregator is listening; always the first event, exactly once."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A collaborator of the plan authenticated, approved this plan and said hello.

    A second one for the same participant replaces the first: whatever was sent to the first may be lost.
    `session` names the masking session of which the process has keys; empty for none. `seen` is what it was asked
    on earlier streams. `state` is the digest of its copy of this run; empty where it stands at the beginning.
    """

    participant: ParticipantId
    session: bytes = b""
    seen: Seen = NOTHING_SEEN
    state: bytes = b""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream of a connected or refused collaborator ended.

    `steady` is False where its streams never last (`slowness.steadiness`): nobody waits for its return.
    """

    participant: ParticipantId
    steady: bool = True


@dataclass(frozen=True, slots=True)
class UploadArrived:
    """One whole upload whose length and SHA-256 were checked; the driver forgets it after this event."""

    participant: ParticipantId
    sum_number: SumNumber
    payload: bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class MessageArrived:
    """One message of secure aggregation, with its whole vector if it has one; forgotten after this event."""

    participant: ParticipantId
    message: bytes
    vector: MaskedVector = b""


@dataclass(frozen=True, slots=True)
class Abstained:
    """A collaborator said that it takes no part in this sum, and why; and perhaps that it leaves for good.

    `accused` is the place in the roster of the member whose sealed shares it cannot open; 0 for none.
    """

    participant: ParticipantId
    sum_number: SumNumber
    reason: str
    leaving: bool = False
    accused: int = 0


@dataclass(frozen=True, slots=True)
class Misbehaved:
    """The border could not accept what a collaborator sent: a broken frame, a wrong length or digest.

    `message` and `remedy` are those of the `RemoteProtocolError` that was raised there.
    """

    participant: ParticipantId
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Excused:
    """A collaborator takes no part any more, as it has said elsewhere than on a stream: nothing waits for it."""

    participant: ParticipantId
    reason: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """A deadline that was set with `SetDeadline` has passed."""

    token: DeadlineToken


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The operator, or the operating system, wants an orderly end now."""

    reason: str


Event = (
    Started
    | Connected
    | Disconnected
    | UploadArrived
    | MessageArrived
    | Abstained
    | Misbehaved
    | Excused
    | DeadlinePassed
    | StopRequested
)


@dataclass(frozen=True, slots=True)
class Clipping:
    """The sizes of the changes in a masked sum.

    Attributes:
        clip: C of the sum; no change of a parameter counted for more than this.
        clipped: how many changes were larger, over all sites and parameters.
    """

    clip: float
    clipped: int


# ------------------------------------------------------------------ effects: what is to be done


@dataclass(frozen=True, slots=True)
class SendState:
    """Send the present state of the run to this participant, who has missed more than one sum."""

    participant: ParticipantId


@dataclass(frozen=True, slots=True)
class SendTotals:
    """Send the sum that was opened last, in the clear, to this participant."""

    participant: ParticipantId
    totals: bytes


@dataclass(frozen=True, slots=True)
class SendSum:
    """Ask this participant for its contribution; sent again, with the same number, after it has returned.

    `state` is the digest of the state of the run that it is about, 32 bytes.
    `deadline_seconds` is the whole patience of the sum, which began when its `SUM` deadline was set.
    """

    participant: ParticipantId
    sum_number: SumNumber
    request: SumRequest
    state: bytes
    deadline_seconds: int


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send this message of secure aggregation to this participant, if it is connected; with its vector, if any."""

    participant: ParticipantId
    message: bytes
    vector: bytes | memoryview = b""


@dataclass(frozen=True, slots=True)
class UnfinishedSum:
    """A masked sum that a later process of the aggregator can open from what the sites have on their disks.

    Attributes:
        attempt: of its request.
        record: what the server of secure aggregation needs to ask for the very same round.
    """

    attempt: int
    record: bytes


@dataclass(frozen=True, slots=True)
class SaveUnfinished:
    """Keep this until the sum is done, before any message that follows is sent."""

    unfinished: UnfinishedSum


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A message came too late, or about something that is over; nothing else happens."""

    participant: ParticipantId
    reason: str


@dataclass(frozen=True, slots=True)
class Suspected:
    """A participant's messages contradict those of others, and nobody can prove yet who lies."""

    participant: ParticipantId
    reason: str


@dataclass(frozen=True, slots=True)
class Accept:
    """Tell this participant that its upload is in the sum, or was already."""

    participant: ParticipantId
    sum_number: SumNumber


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell this participant why it is sent away, then close its stream."""

    participant: ParticipantId
    message: str
    remedy: str
    try_again: bool


@dataclass(frozen=True, slots=True)
class SetDeadline:
    """Report `DeadlinePassed(token)` after so many seconds."""

    token: DeadlineToken
    seconds: float


@dataclass(frozen=True, slots=True)
class CancelDeadline:
    """Forget this deadline."""

    token: DeadlineToken


@dataclass(frozen=True, slots=True)
class Report:
    """A sum was applied; show and record what it did. `clipping` is None where nothing could be clipped."""

    progress: Progress
    clipping: Clipping | None = None


@dataclass(frozen=True, slots=True)
class Unawaited:
    """A sum is no longer held up by somebody who was asked; one that was away may still return to it in time.

    `refusal` is what a collaborator said that takes no part of its own will; empty with any other reason.
    """

    participant: ParticipantId
    sum_number: SumNumber
    request: SumRequest
    reason: str
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A sum continues without somebody who is connected and has not answered; it is asked again later.

    `seconds` is how long it has been asked, `median` what the sites took, by their last answers; None where nobody
    was timed before.
    """

    participant: ParticipantId
    sum_number: SumNumber
    request: SumRequest
    seconds: float
    median: float | None


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Somebody who was left behind has answered what it was asked, too late for that sum; as `LeftBehind`."""

    participant: ParticipantId
    seconds: float
    median: float | None


@dataclass(frozen=True, slots=True)
class Departed:
    """A collaborator leaves the federation, and says why; its connection will end by itself."""

    participant: ParticipantId
    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class SumLost:
    """A sum closed without a quorum, or its total could not be right; the model is unchanged.

    What follows is another attempt, a `Skipped`, a `Waiting`, or an `Abort`.
    """

    sum_number: SumNumber
    request: SumRequest
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """An evaluation that has become impossible is omitted, and the run continues without it.

    `model_changed` says that the output model has taken the place of the last one.
    """

    request: SumRequest
    reason: str
    model_changed: bool


@dataclass(frozen=True, slots=True)
class SitesAhead:
    """Sites know more rounds of this run than the journal has.

    `rounds` is by how many, as far as it is believed: 0 where too few say so. `leads` is what each of them says.
    """

    leads: Mapping[ParticipantId, int]
    rounds: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Write this model file now; the training run stands exactly between two sums."""

    kind: CheckpointKind


class AfterWaiting(enum.Enum):
    """The consequence when the awaited sites have not come in time, and nobody else comes or goes."""

    START_WITHOUT = "start without"
    """The next sum begins with those who are there."""
    SKIP = "skip"
    """The evaluation that is due is omitted, and the run continues."""
    REPEAT = "repeat"
    """The interrupted sum is given up, and another attempt begins with those who are there."""
    END = "end"
    """The run ends; another start of the aggregator continues it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """No sum is running, because these participants are not connected; reported again only when a fact changes.

    Attributes:
        missing: who has to come before the next sum begins at once; at least one.
        present: how many of those who can be asked are connected.
        total: how many can be asked.
        needed: the fewest that the next sum needs.
        until: the deadlines that end the waiting; the first that passes does.
        then: what happens at it.
        request: the sum that is due.
        only: who alone can be asked; empty where any collaborator can.
        reopens: whether an interrupted sum is to be opened from what sites have sent.
    """

    missing: tuple[ParticipantId, ...]
    present: int
    total: int
    needed: int
    until: tuple[DeadlineToken, ...]
    then: AfterWaiting
    request: SumRequest | None = None
    only: tuple[ParticipantId, ...] = ()
    reopens: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """The plan is done: write the result, tell every connected participant, stop. Nothing follows."""

    rounds: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Abort:
    """The run ends without its result: tell every connected participant, stop. Nothing follows."""

    reason: str
    remedy: str
    why: ExitReason


Effect = (
    SendState
    | SendTotals
    | SendSum
    | SendMessage
    | SaveUnfinished
    | PassedOver
    | Suspected
    | Accept
    | Refuse
    | SetDeadline
    | CancelDeadline
    | Report
    | Unawaited
    | LeftBehind
    | CaughtUp
    | Departed
    | SumLost
    | Skipped
    | SitesAhead
    | Checkpoint
    | Waiting
    | Finish
    | Abort
)

MOVES_STATE = Report | Skipped
"""Effects of a step of the state, which a later process must know of before a site is asked about the next one."""
