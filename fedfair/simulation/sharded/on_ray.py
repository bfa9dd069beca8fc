"""Workers that are actors of a Ray cluster. Ray starts, places and watches them; nothing is scheduled here.

Records travel once, when a worker begins. What a question and all its workers share is put into Ray's shared
memory once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.model_layout import Layout
from fedfair.errors import StateError
from fedfair.ids import ParticipantId
from fedfair.plan.module_code import freeze
from fedfair.plan.schema import Plan
from fedfair.simulation.backend import RayCluster
from fedfair.simulation.ray_cluster import gpu_share, processors, ray_session
from fedfair.simulation.sharded.clients import Call, Lost, OnLoss, ShardedClients
from fedfair.simulation.sharded.shard import Shard, ShardTerms, Sites
from fedfair.simulation.sharded.sharding import shard_collaborators
from fedfair.tables.source import SiteFiles

_DEAD = "The actor is dead because "


class RayWorkers:
    """Workers that are actors, each with one processor and an equal share of the cluster's GPUs.

    Args:
        ray: connected.
        count: how many workers, at least 1.
        gpus: the share of a GPU for each; 0 for none.
    """

    def __init__(self, ray: Any, count: int, gpus: float) -> None:  # noqa: ANN401 - a module
        self._ray = ray
        self._kind = ray.remote(num_cpus=1, num_gpus=gpus)(Shard)
        self._actors = [self._kind.remote() for _ in range(count)]

    @property
    def count(self) -> int:
        """Return how many there are."""
        return len(self._actors)

    def ask(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Return the answer of each worker that is asked, or `Lost` where it was lost."""
        shared: dict[int, Any] = {}
        asked = {}
        for worker, call in calls.items():
            given = [self._shared(each, shared) for each in call.given]
            asked[self._actors[worker].answer.remote(call.method, *given)] = worker
        return {worker: self._got(reference) for reference, worker in asked.items()}

    def keep(self, worker: int) -> Any:  # noqa: ANN401 - a reference of Ray
        """Return where Ray's shared memory holds what a worker remembers: it is the asker's, and stays."""
        done, memory = self._actors[worker].answer_and_say.options(num_returns=2).remote("memory")
        found = self._got(done)
        return found if isinstance(found, Lost) else memory

    def replace(self, worker: int) -> None:
        """Put a new worker with an empty shard in the place of one that was lost."""
        self._ray.kill(self._actors[worker])
        self._actors[worker] = self._kind.remote()

    def close(self) -> None:
        """End all workers."""
        for actor in self._actors:
            self._ray.kill(actor)

    def _got(self, reference: Any) -> Any:  # noqa: ANN401 - an answer
        faults = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except (faults.RayActorError, faults.OutOfMemoryError, faults.WorkerCrashedError) as death:
            return Lost(_in_words(str(death)))
        except (faults.ObjectLostError, faults.OwnerDiedError) as loss:
            raise StateError(
                f"records or memories of collaborators were lost with a machine: {_in_words(str(loss))}",
                "simulate again",
            ) from loss

    def _shared(self, given: Any, shared: dict[int, Any]) -> Any:  # noqa: ANN401 - as above
        """Return a reference to what all workers of a question are given; numbers and references as they are."""
        if given is None or isinstance(given, int | float | str | self._ray.ObjectRef):
            return given
        if id(given) not in shared:
            shared[id(given)] = self._ray.put(given)
        return shared[id(given)]


def _in_words(text: str) -> str:
    """Return the reason of a death in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith(_DEAD.strip())), lines[0] if lines else "")
    return told.removeprefix(_DEAD).partition(" Worker exit type")[0].rstrip(".")


class RayEngine:
    """A Ray session that computes cohorts.

    Args:
        ray: connected.
        cluster: what was asked for.
        code: where workers look for a "module:function"; None for where they were started.
        on_loss: who hears of lost workers.
    """

    def __init__(self, ray: Any, cluster: RayCluster, code: Path | None, on_loss: OnLoss) -> None:  # noqa: ANN401 - a module
        self._ray, self._cluster, self._code, self._on_loss = ray, cluster, code, on_loss

    @contextmanager
    def cohort(self, plan: Plan, sites: Sites, layout: Layout, *, vectorised: bool) -> Iterator[ShardedClients]:
        """Yield all collaborators, sharded over workers that end with the block.

        Args:
            plan: the plan.
            sites: all collaborators' records; those that are read from files of their own are read by the workers.
            layout: of the plan's model.
            vectorised: whether collaborators of a block are computed together.
        """
        names = list(sites)
        available = processors(self._ray, self._cluster.workers)
        sharding = shard_collaborators(len(names), available, vectorised=vectorised)
        count = len(sharding.shards)
        on_gpu = plan.training.device in {"auto", "cuda"}
        workers = RayWorkers(self._ray, count, gpu_share(self._ray, count) if on_gpu else 0.0)
        try:
            terms = ShardTerms(plan, vectorised, self._code)
            owners = [[names[member] for member in sharding.members(worker)] for worker in range(count)]
            parts = [self._ray.put(part_of(sites, own)) for own in owners]
            noised = distributed_dp(plan, layout.dimension)
            yield ShardedClients(workers, terms, sharding, names, parts, noised, self._on_loss)
        finally:
            workers.close()


def part_of(sites: Sites, names: Sequence[ParticipantId]) -> Sites:
    """Return the records of some collaborators, or what reads them."""
    return sites.only(names) if isinstance(sites, SiteFiles) else {name: sites[name] for name in names}


@contextmanager
def ray_engine(plan: Plan, root: Path, cluster: RayCluster, on_loss: OnLoss) -> Iterator[RayEngine]:
    """Yield a session that ends with the block.

    The plan's own code travels as a folder of its own, copied as `plan_digest` reads it, and is imported where a
    worker starts. A session that a program has begun itself has no such folder: its workers must see `root`.

    Raises:
        FedfairError: Ray is not installed, no cluster answers, or the code cannot be read.
    """
    with TemporaryDirectory(prefix="fedfair-code-") as folder:
        code = Path(folder) if plan.task.references else None
        if code is not None:
            freeze(plan.task.references, root, code)
        with ray_session(cluster.address, code) as ray:
            shipped = code is not None and bool(ray.get_runtime_context().runtime_env.get("working_dir"))
            yield RayEngine(ray, cluster, None if shipped else root.resolve(), on_loss)
