"""Tracks a run in a folder that TensorBoard reads: a folder for each run, scalars by round, and texts.

Of the notices TensorBoard shows no list, so they are a text at their place in the sequence; the facts of the plan
are one text.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fedfair.news.event import LoggedEvent
from fedfair.tracking.tracker import Figures, TrackedEnd, TrackedRun


class TensorboardTracker:
    """Writes event files.

    Args:
        folder: the log folder; the run gets one of its own in it.
    """

    faults: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text import metadata as text
        from tensorboard.summary.writer.record_writer import RecordWriter
        from tensorboard.util.tensor_util import make_tensor_proto

        self._folder = folder
        self._records = RecordWriter
        self._writer: RecordWriter | None = None
        self._event, self._summary, self._text, self._tensor = Event, Summary, text, make_tensor_proto
        self._notices = 0

    def begin(self, run: TrackedRun) -> None:
        """Open an event file of its own in the run's folder: TensorBoard reads one after the other."""
        folder = self._folder / f"{run.federation}-{run.role}-{run.run_id[:8]}"
        folder.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC)
        # What a fault has cut in an earlier file ends that file for readers, and this one is whole again.
        path = folder / f"events.out.tfevents.{now.timestamp():017.6f}.fedfair"
        self._writer = self._records(path.open("wb"))
        self._writer.write(
            self._event(wall_time=now.timestamp(), file_version="brain.Event:2").SerializeToString()
        )
        rows = "\n".join(f"| {name} | {value} |" for name, value in {**run.facts, "run": run.run_id}.items())
        self._write_text(now, 0, "plan", f"| | |\n|---|---|\n{rows}")

    def event(self, when: datetime, event: LoggedEvent) -> None:
        """Write one notice."""
        self._notices += 1
        self._write_text(when, self._notices, "notices", f"{event.level.value} {event.name}: {event.words}")

    def figures(self, when: datetime, number: int, figures: Figures) -> None:
        """Write the figures of one evaluation, and wait for the file."""
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._write(when, number, values)

    def end(self, when: datetime, end: TrackedEnd) -> None:
        """Write the figures of the output model and how the run ended."""
        self.figures(when, end.rounds, end.figures)
        self._write_text(when, end.rounds, "outcome", f"{end.state}: {end.words}")
        if self._writer is not None:
            self._writer.close()

    def _write_text(self, when: datetime, number: int, tag: str, text: str) -> None:
        metadata = self._text.create_summary_metadata(tag, "")
        tensor = self._tensor([text.encode()])
        self._write(when, number, [self._summary.Value(tag=tag, metadata=metadata, tensor=tensor)])

    def _write(self, when: datetime, number: int, values: list[object]) -> None:
        if self._writer is not None:
            event = self._event(wall_time=when.timestamp(), step=number, summary=self._summary(value=values))
            self._writer.write(event.SerializeToString())
            self._writer.flush()
