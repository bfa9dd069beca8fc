"""Running a study: its points by the sweep's engine, kept in its folder, so that a restart resumes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fedfair.plan.schema import Plan
from fedfair.studies.reproduction.evidence import Evidence, Results, evidence_of
from fedfair.studies.reproduction.runs import RunList
from fedfair.studies.reproduction.study import Size, Study
from fedfair.studies.sweep.events import Engine, Event, Failure
from fedfair.studies.sweep.execution import run_stages
from fedfair.studies.sweep.folder import SweepFolder
from fedfair.studies.sweep.grid import Point
from fedfair.studies.sweep.local import run_locally
from fedfair.tables.source import load_federation


@dataclass(frozen=True, slots=True)
class Done:
    """A study that was run.

    Attributes:
        study: which.
        size: how much of it.
        runs: what was asked for.
        results: what came, by the points' identities.
        failures: what did not, by the points' identities.
        evidence: what they say together.
        workspace: the folder that the plans' paths start from.
    """

    study: Study
    size: Size
    runs: RunList
    results: Results
    failures: Mapping[str, Failure]
    evidence: Evidence
    workspace: Path

    @property
    def unfinished(self) -> int:
        """Return how many runs neither have a result nor failed."""
        return len(self.runs.points) - len(self.results) - len(self.failures)


class PreparedStudy:
    """A study whose data are in place and whose runs are known.

    Args:
        study: the study.
        size: how much of it.
        data: the folder of the published files.
        out: where everything that it makes goes; a folder of its name in it.

    Raises:
        FedfairError: the data are not there, or the folder belongs to other settings.
    """

    def __init__(self, study: Study, size: Size, data: Path, out: Path) -> None:
        self.study, self.size = study, size
        self.workspace = data
        self.runs = RunList(study, size, self.workspace)
        plan = Plan.model_validate(self.runs.base)
        # What every run reads is read once before anything is made: without it, all would fail, one by one.
        load_federation(plan, self.workspace)
        folder = out / study.name
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = SweepFolder(folder / "runs")
        self._folder.open(plan, self.workspace)

    def finished(self) -> int:
        """Return how many runs have a result already."""
        return len(self._folder.finished(self.runs.points))

    def run(
        self, workers: int, on_event: Callable[[Event], None], is_over: Callable[[], bool] = lambda: False
    ) -> Done:
        """Run what has no result yet, figure by figure, and say what everything together shows.

        Args:
            workers: processes, at least 1; they are kept from figure to figure.
            on_event: called after every event.
            is_over: asked at the beginning, and whenever a run has ended; true starts no further one, and loses
                what other workers are running.
        """
        engine = self._engine(workers, is_over)
        failures = run_stages(self.runs.by_figure(), self._folder, engine, on_event).failures
        results = self._folder.finished(self.runs.points)
        evidence = evidence_of(self.runs, results, self.study)
        return Done(self.study, self.size, self.runs, results, failures, evidence, self.workspace)

    def _engine(self, workers: int, is_over: Callable[[], bool]) -> Engine:
        def run(points: Sequence[Point]) -> Generator[Event, None, None]:
            if is_over():
                return
            with closing(run_locally(points, self.workspace, workers)) as events:
                for event in events:
                    yield event
                    if event.ends and is_over():
                        return

        return run
