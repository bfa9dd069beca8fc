"""Groups collaborators that make their local steps together: few enough for the cache, alike enough to be padded.

Decides the groups; a group's batches are made in `group_batch.py`. A group on the CPU is as large as the cache
bears, because every step goes over its activations several times, and no larger; on an accelerator it is as
large as the memory bears.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fedfair.aggregation.model_layout import Layout
from fedfair.plan.local_rounds import round_length, stated_batch_size
from fedfair.plan.sections import TrainingSection

CPU_GROUP_BYTES = 16 << 20
"""Found by measuring: from a quarter of it to twice as much a round takes the same time within a tenth."""

ACCELERATOR_SHARE = 0.25
"""A group takes at most this share of the memory that is free on an accelerator."""

MIN_SHARE = 0.5
"""In a group nobody has less than this share of the steps times batch of the largest: that bounds the padding."""

Members = NDArray[np.int64]
"""Collaborators by number, in the order in which a group computes them: array (k,)."""


def suitable_budget(device: torch.device) -> int:
    """Return how many bytes a group may take on a device."""
    if device.type == "cuda":
        return int(ACCELERATOR_SHARE * torch.cuda.mem_get_info(device)[0])
    return CPU_GROUP_BYTES


def planned_groups(
    training: TrainingSection,
    counts: NDArray[np.int64],
    layout: Layout,
    columns: int,
    budget: int,
    *,
    own_models: bool,
    steps: int | None = None,
) -> list[Members]:
    """Return places in groups that make the local steps of a round together.

    Args:
        training: how many steps, on how many records.
        counts: training records of each, at least 1.
        layout: of the linear or MLP model.
        columns: number of values in one record.
        budget: for the whole group, in bytes.
        own_models: whether each member's own weights are wanted; they exist where more than one step is made, too.
        steps: the most that anybody makes; None for all of a round.
    """
    lengths = np.array([round_length(training, count) for count in counts.tolist()], np.int64)
    sizes = np.array([stated_batch_size(training, count) for count in counts.tolist()], np.int64)
    lengths = lengths if steps is None else np.minimum(lengths, steps)
    own_models |= bool((lengths > 1).any())
    biases = sum(entry.size for entry in layout.entries if len(entry.shape) == 1)
    # Every output of a layer is there twice, as itself and as its gradient, and a moved model as itself.
    width = layout.dtype.itemsize
    member = width * layout.dimension if own_models else 0
    return cut_groups(lengths, sizes, budget, member, width * (columns + 2 * biases))


def cut_groups(
    lengths: NDArray[np.int64], sizes: NDArray[np.int64], budget: int, member: int, record: int
) -> list[Members]:
    """Return places in the arrays in groups, those with the most steps and the largest batches first.

    Args:
        lengths: how many steps each makes, at least 1.
        sizes: how many records each has in its first batch, at least 1; no later one is larger.
        budget: bytes that a group may take.
        member: bytes for each member of it, whatever its batch.
        record: bytes for every record of a batch.
    """
    places = np.lexsort((-sizes, -lengths))
    sizes, work = sizes[places], (lengths * sizes)[places]
    groups, start = [], 0
    while start < len(places):
        most = max(1, budget // max(1, member + int(sizes[start]) * record))
        end = min(len(places), start + most)
        unlike = (work[start:end] < MIN_SHARE * work[start]) | (sizes[start:end] > sizes[start])
        if unlike.any():
            end = start + int(np.argmax(unlike))
        groups.append(places[start:end])
        start = end
    return groups
