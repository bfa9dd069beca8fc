"""The shortest combination of vectors whose weights lie in a box on the simplex.

    min over lambda of |sum lambda_k u_k|^2   subject to   lower <= lambda <= upper,   sum lambda_k = 1

Accelerated projected gradient descent with restarts finds out which weights lie at an end of their range; given
that, the others solve linear equations, which are exact where directions are nearly parallel and descent would
crawl. It stops when the duality gap proves how near it is: the gap is the most that the linearised objective
could still fall over the set, where the best point of the set is found by filling the cheapest entries first.
Source: Desideri 2012 (MGDA); Beck and Teboulle 2009; O'Donoghue and Candes 2015 for the restarts; Frank and
Wolfe 1956
for the gap.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.fairness.simplex import Vector, project_on_box

RELATIVE_GAP = 1e-13
MAX_STEPS = 5_000
POLISHED_EVERY = 10


def shortest_combination(vectors: NDArray[np.floating], lower: Vector, upper: Vector) -> Vector:
    """Return the weights (lambda), float64 array (k,).

    Args:
        vectors: array (k, d), k >= 1.
        lower: array (k,), at least 0, summing to at most 1.
        upper: array (k,), at most 1, summing to at least 1.
    """
    wide = np.asarray(vectors, np.float64)
    products = wide @ wide.T
    steepness = float(np.linalg.eigvalsh(products)[-1])
    weights = project_on_box(np.full(len(wide), 1.0 / len(wide)), lower, upper, 1.0)
    ahead, momentum = weights, 1.0
    for step in range(MAX_STEPS):
        exact = _polished(products, weights, lower, upper) if step % POLISHED_EVERY == 0 else weights
        if _gap(products @ exact, exact, lower, upper) <= RELATIVE_GAP * steepness:
            return exact
        moved = project_on_box(ahead - products @ ahead / steepness, lower, upper, 1.0)
        if (ahead - moved) @ (moved - weights) > 0.0:  # the momentum points uphill
            momentum = 1.0
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = moved + (momentum - 1.0) / following * (moved - weights)
        weights, momentum = moved, following
    return weights


def _polished(products: Vector, weights: Vector, lower: Vector, upper: Vector) -> Vector:
    """Return the best weights if only those within their ranges may change; the same ones if that leaves these."""
    free = (weights > lower) & (weights < upper)
    count = int(free.sum())
    if count < 2:
        return weights
    system = np.ones((count + 1, count + 1))
    system[:count, :count], system[count, count] = products[np.ix_(free, free)], 0.0
    pull = -products[np.ix_(free, ~free)] @ weights[~free]
    found = np.linalg.lstsq(system, np.append(pull, 1.0 - weights[~free].sum()))[0][:count]
    if (found < lower[free]).any() or (found > upper[free]).any():
        return weights
    exact = weights.copy()
    exact[free] = found
    return exact


def _gap(slope: Vector, weights: Vector, lower: Vector, upper: Vector) -> float:
    """Return the most that slope @ weights can fall within the set."""
    best, left = lower.copy(), 1.0 - float(lower.sum())
    for place in np.argsort(slope):
        taken = min(float(upper[place] - lower[place]), max(left, 0.0))
        best[place] += taken
        left -= taken
    return float(slope @ (weights - best))
