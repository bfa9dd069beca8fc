"""A record that was read, in sentences and rows for people: what left, how much, and what the record cannot show.

Decides words and grouping; how they are printed is the command's business.

A site's own record is compared with the aggregator's mirror of it:

    in both               sent and arrived, byte for byte
    only in the site's    recorded and never arrived: the entry stands before its message goes, and a stream broke
    only in the mirror    arrived in the site's name and is not in its record: the record was shortened or
                          rewritten, or somebody else used the site's keys; or the mirror was made up, which its
                          signature pins on the aggregator

Order does not count: after a break, what is left of the older connection may arrive behind the newer one. A record
may hold several plans, a mirror holds one run; they are compared over the plans that the mirrors know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedfair.audit.entry import CONNECTION
from fedfair.audit.items import MessageKind
from fedfair.audit.reader import MessageGroup, MessageTally, RecordReader, SentMessage
from fedfair.errors import AuditError
from fedfair.ids import AGGREGATOR


@dataclass(frozen=True, slots=True)
class RecordComparison:
    """The comparison of two sides of the same messages.

    Attributes:
        agreed: what both have.
        lost: what only the site's record has.
        foreign: what only the mirrors have.
        plans: digests of the plans that were compared.
    """

    agreed: MessageTally
    lost: MessageTally
    foreign: MessageTally
    plans: tuple[str, ...]


def compare(site: RecordReader, mirrors: Sequence[RecordReader]) -> RecordComparison:
    """Return how a site's record fits the mirrors of its runs.

    Args:
        site: read to its end.
        mirrors: at least one, read to their ends; evaluations have a mirror of their own.

    Raises:
        AuditError: they are not both sides of the same messages, or the mirrors hold none.
    """
    federation, participant, keeper = site.names
    if keeper != participant:
        raise AuditError("the first file is a mirror itself", "give the site's own record first")
    for mirror in mirrors:
        if mirror.names != (federation, participant, AGGREGATOR):
            raise AuditError(
                f"the mirror is about {mirror.names[1]} of '{mirror.names[0]}', kept by {mirror.names[2]}; "
                f"the record is of {participant} of '{federation}'",
                f"give the aggregator's received/{participant}.jsonl",
            )
    arrived: Counter[SentMessage] = sum((mirror.sent for mirror in mirrors), Counter())
    plans = {sent.plan for sent in arrived}
    if not plans:
        raise AuditError("the mirror holds no message", "give the mirror of a run that this site took part in")
    sent = Counter({one: count for one, count in site.sent.items() if one.plan in plans})
    return RecordComparison(
        _tally(sent & arrived), _tally(sent - arrived), _tally(arrived - sent), tuple(sorted(plans))
    )


def _tally(messages: Counter[SentMessage]) -> MessageTally:
    return MessageTally(messages.total(), sum(one.bytes * count for one, count in messages.items()))


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
        again = f", attempt {group.attempt}" if group.attempt > 1 else ""
        one = f"{group.round}{again}" if by_round else ""
        gathered.setdefault((group.purpose, one, group.what), []).append(group)
    for (purpose, one, what), members in gathered.items():
        numbers = [group.round for group in members]
        span = f"{min(numbers)}" if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"
        rounds = "" if purpose == CONNECTION else one or span
        tallies = [groups[group] for group in members]
        total = MessageTally(sum(tally.messages for tally in tallies), sum(tally.bytes for tally in tallies))
        yield MessageRow(purpose, rounds, what, total)


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
