"""Tracks a run in MLflow, on any store that its client knows: a server, a database, a folder.

The federation is the experiment. A run that an earlier process has begun is found by its tag and continued.
Figures are metrics with the round as step; of the notices the run has counts and the last sentence, as tags.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from fedfair.news.event import LoggedEvent
from fedfair.tracking.tracker import Figures, TrackedEnd, TrackedRun

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # nobody but the named store is told of a run
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
