"""Running a study: its points by the sweep's engine, kept in its folder, so that a restart resumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedfair.data.source import load_federation
from fedfair.experiments.reproduction.evidence import Evidence, Results, evidence_of
from fedfair.experiments.reproduction.runs import RunList
from fedfair.experiments.reproduction.study import Size, Study
from fedfair.experiments.sweep.events import Event, Failure
from fedfair.experiments.sweep.execution import run_points
from fedfair.experiments.sweep.folder import SweepFolder
from fedfair.experiments.sweep.local import run_locally
from fedfair.plan.schema import Plan


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

    def run(self, workers: int, on_event: Callable[[Event], None]) -> Done:
        """Run what has no result yet, and say what everything together shows.

        Args:
            workers: processes, at least 1.
            on_event: called after every event.
        """
        root = self.workspace

        outcome = run_points(
            self.runs.points, self._folder, lambda points: run_locally(points, root, workers), on_event
        )
        evidence = evidence_of(self.runs, outcome.results)
        return Done(self.study, self.size, self.runs, outcome.results, outcome.failures, evidence, root)
