"""The notice that a tracker cannot write, which both actors tell, and its sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrackerFailed:
    """A tracker cannot write; the run goes on without it, and it is tried again.

    Attributes:
        target: as `--track` named it, without passwords.
        fault: what its store said.
    """

    target: str
    fault: str


def tracker_words(notice: TrackerFailed) -> str:
    """Return the sentence of the notice."""
    return (
        f"--track {notice.target} fails: {notice.fault}; the run goes on, the tracker is tried again, and this is "
        "told once"
    )
