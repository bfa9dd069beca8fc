"""What this site writes down about its own part, in `logs/`.

<name>_metrics.jsonl    one JSON line per accepted answer
<name>_refusals.jsonl   one JSON line per refusal: the term, what was asked, what is allowed, the reason
<name>_notes.log        one line for everything that the operator was told
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from collaborator.link import Link
from collaborator.reluctance import Reluctance
from fedfair.wire.frames import SumStart


@dataclass(frozen=True, slots=True)
class Tally:
    """Where the counters stood when a question had arrived.

    Attributes:
        start: the question.
        seconds: on the monotonic clock.
        sent: bytes of frames sent on the link until then.
    """

    start: SumStart
    seconds: float
    sent: int


class Records:
    """The files of one collaborator; lines are appended to them.

    Args:
        folder: where they are.
        name: the collaborator.
    """

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lines = (folder / f"{name}_metrics.jsonl").open("a", buffering=1)
        self._notes = (folder / f"{name}_notes.log").open("a", buffering=1)
        self._refusals = folder / f"{name}_refusals.jsonl"
        self._open: Tally | None = None
        self._received = 0

    def begin_link(self) -> None:
        """Note that counters start from nothing again."""
        self._open, self._received = None, 0

    def asked(self, start: SumStart, link: Link) -> None:
        """Note that a question has arrived."""
        self._open = Tally(start, time.monotonic(), link.bytes_sent)

    def answered(self, link: Link, outcome: str) -> None:
        """Append the line of the question that was answered last."""
        if self._open is None:
            return
        tally, self._open = self._open, None
        line = {
            "round": tally.start.round,
            "purpose": tally.start.purpose.value,
            "attempt": tally.start.attempt,
            "outcome": outcome,
            "seconds": round(time.monotonic() - tally.seconds, 6),
            "bytes_sent": link.bytes_sent - tally.sent,
            "bytes_received": link.bytes_received - self._received,
        }
        self._received = link.bytes_received
        self._lines.write(json.dumps(line) + "\n")

    def refused(self, why: Reluctance, start: SumStart | None) -> None:
        """Append the line of a refusal.

        Args:
            why: the reason.
            start: the sum that this site leaves; None where it refuses the plan or the run.
        """
        line: dict[str, object] = {"time": datetime.now(UTC).isoformat(timespec="seconds")}
        if start is not None:
            line |= {"round": start.round, "purpose": start.purpose.value, "attempt": start.attempt}
        line |= {"term": why.term, "asked": why.asked, "allowed": why.allowed, "reason": why.reason}
        # There may never be one, and an empty file would look as if something were wrong.
        with self._refusals.open("a") as target:
            target.write(json.dumps(line) + "\n")

    def append_note(self, line: str) -> None:
        """Append what the operator was told."""
        self._notes.write(line + "\n")

    def close(self) -> None:
        """Close the files."""
        self._lines.close()
        self._notes.close()
