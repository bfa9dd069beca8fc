"""The stores that a run can be tracked in: a file of JSON lines, MLflow, and a folder that TensorBoard reads.

A file has a line for its beginning, each notice, each evaluation, and its end; only its owner can read it, for a
site's own figures may be in it. In MLflow the federation is the experiment; a run that an earlier process has
begun is found by its tag and continued, figures are metrics with the round as step, and of the notices the run has
counts and the last sentence. TensorBoard has a folder for each run; it shows no list of notices, so they are a
text at their place in the sequence, and the facts of the plan are one text.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from fedfair.news.event import LoggedEvent
from fedfair.process.log_lines import log_line
from fedfair.store.line_end import is_cut
from fedfair.tracking.tracker import Figures, TrackedEnd, TrackedRun

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # nobody but the named store receives a run
    "DO_NOT_TRACK": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",  # a folder is as good a choice as another, once it is named
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # a server that is away is asked again later
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
"""The environment of the library, unless the operator has set it."""

STATUS: Mapping[str, str] = {"finished": "FINISHED", "stopped": "KILLED", "aborted": "FAILED"}

RUN_TAG = "fedfair.run_id"
MAX_VALUE = 500
"""Characters of a parameter, as the library's stores allow."""


class JsonlTracker:
    """Appends to a file; several runs may share it, for every line names its run.

    Args:
        path: the file; its folder is made.
    """

    faults: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._run_id = ""
        self._is_torn = False

    def begin(self, run: TrackedRun) -> None:
        """Make the folder and write whose run follows."""
        self._run_id = run.run_id
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._is_torn = is_cut(self._path)
        about = {"federation": run.federation, "role": run.role, "facts": dict(run.facts)}
        self._append(datetime.now(UTC), {"event": "tracking_begun", **about})

    def event(self, when: datetime, event: LoggedEvent) -> None:
        """Write one notice, as the JSON log has it."""
        own = {key: value for key, value in event.fields.items() if key != "run_id"}
        said = {"level": event.level.value, "message": event.words}
        self._append(when, {"event": event.name, **said, **own})

    def figures(self, when: datetime, number: int, figures: Figures) -> None:
        """Write the figures of one evaluation."""
        self._append(when, {"event": "figures", "round": number, "figures": dict(figures)})

    def end(self, when: datetime, end: TrackedEnd) -> None:
        """Write how the run ended."""
        told = {"state": end.state, "message": end.words, "rounds_done": end.rounds}
        self._append(when, {"event": "tracking_ended", **told, "figures": dict(end.figures)})

    def _append(self, when: datetime, fields: Mapping[str, object]) -> None:
        # A line that a full disk has cut is ended before the next one, so that a reader loses it alone.
        line = ("\n" if self._is_torn else "") + log_line(when, self._run_id, fields) + "\n"
        self._is_torn = True
        with open(self._path, "a", encoding="utf-8", opener=_for_its_owner) as target:
            target.write(line)
        self._is_torn = False


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class MlflowTracker:
    """Writes to one store.

    Args:
        uri: of the store.
    """

    def __init__(self, uri: str) -> None:
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        import sqlalchemy.exc
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        # Requests' exceptions are OSErrors.
        self.faults: tuple[type[Exception], ...] = (MlflowException, OSError, sqlalchemy.exc.SQLAlchemyError)
        self._client = MlflowClient(tracking_uri=uri)
        self._id = ""
        self._counts: Counter[str] = Counter()

    def begin(self, run: TrackedRun) -> None:
        """Find the run of this name, or make it."""
        found = self._client.get_experiment_by_name(run.federation)
        experiment = self._client.create_experiment(run.federation) if found is None else found.experiment_id
        wanted = f"tags.`{RUN_TAG}` = '{run.run_id}' and tags.`fedfair.role` = '{run.role}'"
        earlier = self._client.search_runs([experiment], wanted, max_results=1)
        if earlier:
            self._id = earlier[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            tags = {RUN_TAG: run.run_id, "fedfair.role": run.role}
            self._id = self._client.create_run(experiment, tags=tags, run_name=run.title).info.run_id
        for name, value in run.facts.items():
            self._client.log_param(self._id, name, value[:MAX_VALUE])

    def event(self, when: datetime, event: LoggedEvent) -> None:
        """Count the notice and keep its sentence as the last one."""
        del when
        count = self._counts[event.name] + 1
        self._client.set_tag(self._id, f"fedfair.notices.{event.name}", str(count))
        self._client.set_tag(self._id, "fedfair.last_notice", event.words)
        self._counts[event.name] = count

    def figures(self, when: datetime, number: int, figures: Figures) -> None:
        """Write the figures of one evaluation in one request."""
        from mlflow.entities import Metric

        stamp = int(when.timestamp() * 1000)
        self._client.log_batch(
            self._id, metrics=[Metric(name, value, stamp, number) for name, value in figures.items()]
        )

    def end(self, when: datetime, end: TrackedEnd) -> None:
        """Write the figures of the output model and how the run ended."""
        self.figures(when, end.rounds, end.figures)
        self._client.set_tag(self._id, "fedfair.outcome", end.words)
        self._client.set_terminated(self._id, STATUS.get(end.state, "FAILED"))


class TensorboardTracker:
    """Writes event files.

    Args:
        folder: the log folder; the run gets one of its own in it.
    """

    faults: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, folder: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text import metadata as text
        from tensorboard.summary.writer.record_writer import RecordWriter
        from tensorboard.util.tensor_util import make_tensor_proto

        self._folder = Path(folder)
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
