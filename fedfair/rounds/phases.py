"""The phases of a run, and which event may lead where.

`federation` looks every event up here before it does anything; the diagram in `docs/explain/rounds.md` is made
from this table. The table says what is possible; which of the possible phases follows depends on the people and
the training run.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from fedfair.rounds.events import (
    Abstained,
    Connected,
    DeadlinePassed,
    Disconnected,
    Event,
    Excused,
    MessageArrived,
    Misbehaved,
    Started,
    StopRequested,
    UploadArrived,
)


class Phase(enum.Enum):
    """The phase of a run."""

    NEW = "new"
    WAITING = "waiting"
    SUMMING = "summing"
    FINISHED = "finished"
    ABORTED = "aborted"


_CLOSING: Final = frozenset({Phase.SUMMING, Phase.WAITING, Phase.FINISHED, Phase.ABORTED})

PHASES: Final[Mapping[Phase, Mapping[type[Event], frozenset[Phase]]]] = {
    Phase.NEW: {
        Started: frozenset({Phase.WAITING, Phase.FINISHED}),
        Excused: frozenset({Phase.NEW}),
        StopRequested: frozenset({Phase.ABORTED}),
    },
    Phase.WAITING: {
        Connected: frozenset({Phase.WAITING, Phase.SUMMING, Phase.ABORTED}),
        Disconnected: frozenset({Phase.WAITING}),
        UploadArrived: frozenset({Phase.WAITING}),
        MessageArrived: frozenset({Phase.WAITING}),
        Abstained: frozenset({Phase.WAITING}),
        Misbehaved: frozenset({Phase.WAITING}),
        Excused: frozenset({Phase.WAITING, Phase.SUMMING, Phase.ABORTED}),
        DeadlinePassed: frozenset({Phase.WAITING, Phase.SUMMING, Phase.FINISHED, Phase.ABORTED}),
        StopRequested: frozenset({Phase.ABORTED}),
    },
    Phase.SUMMING: {
        Connected: frozenset({Phase.SUMMING}),
        Disconnected: frozenset({Phase.SUMMING}),
        UploadArrived: _CLOSING,
        MessageArrived: _CLOSING,
        Abstained: _CLOSING,
        Misbehaved: _CLOSING,
        Excused: _CLOSING,
        DeadlinePassed: _CLOSING,
        StopRequested: frozenset({Phase.ABORTED}),
    },
    # The end is silent: streams still close and deadlines still fire while the driver says goodbye.
    Phase.FINISHED: {},
    Phase.ABORTED: {},
}
