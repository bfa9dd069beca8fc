"""From points to results: what is finished is not repeated, what ends is recorded at once.

A point that fails stops no other. How points are run is an engine's business, see `events.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from fedfair.results.document import ResultDocument
from fedfair.studies.sweep.events import Engine, Event, Failure
from fedfair.studies.sweep.folder import SweepFolder
from fedfair.studies.sweep.grid import Point
from fedfair.tables.source import federation_key


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a sweep.

    Attributes:
        results: by the point's identity, of this run and of earlier ones.
        failures: by the point's identity, of this run.
    """

    results: Mapping[str, ResultDocument]
    failures: Mapping[str, Failure]


def run_points(
    points: Sequence[Point], folder: SweepFolder, engine: Engine, on_event: Callable[[Event], None]
) -> Outcome:
    """Run the points that have no result yet, as `run_stages` does.

    Args:
        points: the whole grid.
        folder: opened.
        engine: runs points.
        on_event: called after every event.
    """
    return run_stages([points], folder, engine, on_event)


def run_stages(
    stages: Iterable[Sequence[Point]], folder: SweepFolder, engine: Engine, on_event: Callable[[Event], None]
) -> Outcome:
    """Run the points that have no result yet; those of a stage begin before those of the next.

    Args:
        stages: the points; one that several stages have is run in the first of them.
        folder: opened; it gets every result when it is there.
        engine: runs points.
        on_event: called after every event, when it has been recorded.

    Raises:
        FedfairError: the folder holds something that no sweep wrote.
        OSError: the folder cannot be written.
    """
    points = list({point.id: point for stage in stages for point in _by_data(stage)}.values())
    results = folder.finished(points)
    failures: dict[str, Failure] = {}
    with closing(engine([point for point in points if point.id not in results])) as events:
        for event in events:
            point, said = event.point, event.said
            if isinstance(said, ResultDocument):
                folder.keep(point, said)
                results[point.id] = said
            elif isinstance(said, Failure):
                failures[point.id] = said
                folder.keep_failure(point, said)
            on_event(event)
    return Outcome(results, failures)


def _by_data(points: Sequence[Point]) -> list[Point]:
    """Return the points so that those over the same records follow each other: a worker keeps what it loaded."""
    first: dict[str, int] = {}
    for point in points:
        first.setdefault(federation_key(point.plan), len(first))
    return sorted(points, key=lambda point: first[federation_key(point.plan)])
