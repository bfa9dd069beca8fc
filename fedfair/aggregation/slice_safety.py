"""Which tables of sums may be asked for, so that none of them shows a few people's values, also by subtraction.

Sums over the cells of tables can be added and subtracted. Everybody sees the counts, so the decision is the same
everywhere. Three rules, for `fewest` people:

1. A table is asked for only where each of its cells holds at least so many people. Cells of columns are merged
   until that is so; two columns with a smaller cell, or an empty one, have no table. The columns of the tables of
   two are chosen so that every two of them have such a table: none of their cells lies within another's.
2. No combination of the sums of two columns is over fewer people. A combination gives each person f(a) + g(b), by
   the cells a and b. Write s for f on the cells of one column, and for -g on those of the other: then a person's
   number is not 0 exactly where s(a) and s(b) differ. Where s is constant on every connected part of the table,
   that is nobody; otherwise a level of s cuts such a part, and everybody across the cut counts. So two columns are
   asked for only where every cut has at least `fewest` people: the least cut of Stoer and Wagner (1997) has.
3. There are at most as many sums as records over `fewest`, so that no system of equations gives all values.

What is left: tables of more than two columns are not known, so that who knows everybody's columns may find a
combination over fewer. Its value is one of `slice_sums.LEVELS` steps, rounded at random. Numpy only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]


def is_full(table: Table, fewest: int) -> bool:
    """Return whether every cell holds at least `fewest` people.

    Args:
        table: counts, of any shape.
        fewest: at least 1.
    """
    return bool(table.size) and bool((table >= fewest).all())


def least_cut(table: Table) -> float:
    """Return the fewest people over whom any combination of the sums of two columns is; infinite where all is 0.

    Args:
        table: counts (cells of one column, cells of the other); every row and column has people.
    """
    rows, columns = table.shape
    joint = np.zeros((rows + columns, rows + columns))
    joint[:rows, rows:], joint[rows:, :rows] = table, table.T
    return min((_least_cut(joint[np.ix_(part, part)]) for part in _parts(joint)), default=math.inf)


def _parts(joint: Table) -> list[list[int]]:
    """Return the connected parts of a graph with more than one vertex."""
    left, parts = set(range(len(joint))), []
    while left:
        part, pending = [left.pop()], []
        pending.extend(part)
        while pending:
            near = set(np.flatnonzero(joint[pending.pop()]).tolist()) & left
            left -= near
            part.extend(near)
            pending.extend(near)
        if len(part) > 1:
            parts.append(sorted(part))
    return parts


def _least_cut(weights: Table) -> float:
    """Return the weight of the least cut of a connected graph (Stoer and Wagner 1997)."""
    weights, best = weights.copy(), math.inf
    alive = list(range(len(weights)))
    while len(alive) > 1:
        reach, order, waiting = np.zeros(len(weights)), list[int](), list(alive)
        while waiting:
            following = max(waiting, key=lambda vertex: reach[vertex])
            waiting.remove(following)
            order.append(following)
            if waiting:
                reach[waiting] += weights[following, waiting]
        before, last = order[-2:]
        best = min(best, float(reach[last]))
        weights[before] += weights[last]
        weights[:, before] = weights[before]
        weights[before, before] = 0.0
        alive.remove(last)
    return best


def asked_tables(
    columns: Sequence[Table], pairs: dict[tuple[int, int], Table], fewest: int, *, with_pairs: bool
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return which columns and which two columns may be asked for.

    Args:
        columns: the counts of each column's cells.
        pairs: those of every two columns, by their places.
        fewest: people of whom anything may be told, at least 1.
        with_pairs: whether two columns are wanted at all.
    """
    room = int(columns[0].sum()) // fewest if columns else 0
    able = [at for at, cells in enumerate(columns) if len(cells) > 1 and is_full(cells, fewest)]
    kept = _without_conflicts(able, lambda left, right: least_cut(pairs[left, right]) < fewest)
    while sum(len(columns[at]) for at in kept) > room:
        kept.remove(max(kept, key=lambda at: (len(columns[at]), at)))
    joined: list[int] = []
    if with_pairs:
        joined = _without_conflicts(kept, lambda left, right: not is_full(pairs[left, right], fewest))
    singles = sum(len(columns[at]) for at in kept)
    while singles + sum(pairs[pair].size for pair in itertools.combinations(joined, 2)) > room:
        joined.remove(max(joined, key=lambda at: (len(columns[at]), at)))
    return kept, list(itertools.combinations(joined, 2))


def _without_conflicts(places: Sequence[int], conflict: Callable[[int, int], bool]) -> list[int]:
    """Return places of which no two conflict: again and again the one goes that has most conflicts, or is last."""
    clashes: dict[int, set[int]] = {place: set() for place in places}
    for left, right in itertools.combinations(places, 2):
        if conflict(left, right):
            clashes[left].add(right)
            clashes[right].add(left)
    while any(clashes.values()):
        worst = max(clashes, key=lambda place: (len(clashes[place]), place))
        for others in clashes.values():
            others.discard(worst)
        del clashes[worst]
    return list(clashes)
