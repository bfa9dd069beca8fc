"""One worker's shard of the collaborators: it keeps their records and what they remember, and sums over them.

What it answers is a function of its records, of what it was asked before, and of the question. So a worker that is
lost is replaced by one that is asked the same again. No Ray: `on_ray.py` makes an actor of it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import FedfairError, PlanError
from fedfair.fairness.record_losses import Losses, SiteLosses
from fedfair.ids import ParticipantId
from fedfair.plan.derived import is_unevaluated
from fedfair.plan.schema import Plan
from fedfair.privacy.releases import GaussianRelease, ReleaseLog
from fedfair.simulation.clients import AskedSteps, LoopClients
from fedfair.simulation.cohort import Cohort, cohort_of
from fedfair.simulation.sharded.sharding import Node, Sharding, added, node_sum, own_nodes
from fedfair.tables.dataset import Splits
from fedfair.training.assembly import flat_model, local_steps
from fedfair.training.device import choose_device
from fedfair.version import __version__

Sites = Mapping[ParticipantId, Splits]


@dataclass(frozen=True, slots=True)
class ShardTerms:
    """The terms of a shard; the same for all workers.

    Attributes:
        plan: the plan.
        vectorised: whether the collaborators of a block are computed together.
        code: where a "module:function" of the plan is looked for; None for where the worker was started.
        version: of fedfair at the one who asks.
    """

    plan: Plan
    vectorised: bool
    code: Path | None
    version: str = __version__


Counted: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]
"""The training records of each member of a shard, and what each weighs in a round: arrays (members,)."""


@dataclass(frozen=True, slots=True)
class PackedLosses:
    """The losses of several collaborators in few arrays.

    Attributes:
        counts: by split, int64 array (members,): how many records each has.
        losses: by split, those of all, one collaborator after the other.
    """

    counts: Mapping[str, NDArray[np.int64]] = field(repr=False)
    losses: Mapping[str, Losses]

    @classmethod
    def of(cls, sites: Sequence[SiteLosses]) -> PackedLosses:
        """Return the losses of these collaborators, packed."""
        counts, losses = {}, {}
        for split in SPLITS:
            held = [site[split] for site in sites if split in site]
            if held:
                sizes = [len(site[split].values) if split in site else 0 for site in sites]
                counts[split] = np.array(sizes, np.int64)
                losses[split] = Losses.joined(held)
        return cls(counts, losses)

    def unpacked(self, members: int) -> list[SiteLosses]:
        """Return the losses of each collaborator, as views."""
        sites: list[dict[str, Losses]] = [{} for _ in range(members)]
        for split, found in self.losses.items():
            start = 0
            for site, count in zip(sites, self.counts[split].tolist(), strict=True):
                if count:
                    site[split] = found.part(start, start + count)
                start += count
        return list(sites)


@dataclass(frozen=True, slots=True)
class PartialSums:
    """A worker's part of a sum.

    Attributes:
        nodes: by node of the tree, the totals over its blocks; of noised whole numbers int64, without a header.
        losses: of all its collaborators, if the sum was an evaluation.
    """

    nodes: Mapping[Node, Totals]
    losses: PackedLosses | None


@dataclass(frozen=True, slots=True)
class WorkerFault:
    """A fault that has a name, as it travels between processes."""

    kind: type[FedfairError]
    message: str
    remedy: str

    def error(self) -> FedfairError:
        """Return it as it was raised."""
        return self.kind(self.message, self.remedy)


class Shard:
    """A worker's collaborators, empty until `begin`."""

    def __init__(self) -> None:
        self._sharding, self._noised = Sharding((0,), ()), False
        self._mine, self._first = range(0), 0
        self._blocks: dict[int, Cohort] = {}
        self._logs: dict[ParticipantId, ReleaseLog] = {}

    def answer(self, method: str, *given: Any) -> Any:  # noqa: ANN401 - as the method returns
        """Return what a method returns, or the fault with a name that it raised."""
        try:
            return getattr(self, method)(*given)
        except FedfairError as error:
            return WorkerFault(type(error), error.message, error.remedy)

    def begin(self, terms: ShardTerms, sharding: Sharding, worker: int, sites: Sites) -> Counted:
        """Take records, in the order of the plan; they are read here if `sites` is a mapping that reads them.

        Raises:
            FedfairError: they cannot be read, or this machine has another version of fedfair, or no such device.
        """
        if terms.version != __version__:
            raise PlanError(
                f"a worker has fedfair {__version__}, the command has {terms.version}",
                "install the same version on every machine of the cluster",
            )
        torch.set_num_threads(1)
        # What came through Ray's shared memory is read-only, and nothing here writes to records.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        plan, names = terms.plan, list(sites)
        held = [sites[name] for name in names]
        code = Path.cwd() if terms.code is None else terms.code
        model = flat_model(plan, held[0].train.schema, choose_device(plan.training.device), code)
        self._noised, steps = is_unevaluated(plan), local_steps(plan, model, held[0].train.schema)
        self._sharding, self._mine = sharding, sharding.shards[worker]
        self._first = sharding.members(worker).start
        self._logs = {name: ReleaseLog() for name in names}
        for block in self._mine:
            places = [member - self._first for member in sharding.block(block)]
            part = {names[place]: held[place] for place in places}
            logs = {name: self._logs[name] for name in part}
            self._blocks[block] = cohort_of(plan, part, model, logs, vectorised=terms.vectorised, steps=steps)
        cohorts = list(self._blocks.values())
        counts = np.concatenate([cohort.counts for cohort in cohorts])
        return counts, np.concatenate([cohort.weights for cohort in cohorts])

    def scale(self, scaling: FeatureScaling) -> None:
        """Scale the features of all collaborators of this shard."""
        for cohort in self._blocks.values():
            cohort.apply_scaling(scaling)

    def apply_references(self, references: References) -> None:
        """Judge the records of all collaborators of this shard by these references."""
        for cohort in self._blocks.values():
            cohort.apply_references(references)

    def sum(self, request: SumRequest, model: GlobalModel, clip: float | None) -> PartialSums:
        """Return this shard's part of a sum; see `Clients.totals`."""
        summed = functools.partial(self._block_sum, request=request, model=model, clip=clip)

        def known(node: Node) -> Totals | None:
            return summed(node[0]) if node[1] - node[0] == 1 else None

        nodes = {node: node_sum(node, known, added) for node in own_nodes(self._sharding.blocks, self._mine)}
        kind, cohorts = request.purpose.statistic, self._blocks.values()
        evaluates = kind.is_evaluation and not kind.has_query
        return PartialSums(nodes, self._packed(cohort.last_losses for cohort in cohorts) if evaluates else None)

    def _block_sum(self, block: int, request: SumRequest, model: GlobalModel, clip: float | None) -> Totals:
        """Return the totals of a block; of noised whole numbers they have no header, and are not yet opened."""
        cohort = self._blocks[block]
        if self._noised and request.purpose.statistic.is_round and isinstance(cohort, LoopClients):
            # Whole numbers, exactly; only the sum over all collaborators is taken modulo the ring and opened.
            return Totals(
                np.zeros(0), cast(NDArray[Any], cohort.noised_numbers(request, model)), len(cohort.names)
            )
        return cohort.totals(request, model, clip)

    def losses(self, model: GlobalModel, splits: Collection[str]) -> PackedLosses:
        """Return the losses of the model; see `Clients.losses`."""
        return self._packed(cohort.losses(model, splits) for cohort in self._blocks.values())

    def changes(self, model: GlobalModel, asked: AskedSteps) -> NDArray[np.floating]:
        """Return what local steps change at members of this shard; see `Clients.changes`."""
        members = np.asarray(asked.members)
        models = np.empty((len(members), len(model.vector)), model.vector.dtype)
        for block, cohort in self._blocks.items():
            here = self._sharding.block(block)
            places, own = asked.of(here, members, here.start)
            if places:
                models[places] = cohort.changes(model, own)
        return models

    def answer_and_say(self, method: str, *given: Any) -> tuple[bool, Any]:  # noqa: ANN401 - as above
        """Return that there is an answer, and the answer: two values, so that one may stay where it is."""
        return True, self.answer(method, *given)

    def memory(self) -> object:
        """Return what a worker in the place of this one must know beside records and scaling."""
        return {block: cohort.memory for block, cohort in self._blocks.items()}, self._logs

    def restore(self, memory: Any) -> None:  # noqa: ANN401 - as `memory` returned it
        """Know what another worker knew in this place."""
        kept, logs = memory
        for block, cohort in self._blocks.items():
            cohort.memory = kept[block]
        for name, log in self._logs.items():
            log.releases, log.sums = list(logs[name].releases), list(logs[name].sums)

    def worst_log(self) -> tuple[ParticipantId, ReleaseLog]:
        """Return whose releases promise least, and what they are: the first of those with the highest rate."""
        return max(self._logs.items(), key=lambda item: loss_order(item[1]))

    def _packed(self, found: Iterable[list[SiteLosses]]) -> PackedLosses:
        return PackedLosses.of([site for sites in found for site in sites])


def loss_order(log: ReleaseLog) -> tuple[float, int]:
    """Return what the loss of privacy of a log grows with, where plans are the same."""
    rounds = (one for one in log.releases if isinstance(one, GaussianRelease) and one.purpose == "training")
    rates = (release.sampling_rate for release in rounds)
    return max(rates, default=0.0), sum(release.count for release in log.sums)
