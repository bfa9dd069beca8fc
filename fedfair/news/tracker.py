"""The news that a tracker cannot write, which both operators and a simulation's hear."""

from __future__ import annotations

from fedfair.news.event import LogLevel, News


class TrackerFailed(News):
    """A tracker cannot write; the run continues without it, and it is tried again.

    Attributes:
        target: as `--track` named it, without passwords.
        fault: what its store said.
    """

    level = LogLevel.WARNING
    text = (
        "--track {target} fails: {fault}; the run continues, the tracker is tried again, and this is logged once"
    )

    target: str
    fault: str
