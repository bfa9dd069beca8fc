"""Deals collaborators to workers, and adds partial sums so that the total depends on no number of workers.

Collaborators are cut into blocks by their number alone. Blocks are the leaves of a binary tree that halves them,
and a sum adds the two halves of each node, wherever they were computed. A worker has consecutive blocks, and
returns one sum for each node whose blocks are all its own and whose parent's are not: one for a number of workers
that is a power of two, and at most twice the logarithm of the number of blocks. No torch, and no Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np

from fedfair.aggregation.running_sum import Totals

MAX_BLOCKS = 256
"""So many blocks at most, and so many workers: a block costs a few calls, whatever is in it."""

VECTORISED_BLOCK = 32
"""Collaborators who are computed together are at least so many to a block, where that leaves some blocks."""

FEWEST_BLOCKS = 8

MANY_BLOCKS = 64
"""A block costs as many calls as a cohort. So beyond these, which balance well, blocks grow first."""

LARGE_BLOCK = 128
"""Collaborators to a block where there are more than `MANY_BLOCKS`: their steps cost more than the calls."""

Node: TypeAlias = tuple[int, int]
"""The blocks from the first number to before the second."""

Addend = TypeVar("Addend")


@dataclass(frozen=True, slots=True)
class Sharding:
    """Who computes whom.

    Attributes:
        starts: of each block, the number of its first collaborator; then how many collaborators there are.
        shards: for each worker, its blocks.
    """

    starts: tuple[int, ...]
    shards: tuple[range, ...]

    @property
    def blocks(self) -> int:
        """Return how many blocks there are."""
        return len(self.starts) - 1

    def block(self, number: int) -> range:
        """Return the collaborators of a block."""
        return range(self.starts[number], self.starts[number + 1])

    def members(self, worker: int) -> range:
        """Return the collaborators of a worker."""
        shard = self.shards[worker]
        return range(self.starts[shard.start], self.starts[shard.stop])


def shard_collaborators(collaborators: int, workers: int, *, vectorised: bool) -> Sharding:
    """Return who computes whom; there are at most as many workers as blocks.

    Args:
        collaborators: how many there are, at least 1.
        workers: how many there may be, at least 1.
        vectorised: whether a worker computes all collaborators of a block together.
    """
    blocks = min(collaborators, MAX_BLOCKS)
    if vectorised:
        many = min(MANY_BLOCKS, collaborators // VECTORISED_BLOCK)
        blocks = min(blocks, max(FEWEST_BLOCKS, many, collaborators // LARGE_BLOCK))
    return Sharding(_cuts(collaborators, blocks), _shards(blocks, min(workers, blocks)))


def _cuts(whole: int, parts: int) -> tuple[int, ...]:
    return tuple(part * whole // parts for part in range(parts + 1))


def _shards(blocks: int, workers: int) -> tuple[range, ...]:
    cuts = _cuts(blocks, workers)
    return tuple(range(cuts[worker], cuts[worker + 1]) for worker in range(workers))


def own_nodes(blocks: int, shard: range) -> Iterator[Node]:
    """Yield the nodes that a worker sums, from left to right.

    Args:
        blocks: how many there are.
        shard: the worker's.
    """
    return _covered((0, blocks), shard)


def _covered(node: Node, shard: range) -> Iterator[Node]:
    first, end = node
    if shard.start <= first and end <= shard.stop:
        yield node
    elif first < shard.stop and shard.start < end:
        for half in _halves(node):
            yield from _covered(half, shard)


def node_sum(
    node: Node, known: Callable[[Node], Addend | None], add: Callable[[Addend, Addend], Addend]
) -> Addend:
    """Return the sum over a node, from left to right.

    Args:
        node: of the tree; the whole of it is (0, blocks).
        known: the sum over a node that is not made of its halves'; None for the others.
        add: the sum of two sums.
    """
    if (found := known(node)) is not None:
        return found
    left, right = _halves(node)
    return add(node_sum(left, known, add), node_sum(right, known, add))


def _halves(node: Node) -> tuple[Node, Node]:
    middle = (node[0] + node[1]) // 2
    return (node[0], middle), (middle, node[1])


def added(left: Totals, right: Totals) -> Totals:
    """Return the totals over the contributors of both; a sum that is too large becomes infinite."""
    # Either both tell of sizes, or neither does.
    sizes = tuple(one + other for one, other in zip(left.sizes, right.sizes, strict=True))
    with np.errstate(over="ignore", invalid="ignore"):
        header, body = left.header + right.header, left.body + right.body
    return replace(
        left,
        header=header,
        body=body,
        contributors=left.contributors + right.contributors,
        replaced=left.replaced + right.replaced,
        replacing=left.replacing + right.replacing,
        clipped=left.clipped + right.clipped,
        sizes=sizes,
    )
