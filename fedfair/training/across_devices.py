"""Several processes of one site, one for each GPU, that make the steps of one client together.

Rank 0 is the site: it owns the stream, the masks, the ledger and the noise. The others hold the same records and
the same model. For each thing that rank 0 computes on records, they make the same call at the same time, each on
its part of every batch (`privacy/batch_parts.py`). Losses are put together, so that coefficients are those of the
whole batch; gradients, and clipped sums in whole cells, are added; every rank makes the same step. Noise is drawn
once, and samples are those of rank 0.

What fails on a batch in one process fails in all, as it would in one. A process that is lost ends the site: what
was computed is dropped, and nothing is sent. Words, seeds and numbers on the CPU travel through
`process_channel.py`, which nobody else on the machine can reach. Numbers on GPUs are added by NCCL.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from fedfair.errors import FedfairError, PlanError, TrainingError
from fedfair.privacy.batch_parts import BatchParts
from fedfair.privacy.releases import GaussianRelease, Release
from fedfair.training.client import TrainingClient
from fedfair.training.dp_sgd import RecordProtection
from fedfair.training.process_channel import ProcessChannel, meeting_folder

LONG = timedelta(days=365)
"""A site waits for others between two rounds; a rank that is lost breaks its connection at once."""

SHARED = frozenset({"batch", "model"})
"""The purposes of streams that every rank draws from; of noise, the others do not even get the seed."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class SiteProcesses:
    """The processes of this site, as torchrun starts them.

    Attributes:
        rank: of this one.
        size: how many there are, at least 2.
    """

    rank: int
    size: int

    def device(self, chosen: torch.device) -> torch.device:
        """Return the device of this process: a GPU of its own.

        Raises:
            PlanError: there are fewer GPUs than processes.
        """
        if chosen.type != "cuda":
            return chosen
        if self.size > torch.cuda.device_count():
            raise PlanError(
                f"{self.size} processes share {torch.cuda.device_count()} GPUs", "lower --nproc-per-node"
            )
        torch.cuda.set_device(self.rank)
        return torch.device("cuda", self.rank)


SAFE_TORCHRUN = (
    "start it so that nothing listens:\n     export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1\n"
    "     torchrun --rdzv-backend c10d --rdzv-conf store_type=file "
    '--rdzv-endpoint "$(mktemp -d)/site" --nproc-per-node N -m collaborator start ...'
)


def asked_processes(environment: Mapping[str, str]) -> SiteProcesses | None:
    """Return the processes that torchrun has started; None where there is only this one.

    Args:
        environment: of this process.

    Raises:
        PlanError: they are on several machines, between which nothing is encrypted; or torchrun itself listens on
            the network, without authentication.
    """
    size = int(environment.get("WORLD_SIZE", "1"))
    if size < 2 or "RANK" not in environment:
        return None
    if int(environment.get("LOCAL_WORLD_SIZE", size)) != size:
        raise PlanError(
            "torchrun was asked for several machines, and between them records' gradients would not be encrypted",
            "run all processes of a site on one machine: torchrun --nproc-per-node N",
        )
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # Its store has no password, and it unpickles from there what anybody may have put: code, for instance.
        raise PlanError(
            "torchrun keeps a store open to everyone who reaches this machine, on every network; "
            "who writes into it can run code as this user, who has the site's keys and records",
            SAFE_TORCHRUN,
        )
    return SiteProcesses(int(environment["RANK"]), size)


def join_processes(processes: SiteProcesses, device: torch.device) -> DeviceGroup:
    """Return this process's place among the others; wait until all are there.

    Raises:
        FedfairError: they cannot be reached.
    """
    with _lost_process():
        channel = ProcessChannel(meeting_folder(os.environ), processes.rank, processes.size)
        if device.type == "cuda":
            # The bootstrap of NCCL listens, and takes nobody without the secret number in the store.
            os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
            distributed.init_process_group(
                "nccl",
                init_method=f"file://{channel.folder / 'nccl'}",
                rank=processes.rank,
                world_size=processes.size,
                timeout=LONG,
                device_id=device,
            )
        else:
            channel.leave_folder()
    return DeviceGroup(processes, channel)


class DeviceGroup(BatchParts):
    """One process among those of a site; a `BatchParts`.

    Args:
        processes: this one's rank, and how many there are.
        channel: over which the CPU speaks.
    """

    def __init__(self, processes: SiteProcesses, channel: ProcessChannel) -> None:
        self._rank, self._size, self._channel = processes.rank, processes.size, channel
        self.leads = processes.rank == 0

    def part(self, count: int) -> slice:
        """Return which of so many records are this process's own."""
        return slice(self._rank * count // self._size, (self._rank + 1) * count // self._size)

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """Return a block that fails in every process if it fails in one.

        Raises:
            TrainingError: it has failed in another process.
        """
        try:
            yield
        except Exception:
            self._faults(1)  # Whatever a model raises, the others must hear of it.
            raise
        if self._faults(0):
            raise TrainingError(
                "the model or its loss fails on a batch of records in another process of this site"
            )

    def _faults(self, own: int) -> int:
        """Return how many processes have failed."""
        count = torch.tensor([own])
        with _lost_process():
            self._channel.add(count)
        return int(count)

    def whole(self, values: Tensor, count: int) -> Tensor:
        """Return the values (count,) of all records; each is added to zeros, which changes none."""
        whole = values.new_zeros(count)
        whole[self.part(count)] = values
        self.add(whole)
        return whole

    def add(self, values: Tensor) -> None:
        """Put the sum over all processes in the place of the values."""
        with _lost_process():
            if values.is_cuda:
                distributed.all_reduce(values)
            else:
                self._channel.add(values)

    def share(self, values: Tensor) -> None:
        """Put what rank 0 has in the place of the values."""
        with _lost_process():
            if values.is_cuda:
                distributed.broadcast(values, 0)
            else:
                self._channel.share(values)

    def owns(self, batch: int) -> bool:
        """Return whether a batch of an evaluation is this process's own."""
        return batch % self._size == self._rank

    def gathered(self, found: Mapping[int, Found]) -> Mapping[int, Found]:
        """Return what all processes found together."""
        with _lost_process():
            parts = self._channel.gathered(dict(found))
        return {number: each for part in parts for number, each in part.items()}

    def lead(self, method: str, *given: object, **named: object) -> None:
        """Have every other process call the same method of its own client."""
        if self.leads:
            self.broadcast((method, given, named))

    def broadcast(self, words: Any = None) -> Any:  # noqa: ANN401 - a call, or a seed
        """Return what rank 0 says to all; the others say nothing."""
        with _lost_process():
            return self._channel.broadcast(words)

    def protection(self, own: RecordProtection | None) -> RecordProtection:
        """Return what a client's records are protected with: rank 0's, whose samples all ranks share.

        Args:
            own: that of rank 0; None in every other process, which writes down nothing and draws no noise.
        """

        def entropy(*words: str | int) -> int:
            if words[0] in SHARED:
                return int(self.broadcast(None if own is None else own.entropy(*words)))
            # A process that does not lead draws no noise: its stream is never used.
            return 0 if own is None else own.entropy(*words)

        def record(release: Release) -> None:
            # Of a round all ranks make steps; everything else under noise is rank 0's alone.
            if isinstance(release, GaussianRelease) and release.purpose == "training":
                with self.agreed():
                    if own is not None:
                        own.record(release)
            elif own is not None:
                own.record(release)

        return RecordProtection(entropy, record)

    def end(self) -> None:
        """Let the others end."""
        if self.leads:
            self.broadcast(None)
        if distributed.is_initialized():
            distributed.destroy_process_group()
            self._channel.leave_folder()
        self._channel.close()


def follow(client: TrainingClient, group: DeviceGroup) -> None:
    """Compute with rank 0 until it ends; send nothing, and write nothing.

    Raises:
        FedfairError: rank 0 is lost.
    """
    methods: Mapping[str, Callable[..., object]] = {
        "training_change": client.descent.training_change,
        "losses": client.records.losses,
        "summable_losses": client.records.summable_losses,
        "begin_kept": client.records.begin_kept,
        "apply_scaling": client.records.apply_scaling,
        "apply_references": client.records.apply_references,
    }
    while (told := group.broadcast()) is not None:
        method, given, named = told
        try:
            methods[method](*given, **named)
        except TrainingError:
            continue  # Rank 0 has it too, and says so.


def check_divisible(module: nn.Module) -> None:
    """Refuse a model whose output for one record depends on the others of its batch.

    Raises:
        PlanError: it has a layer that does.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - its only common class
            raise PlanError(
                f"the model's layer {name} ({type(layer).__name__}) takes statistics of a whole batch, "
                "of which a process sees a part",
                "use norm: group, or run the site in one process",
            )


@contextmanager
def _lost_process() -> Iterator[None]:
    """Say which fault it is when another process of the site is gone."""
    try:
        yield
    except (RuntimeError, EOFError, OSError) as error:
        raise FedfairError(
            "another process of this site has ended; what the processes were computing is dropped, and not sent",
            "see what it wrote, then start the site again, which resumes",
        ) from error
