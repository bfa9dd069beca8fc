"""The effects of the protocol: what a site or the aggregator must do next, in order, as values.

The owner of sockets and files carries them out. A write must have reached the disk before the `Send` after it
begins. This keeps a killed and restarted site from ever sending two different things for one round.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fedfair.secagg.opened_sum import OpenedSum


@dataclass(frozen=True, slots=True)
class Log:
    """Append these parts to the write-ahead log, one after the other, and sync.

    Attributes:
        parts: the record; the second part of an upload is its whole vector, not copied.
    """

    parts: tuple[bytes | bytearray, ...]


@dataclass(frozen=True, slots=True)
class ReplaceLog:
    """Replace the whole write-ahead log by these parts, atomically and synced: its round is over.

    Attributes:
        parts: what must outlive rounds and is not in the table yet, then the records of the round that has begun;
            not copied.
    """

    parts: tuple[bytes | bytearray, ...]


@dataclass(frozen=True, slots=True)
class Remember:
    """Write these rows into the table that is never cut, all or none, and sync.

    Attributes:
        rows: keys and their new values.
    """

    rows: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Send:
    """Send to the aggregator.

    Attributes:
        message: one message of `messages`.
        vector: what travels beside an upload; empty with everything else.
        frames: the SHA-256 of each frame that carries the vector, where they are known; no part of what is sent.
    """

    message: bytes
    vector: bytes | bytearray = b""
    frames: tuple[bytes, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Contribute:
    """Make this site's update for the round under way, then call `contribute` or `abstain`.

    Attributes:
        round: number of the round within its session.
        purpose: why something is summed.
        clips: C of each group of the body.
    """

    round: int
    purpose: str
    clips: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StateVouched:
    """Enough members of the set-up hold another state of the run than this site does.

    Whoever cannot take a snapshot of exactly that state calls `decline_session` before the confirm is sent.

    Attributes:
        state_digest: 32 bytes, of the state that they hold.
    """

    state_digest: bytes


@dataclass(frozen=True, slots=True)
class SumAccepted:
    """The sum of the round is open, and this site has checked it.

    Attributes:
        opened: what it says.
        state_digest: of the state of the run that the round was about, 32 bytes.
    """

    opened: OpenedSum
    state_digest: bytes


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send to one member.

    Attributes:
        member: its roster index.
        message: one message of `messages`.
    """

    member: int
    message: bytes


@dataclass(frozen=True, slots=True)
class SessionReady:
    """All of `members` have keys with each other; rounds can begin."""

    session_id: bytes
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """Too few members came or confirmed; `reason` says so in words."""

    reason: str


@dataclass(frozen=True, slots=True)
class SumOpened:
    """A sum is open: `Server.take_sum` has it, and `Server.announcement` what the sites are to receive.

    Attributes:
        round: number of the round within its session.
        survivors: whose contributions are in it.
    """

    round: int
    survivors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoundAborted:
    """The round is lost and nothing was learnt: it is opened again, or repeated with a new number.

    Attributes:
        round: its number.
        reason: in words.
        answered: whether masks may have been opened by some; the same updates are then never sent again.
        missing: whom the next attempt should go without: who had not uploaded when the uploads were closed, or
            who kept the round from being opened.
        survivors: whose sum some may have helped to open; empty unless `answered`.
        reopens: whether the very same round can be opened once its survivors are back: only messages were missing.
    """

    round: int
    reason: str
    answered: bool
    missing: tuple[int, ...] = ()
    survivors: tuple[int, ...] = ()
    reopens: bool = False


@dataclass(frozen=True, slots=True)
class Contradicted:
    """A member's messages contradict those of others; it lies, or they do.

    Attributes:
        member: its roster index.
        reason: in words, with the names of the others.
        proven: whether it lies, if most members are honest; it is not to be asked again.
        left_out: whether the sum under way continues without it.
    """

    member: int
    reason: str
    proven: bool
    left_out: bool


SiteEffect = Log | ReplaceLog | Remember | Send | Contribute | StateVouched | SumAccepted
ServerEffect = SendTo | SessionReady | SessionFailed | SumOpened | RoundAborted | Contradicted
