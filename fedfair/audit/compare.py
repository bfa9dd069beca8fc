"""A site's own record beside the aggregator's mirror of it: what the two tell together, and neither alone.

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
from collections.abc import Sequence
from dataclasses import dataclass

from fedfair.audit.reader import MessageTally, RecordReader, SentMessage
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
