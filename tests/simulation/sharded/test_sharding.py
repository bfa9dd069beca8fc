"""Sharding: all collaborators once, in the order of the plan; sums whose bits no number of workers changes."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.aggregation.running_sum import Totals
from fedfair.simulation.sharded.sharding import MAX_BLOCKS, added, node_sum, own_nodes, shard_collaborators

crowds = st.one_of(st.integers(1, 400), st.integers(1, 100_000))
workers = st.integers(1, 70)


@given(crowds, workers, st.booleans())
def test_each_collaborator_is_in_one_shard_in_plan_order(count: int, most: int, vectorised: bool) -> None:
    sharding = shard_collaborators(count, most, vectorised=vectorised)
    assert [number for shard in sharding.shards for number in shard] == list(range(sharding.blocks))
    members = [member for worker in range(len(sharding.shards)) for member in sharding.members(worker)]
    assert members == list(range(count))
    assert [member for block in range(sharding.blocks) for member in sharding.block(block)] == members
    assert len(sharding.shards) == min(most, sharding.blocks) <= MAX_BLOCKS
    sizes = {len(sharding.block(block)) for block in range(sharding.blocks)}
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("count", "blocks"), [(5, 5), (100, 8), (1000, 31), (5000, 64), (10_000, 78), (32_768, 256), (100_000, 256)]
)
def test_blocks_that_are_computed_together_are_large_before_they_are_many(count: int, blocks: int) -> None:
    assert shard_collaborators(count, 1000, vectorised=True).blocks == blocks


@given(crowds, workers, st.booleans())
def test_blocks_do_not_depend_on_the_number_of_workers(count: int, most: int, vectorised: bool) -> None:
    assert (
        shard_collaborators(count, most, vectorised=vectorised).starts
        == shard_collaborators(count, 1, vectorised=vectorised).starts
    )


def in_parts(values: list[np.float32], most: int) -> tuple[np.float32, int]:
    """Return the sum over blocks of one value each, as so many workers make it, and the most parts of one."""
    sharding = shard_collaborators(len(values), most, vectorised=False)
    parts, sent = {}, 0
    for shard in sharding.shards:
        nodes = list(own_nodes(sharding.blocks, shard))
        assert [block for first, end in nodes for block in range(first, end)] == list(shard)
        parts |= {
            node: node_sum(node, lambda at: values[at[0]] if at[1] - at[0] == 1 else None, np.add)
            for node in nodes
        }
        sent = max(sent, len(nodes))
    return node_sum((0, sharding.blocks), parts.get, np.add), sent


@given(st.integers(1, MAX_BLOCKS), st.integers(0, 2**32 - 1), workers)
def test_no_number_of_workers_changes_a_bit_of_a_sum(count: int, seed: int, most: int) -> None:
    source = np.random.default_rng(seed)
    values = list((source.normal(size=count) * 10.0 ** source.integers(-6, 6, count)).astype(np.float32))
    total, sent = in_parts(values, most)
    alone, one = in_parts(values, 1)
    assert total.tobytes() == alone.tobytes()
    assert one == 1
    assert sent <= 2 * math.ceil(math.log2(count) + 1)
    # (n - 1) u sum |addend| for either order; the exact sum is math.fsum's.
    bound = (count - 1) * 2.0**-24 * sum(abs(float(value)) for value in values)
    assert abs(float(total) - math.fsum(map(float, values))) <= bound * (1 + 2.0**-20)


@pytest.mark.parametrize("most", [1, 2, 4, 8, 16])
def test_a_power_of_two_of_workers_sends_one_vector_each(most: int) -> None:
    sharding = shard_collaborators(MAX_BLOCKS, most, vectorised=False)
    assert [len(list(own_nodes(sharding.blocks, shard))) for shard in sharding.shards] == [1] * most


def test_totals_are_added_word_by_word() -> None:
    ones = [
        Totals(np.array([float(k), 1.0]), np.array([2.0 * k], np.float32), k, k, 1, 3 * k, (k, 0, 1))
        for k in range(1, 4)
    ]
    total = functools.reduce(added, ones)
    assert total.header.tolist() == [6.0, 3.0]
    assert total.body.tolist() == [12.0]
    assert total.body.dtype == np.float32
    assert (total.contributors, total.replaced, total.replacing, total.clipped) == (6, 6, 3, 18)
    assert total.sizes == (6, 0, 3)
