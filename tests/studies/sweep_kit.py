"""A small base plan, grids over it, and the plainest engine there is, for the tests of sweeps."""

from collections.abc import Generator, Sequence
from pathlib import Path

from fedfair.plan.yaml_reader import Document, parse_document
from fedfair.studies.sweep.events import Event
from fedfair.studies.sweep.grid import Point, parse_grid, points_of
from fedfair.studies.sweep.runner import PointRunner

PLAN = """
federation: {name: demo, collaborators: [clinic-a, clinic-b, clinic-c]}
task:
  data: breast-cancer
  partition: {scheme: dirichlet, alpha: 0.5}
  test_fraction: 0.2
  validation_fraction: 0.2
  standardize: secure
  model: {name: linear}
objective: {measure: loss, worst_group_size: 0.1, tradeoff: 0.1}
training: {rounds: 5, batch_size: 32, device: cpu}
secure_aggregation: {mode: "off"}
"""


def document(text: str = PLAN) -> Document:
    """Return the base plan as it is written."""
    return parse_document(text, Path("plan.yaml"))


def grid(*items: str, text: str = PLAN) -> tuple[Point, ...]:
    """Return the points of a grid over the base plan."""
    return points_of(document(text), parse_grid(items))


def in_order(points: Sequence[Point], root: Path = Path()) -> Generator[Event, None, None]:
    """Run points one after the other in this process; an engine."""
    runner = PointRunner(root)
    for point in points:
        yield Event(point, runner.attempt(point.plan))


def untimed(result: object) -> object:
    """Return a result, or anything that holds one, without what the clock says."""
    if isinstance(result, dict):
        return {key: untimed(value) for key, value in result.items() if key not in {"timing", "seconds"}}
    return [untimed(item) for item in result] if isinstance(result, list) else result
