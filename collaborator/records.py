"""Writes this site's own logs, in `logs/`.

<name>_metrics.jsonl    one JSON line per accepted answer
<name>_refusals.jsonl   one JSON line per refusal: the term, what was asked, what is allowed, the reason
<name>_notes.log        one line for every notice to the operator

Every line of metrics and refusals has `time` (ISO 8601, UTC, milliseconds) and `run_id`, the run that the
aggregator named last: empty before it has named one, as when a site refuses a plan before it connects.

An aggregator can cause lines in each of them, so each begins a new file in time and forgets the oldest one: 512
MiB of metrics at most, more than a year of a round a minute has, and 64 MiB of each of the others. What left this
site is in the egress record, which forgets nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from collaborator.link import Link
from fedfair.news.figures import AnswerCost, StepReached
from fedfair.news.processors import Processor, ignore
from fedfair.policy.refusal import Refusal
from fedfair.process.log_lines import log_line
from fedfair.store.disk import writing
from fedfair.store.rotated_log import MAX_LOG_BYTES, MAX_METRICS_BYTES, MAX_METRICS_FILES, RotatedLog
from fedfair.watching.run_status import IDLE, SumStep
from fedfair.wire.frames import SumStart


class SiteLogs:
    """The files of one collaborator; lines are appended to them.

    Args:
        folder: where they are.
        name: the collaborator.
        max_log_bytes: the most that one file holds before a new one is begun.
        publish: takes what this site is asked for, and what an accepted answer has cost.

    Raises:
        FedfairError: a line cannot be written, from every method that writes one.

    Attributes:
        run_id: the run that the aggregator named last; every line from now on says that it tells of this one.
    """

    def __init__(
        self, folder: Path, name: str, max_log_bytes: int = MAX_LOG_BYTES, publish: Processor = ignore
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._publish = publish
        self._lines = RotatedLog(
            folder / f"{name}_metrics.jsonl",
            max_bytes=max_log_bytes,
            kept=MAX_METRICS_FILES,
            max_total_bytes=MAX_METRICS_BYTES,
        )
        self._notes = RotatedLog(folder / f"{name}_notes.log", max_bytes=max_log_bytes)
        # There may never be a refusal, and an empty file would look as if something were wrong.
        self._refusals = RotatedLog(folder / f"{name}_refusals.jsonl", max_bytes=max_log_bytes)
        self._lines.begin()
        self._notes.begin()
        self._open: tuple[SumStart, float, int] | None = None  # the request, when it came, what was sent before
        self._received = 0
        self.run_id = ""

    def begin_link(self) -> None:
        """Note that counters start from nothing again."""
        self._open, self._received = None, 0
        self._publish(StepReached(IDLE))

    def asked(self, start: SumStart, link: Link) -> None:
        """Note that a request has arrived."""
        self._open = start, time.monotonic(), link.bytes_sent
        until = datetime.now(UTC) + timedelta(seconds=start.deadline_seconds)
        step = SumStep(start.purpose.value, start.round, start.attempt, "answer", until)
        self._publish(StepReached(step))

    def answered(self, link: Link, outcome: str) -> None:
        """Append the line of the request that was answered last."""
        if self._open is None:
            return
        (start, begun, before), self._open = self._open, None
        seconds = round(time.monotonic() - begun, 6)
        sent, received = link.bytes_sent - before, link.bytes_received - self._received
        cost = {"seconds": seconds, "bytes_sent": sent, "bytes_received": received}
        line = {**_place_of(start), "outcome": outcome, **cost}
        if outcome == "accepted":
            self._publish(AnswerCost(start.purpose, start.round, seconds, sent, received))
        self._publish(StepReached(IDLE))
        self._received = link.bytes_received
        _append(self._lines, self._stamped(line))

    def refused(self, why: Refusal, start: SumStart | None) -> None:
        """Append the line of a refusal.

        Args:
            why: the reason.
            start: the sum that this site leaves; None where it refuses the plan or the run.
        """
        line = {} if start is None else _place_of(start)
        line |= {"term": why.term, "asked": why.asked, "allowed": why.allowed, "reason": why.reason}
        _append(self._refusals, self._stamped(line))

    def _stamped(self, fields: Mapping[str, object]) -> str:
        return log_line(datetime.now(UTC), self.run_id, fields)

    def append_note(self, line: str) -> None:
        """Append a note to the operator."""
        _append(self._notes, line)

    def close(self) -> None:
        """Close the files."""
        self._lines.close()
        self._notes.close()
        self._refusals.close()


def _place_of(start: SumStart) -> dict[str, object]:
    """Return which sum a line is about."""
    return {"round": start.round, "purpose": start.purpose.value, "attempt": start.attempt}


def _append(log: RotatedLog, line: str) -> None:
    with writing(log.path):
        log.append(line)
