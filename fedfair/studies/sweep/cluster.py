"""Points on the machines of a Ray cluster; without one, on a Ray that starts here. Needs the extra `ray`.

One actor per worker, each with one processor and an equal share of the cluster's GPUs, keeps the records that it
has loaded. The workspace is a path that every machine sees. `RAY_ADDRESS` names the cluster, as everywhere in Ray.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import torch

from fedfair.plan.schema import Plan
from fedfair.results.document import ResultDocument
from fedfair.simulation.ray_cluster import gpu_share, processors, ray_session
from fedfair.studies.sweep.events import Event, Failure
from fedfair.studies.sweep.grid import Point
from fedfair.studies.sweep.runner import PointRunner


class _Worker:
    """An actor of the cluster: a runner on one thread. Ray carries results and no progress."""

    def __init__(self, root: Path) -> None:
        torch.set_num_threads(1)
        self._runner = PointRunner(root)

    def attempt(self, plan: Plan) -> ResultDocument | Failure:
        """Return the result of a plan, or why there is none."""
        return self._runner.attempt(plan)


def run_on_ray(points: Sequence[Point], root: Path, workers: int | None) -> Generator[Event, None, None]:
    """Run points on a Ray cluster; an engine.

    Args:
        points: what to run.
        root: the workspace of the plan, on a path that every machine of the cluster sees.
        workers: how many at a time, at least 1; None for one on every processor of the cluster.

    Raises:
        PlanError: the cluster has fewer processors than workers were asked for.
    """
    with ray_session(None) as ray:
        count = min(processors(ray, workers), len(points))
        kind: Any = ray.remote(num_cpus=1, num_gpus=gpu_share(ray, count))(_Worker)
        yield from _run(ray, deque(points), kind, root.resolve(), count)


def _run(ray: Any, waiting: deque[Point], kind: Any, root: Path, count: int) -> Generator[Event, None, None]:  # noqa: ANN401 - Ray types no actor classes
    busy: dict[Any, tuple[Any, Point]] = {}

    def give(actor: Any) -> None:  # noqa: ANN401 - as above
        point = waiting.popleft()
        busy[actor.attempt.remote(point.plan)] = (actor, point)

    for _ in range(count):
        give(kind.remote(root))
    while busy:
        (done, *_), _ = ray.wait(list(busy))
        actor, point = busy.pop(done)
        try:
            answer: ResultDocument | Failure = ray.get(done)
        except ray.exceptions.RayActorError as death:
            answer = Failure(f"its worker died: {str(death).splitlines()[0]}", "run it again")
            actor = kind.remote(root) if waiting else None
        if waiting:
            give(actor)
        yield Event(point, answer)
