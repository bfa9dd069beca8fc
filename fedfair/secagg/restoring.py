"""What a site still knows of its one round under way after it was killed: its write-ahead log, read back.

`log` reads the records; this puts them in a row. Decides nothing that `participant` has not decided before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fedfair.errors import LocalProtocolError
from fedfair.secagg.acceptance import AwaitedSum
from fedfair.secagg.client import ConsistencyChecked, MasksWrapped, RoundPhase, Uploaded
from fedfair.secagg.effects import Send
from fedfair.secagg.history import MASKS_KEY, History, SettledRows
from fedfair.secagg.log import LogEntry, Record, after_answer, entries, read_history, read_reply, read_upload
from fedfair.secagg.session import SessionSite


@dataclass(slots=True)
class LoggedRound:
    """The knowledge of a site that starts.

    Attributes:
        history: what it remembers beyond rounds.
        phase: of the round under way; None for none.
        awaited: the sum of that round; None for none.
        start: digest of the round start.
        sent: what it has answered to which request, by the digest of the request.
    """

    history: History
    phase: RoundPhase | None = None
    awaited: AwaitedSum | None = None
    start: bytes = b""
    sent: dict[bytes, Send] = field(default_factory=dict)


def restored(site: SessionSite, log: bytes, settled: SettledRows) -> LoggedRound:
    """Return what a site knows when it starts.

    Args:
        site: what it knows before anybody speaks.
        log: the write-ahead log as it was found; empty on a first start.
        settled: the table of facts.

    Raises:
        LocalProtocolError: the log is damaged, lost or put back, or the table is.
    """
    found = LoggedRound(History({}) if log else History.without_log(settled))
    for entry in entries(log):
        match entry.record:
            case Record.HISTORY:
                found.history = read_history(entry.fields, settled)
            case Record.UPLOAD:
                key = settled.get(MASKS_KEY) or b""
                uploaded, found.awaited, found.start, message = read_upload(site, entry.fields, key)
                found.phase, found.sent = uploaded, {found.start: Send(message, entry.vector)}
                note_sent(found.history, uploaded)
            case _:
                _take_up(found, entry)
    return found


def note_sent(history: History, uploaded: Uploaded) -> None:
    """Remember that an update has left, and for whom its sum may be opened without this site's answer."""
    context = uploaded.context
    history.sent(uploaded.fingerprint, whole=context.opens_whole)
    if context.opens_whole and not context.unanimous:
        history.exposed(uploaded.fingerprint, context.cohort)


def _take_up(found: LoggedRound, entry: LogEntry) -> None:
    """Take up the phase after handed-over masks, a vote or an answer."""
    before = found.phase
    uploaded = before.uploaded if isinstance(before, MasksWrapped | ConsistencyChecked) else before
    late = entry.record is not Record.ANSWER and isinstance(before, ConsistencyChecked)
    if not isinstance(uploaded, Uploaded) or late:
        raise LocalProtocolError(f"the write-ahead log has a {entry.record.name} out of order")
    survivors, request, message = read_reply(entry.fields)
    found.sent[request] = Send(message)
    match entry.record:
        case Record.PAIR_MASKS:
            found.phase = MasksWrapped(uploaded, survivors)
        case Record.VOTE:
            found.phase = ConsistencyChecked(uploaded, survivors)
        case _:
            found.phase = after_answer(uploaded, survivors)
            found.history.answered(uploaded.fingerprint, uploaded.context.computed, survivors)
