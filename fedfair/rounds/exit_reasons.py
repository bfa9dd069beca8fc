"""Reasons for the end of a stream or a run at a site, and whether the site should come back by itself.

A fault that an operator can mend, or that time heals, is worth another try: the site tries again with growing
pauses until its own patience is over. A fault that no waiting changes is final. Nothing else decides this.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class ExitReason(enum.Enum):
    """Every way in which the aggregator ends what a site takes part in; the value says it in words."""

    FINISHED = "the run came to its end"
    STOPPED = "the aggregator's operator stopped the run"
    UNWRITABLE = "the aggregator cannot write its files"
    QUORUM_MISSING = "too few collaborators came before the join deadline"
    ATTEMPTS_SPENT = "one sum was lost in every attempt"
    RESTORED = "the sites know more rounds than the aggregator's journal"
    TRUST_UNREADABLE = "the aggregator cannot read its own certificates or revocations"
    NOT_ADMITTED = "its certificate, version, plan, binding or approval is not this federation's"
    MISBEHAVED = "it broke the protocol"
    EXPIRED = "its certificate has expired"
    REPLACED = "another process took part under its name"


TRY_AGAIN: Final[Mapping[ExitReason, bool]] = {
    ExitReason.FINISHED: False,
    ExitReason.STOPPED: True,
    ExitReason.UNWRITABLE: True,
    ExitReason.QUORUM_MISSING: True,
    ExitReason.ATTEMPTS_SPENT: True,
    ExitReason.RESTORED: True,
    ExitReason.TRUST_UNREADABLE: True,
    ExitReason.NOT_ADMITTED: False,
    ExitReason.MISBEHAVED: False,
    ExitReason.EXPIRED: True,
    ExitReason.REPLACED: False,
}
"""Whether the same site may come back without a change; one entry for each reason."""
