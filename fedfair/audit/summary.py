"""A record that was read, in sentences and rows for people: what left, how much, and what the record cannot show.

Decides words and grouping; how they are printed is the command's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fedfair.audit.compare import RecordComparison
from fedfair.audit.entry import CONNECTION
from fedfair.audit.items import MessageKind
from fedfair.audit.reader import MessageGroup, MessageTally, RecordReader


@dataclass(frozen=True, slots=True)
class MessageRow:
    """Messages that a reader wants to see together.

    Attributes:
        purpose: of their sums.
        rounds: of their sums; empty for the connection.
        what: what they are.
        total: how many, and how long they are together.
    """

    purpose: str
    rounds: str
    what: str
    total: MessageTally


def rows(groups: Mapping[MessageGroup, MessageTally], *, by_round: bool) -> Iterator[MessageRow]:
    """Yield one row for each purpose and kind of message, or for each sum and kind, in the order of sending."""
    gathered: dict[tuple[str, str, str], list[MessageGroup]] = {}
    for group in groups:
        one = _sum_words(group) if by_round else ""
        gathered.setdefault((group.purpose, one, group.what), []).append(group)
    for (purpose, one, what), members in gathered.items():
        numbers = [group.round for group in members]
        span = f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"
        rounds = "" if purpose == CONNECTION else one or span
        yield MessageRow(purpose, rounds, what, _summed(groups[group] for group in members))


def explanations(groups: Mapping[MessageGroup, MessageTally]) -> Iterator[tuple[str, str]]:
    """Yield each kind of message that was sent, and what is in it."""
    for what in dict.fromkeys(group.what for group in groups):
        yield what, MessageKind(what).content


def findings(found: RecordReader) -> Iterator[str]:
    """Yield what was checked about a record, line by line."""
    federation, participant, keeper = found.names
    side = "sent" if keeper == participant else "sent, as it arrived"
    key = "" if found.opened is None else found.opened.key
    yield f"what {participant} of '{federation}' {side}: {amount(found.total)}"
    yield f"checked: {found.entries} entries follow from each other"
    yield f"checked: {found.signatures} signatures of {keeper}, made with {key}"


def comparison(compared: RecordComparison) -> Iterator[str]:
    """Yield how a record fits its mirror, line by line."""
    yield f"arrived as recorded: {amount(compared.agreed)}"
    if compared.lost.messages:
        yield f"recorded and never arrived: {amount(compared.lost)}, lost where a connection broke"
    else:
        yield "every message that is recorded arrived"
    yield from (f"compared for plan {plan}" for plan in compared.plans)


def checkpoint(found: RecordReader) -> str:
    """Return what a later reading can be held against, so that an end that was cut off since is noticed."""
    return f"{found.entries}:{found.chain.hex()}"


def gaps(found: RecordReader) -> Iterator[str]:
    """Yield what a record that verifies still leaves open, in sentences."""
    for torn in found.torn:
        yield (
            f"after entry {torn.after} a writer was interrupted: {torn.length} bytes are no entry, and what they "
            "began to tell of was not sent"
        )
    if found.tail:
        yield f"the last {len(found.tail)} bytes are no entry: a writer is at work, or was interrupted"
    if not found.closed:
        yield (
            "the last process has not ended cleanly: it still runs, or was killed, or the end was cut off; the "
            "mirror or an older checkpoint can tell"
        )
    if found.unsigned:
        yield f"the last {found.unsigned} entries are not signed yet"


def amount(tally: MessageTally) -> str:
    """Return how many messages, and how long they are together."""
    return f"{tally.messages:,} messages, {tally.bytes:,} bytes"


def _sum_words(group: MessageGroup) -> str:
    return f"{group.round}, attempt {group.attempt}" if group.attempt > 1 else f"{group.round}"


def _summed(tallies: Iterable[MessageTally]) -> MessageTally:
    total = MessageTally()
    for tally in tallies:
        total.add(tally.messages, tally.bytes)
    return total
