"""Every algorithm once more over bc10, slowly, in numpy, from its paper: the softmax and its gradient by hand.

Nothing of fedfair's training is used; a model is theta = [b_0, b_1, W (2 x 10)], as the flat vector has it. Only
full batches, so nothing is drawn except where an algorithm itself draws.
"""

from collections.abc import Callable, Sequence

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from fedfair.tables.seeds import array_generator
from tests import bc10

Vector = NDArray[np.float64]
Parts = Sequence[NDArray[np.int64]]

DIMENSION = 22


def thirds() -> list[NDArray[np.int64]]:
    """Return the collaborators of tests/vectors/algorithms_bc10.json."""
    return np.split(np.arange(len(bc10.dataset())), [200, 400])


def losses(theta: Vector, part: NDArray[np.int64]) -> Vector:
    """Return the cross-entropy of each record."""
    x, y = bc10.dataset().features[part], bc10.dataset().labels[part]
    logits = theta[:2] + x @ theta[2:].reshape(2, 10).T
    return np.array([np.log(sum(np.exp(row - row[label]))) for row, label in zip(logits, y, strict=True)])


def gradient(theta: Vector, part: NDArray[np.int64], weights: Vector | None = None) -> Vector:
    """Return the mean over records of weight * gradient of the loss."""
    x, y = bc10.dataset().features[part], bc10.dataset().labels[part]
    total = np.zeros(DIMENSION)
    for i, (row, label) in enumerate(zip(x, y, strict=True)):
        scores = np.exp(theta[:2] + theta[2:].reshape(2, 10) @ row)
        error = scores / scores.sum() - (np.arange(2) == label)
        weight = 1.0 if weights is None else weights[i]
        total += weight * np.concatenate([error, np.outer(error, row).ravel()])
    return total / len(part)


def local(theta: Vector, part: NDArray[np.int64], rate: float, steps: int) -> Vector:
    """Return the model after some steps of plain descent."""
    for _ in range(steps):
        theta = theta - rate * gradient(theta, part)
    return theta


def project(point: Vector, lower: Vector | float = 0.0, upper: Vector | float = 1.0, total: float = 1.0) -> Vector:
    """Return the nearest point of a box with a sum, by trying every set of entries that could be at an end."""
    low, high = np.broadcast_to(lower, point.shape), np.broadcast_to(upper, point.shape)
    best, least = None, np.inf
    for code in range(3 ** len(point)):
        state = np.array([code // 3**i % 3 for i in range(len(point))])
        found = np.where(state == 0, low, high).astype(float)
        free = state == 2
        if free.any():
            found[free] = point[free] + (total - found[~free].sum() - point[free].sum()) / free.sum()
        feasible = (found >= low - 1e-13).all() and (found <= high + 1e-13).all()
        if feasible and abs(found.sum() - total) < 1e-12 and ((found - point) ** 2).sum() < least:
            best, least = found, ((found - point) ** 2).sum()
    assert best is not None
    return best


def trajectory(step: Callable[[Vector, int], Vector], rounds: int) -> list[Vector]:
    """Return the models after each round, from zero."""
    models = [np.zeros(DIMENSION)]
    for number in range(1, rounds + 1):
        models.append(step(models[-1], number))
    return models[1:]


def afl(parts: Parts, rounds: int, rate: float, adversary_rate: float) -> list[Vector]:
    """Return the models of AFL (Mohri et al. 2019, Algorithm 1)."""
    weights = np.array([len(part) for part in parts], float)
    weights /= weights.sum()

    def step(theta: Vector, _: int) -> Vector:
        nonlocal weights
        risks = np.array([losses(theta, part).mean() for part in parts])
        moved = theta - rate * sum(
            (weight * gradient(theta, part) for weight, part in zip(weights, parts, strict=True)),
            np.zeros(DIMENSION),
        )
        weights = project(weights + adversary_rate * risks)
        return moved

    return trajectory(step, rounds)


def masses(parts: Parts) -> Vector:
    """Return p_k = n_k / n."""
    counts = np.array([len(part) for part in parts], float)
    return counts / counts.sum()


def drfa(parts: Parts, rounds: int, rate: float, adversary_rate: float, steps: int, drawn: int) -> list[Vector]:
    """Return the models of DRFA (Deng et al. 2020, Algorithm 1), with the draws that the product says it makes."""
    weights = masses(parts)

    def step(theta: Vector, number: int) -> Vector:
        nonlocal weights
        draws = array_generator(0, "drfa", number)
        chosen = sorted(draws.choice(len(parts), drawn, p=weights).tolist())
        early = int(draws.integers(1, steps, endpoint=True))
        told = draws.choice(len(parts), drawn, replace=False).tolist()
        after = [local(theta, parts[member], rate, steps) for member in chosen]
        between = sum((local(theta, parts[member], rate, early) for member in chosen), np.zeros(DIMENSION)) / drawn
        estimate = np.zeros(len(parts))
        for member in told:
            estimate[member] = len(parts) / drawn * losses(between, parts[member]).mean()
        weights = project(weights + steps * adversary_rate * estimate)
        return sum(after, np.zeros(DIMENSION)) / drawn

    return trajectory(step, rounds)


def fedminmax(groups: Parts, rounds: int, rate: float, adversary_rate: float) -> list[Vector]:
    """Return the models of FedMinMax (Papadaki et al. 2022); only the groups matter, not who holds a record."""
    weights = masses(groups)

    def step(theta: Vector, _: int) -> Vector:
        nonlocal weights
        risks = np.array([losses(theta, group).mean() for group in groups])
        slope = sum((mu * gradient(theta, g) for mu, g in zip(weights, groups, strict=True)), np.zeros(DIMENSION))
        weights = project(weights + adversary_rate * risks)
        return theta - rate * slope

    return trajectory(step, rounds)


def qffl(parts: Parts, rounds: int, rate: float, steps: int, power: float) -> list[Vector]:
    """Return the models of q-FedAvg (Li et al. 2020, Algorithm 2), every site taking part with its share."""
    share = masses(parts)

    def step(theta: Vector, _: int) -> Vector:
        above, below = np.zeros(DIMENSION), 0.0
        for p, part in zip(share, parts, strict=True):
            delta = (theta - local(theta, part, rate, steps)) / rate
            risk = losses(theta, part).mean()
            above += p * risk**power * delta
            below += p * (power * risk ** (power - 1) * (delta @ delta) + risk**power / rate)
        return theta - above / below

    return trajectory(step, rounds)


def tail(values: Vector, share_of: Vector, worst: float) -> Vector:
    """Return how much of each value belongs to the worst share of the whole, one after the other; no ties."""
    taken, left = np.zeros(len(values)), worst
    for place in np.argsort(-values):
        taken[place] = min(left, share_of[place])
        left -= taken[place]
    return taken / worst


def deltafl(parts: Parts, rounds: int, rate: float, steps: int, worst: float) -> list[Vector]:
    """Return the models of Delta-FL, the superquantile over collaborators, from a start without ties."""

    def step(theta: Vector, _: int) -> Vector:
        risks = np.array([losses(theta, part).mean() for part in parts])
        # All collaborators tie at zero: then every site counts.
        weights = masses(parts) if np.ptp(risks) < 1e-12 else tail(risks, masses(parts), worst)
        return sum(
            (w * local(theta, part, rate, steps) for w, part in zip(weights, parts, strict=True)),
            np.zeros(DIMENSION),
        )

    return trajectory(step, rounds)


def fedmgda(
    parts: Parts, rounds: int, rate: float, steps: int, server_rate: float, weight_range: float
) -> list[Vector]:
    """Return the models of FedMGDA+ (Hu et al. 2022), its quadratic programme by a general solver."""
    share = masses(parts)

    def step(theta: Vector, _: int) -> Vector:
        changes = [local(theta, part, rate, steps) - theta for part in parts]
        units = np.array([change / np.sqrt(change @ change) for change in changes])
        weights = cp.Variable(len(parts))
        inside = [weights >= 0, cp.sum(weights) == 1, cp.abs(weights - share) <= weight_range]
        problem = cp.Problem(cp.Minimize(cp.sum_squares(units.T @ weights)), inside)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
        return theta + server_rate * np.asarray(weights.value) @ units

    return trajectory(step, rounds)


def local_bpf(
    parts: Parts, rounds: int, rate: float, steps: int, rho: float, eps: float, gamma: float
) -> list[tuple[Vector, float]]:
    """Return models and mean thresholds where every collaborator descends on a threshold of its own, from 1."""
    share, levels, theta, found = masses(parts), np.ones(len(parts)), np.zeros(DIMENSION), []
    for _ in range(rounds):
        ends = []
        for k, part in enumerate(parts):
            mine, level = theta, levels[k]
            for _ in range(steps):
                sigma = 1.0 / (1.0 + np.exp(-(losses(mine, part) - level) / gamma))
                slope = (1.0 - eps) * (1.0 - sigma.mean() / rho)
                mine = mine - rate * gradient(mine, part, (1.0 - eps) * sigma / rho + eps)
                level -= rate * slope
            ends.append(mine)
            levels[k] = max(level, 0.0)
        theta = share @ np.array(ends)
        found.append((theta, float(share @ levels)))
    return found


def dro(rounds: int, rate: float, weigh: Callable[[Vector], Vector]) -> list[Vector]:
    """Return the models of descent on all records, weighed by an adversary's answer to their losses."""
    everybody = np.arange(len(bc10.dataset()))

    def step(theta: Vector, _: int) -> Vector:
        return theta - rate * gradient(theta, everybody, weigh(losses(theta, everybody)))

    return trajectory(step, rounds)


def chi_square(values: Vector, rho: float) -> Vector:
    """Return the chi-square adversary's weights, by trying every number of records that it could pick.

    With the k worst picked, C mean((l - eta)+) = sqrt(mean((l - eta)+^2)) is a quadratic equation in eta.
    """
    count, bound = len(values), 2.0 * (1.0 / rho - 1.0) ** 2 + 1.0
    ordered = np.sort(values)[::-1]
    for k in range(1, count + 1):
        top, spread = ordered[:k].mean(), ordered[:k].var()
        room = bound * k / count - 1.0
        if room <= 0.0:
            continue
        eta = top - np.sqrt(spread / room)
        # A record that lies on eta itself is put on either side of it by rounding.
        rounding = 1e-12 * np.abs(values).max()
        if ordered[k - 1] >= eta - rounding and (k == count or ordered[k] <= eta + rounding):
            excess = np.maximum(values - eta, 0.0)
            picked = excess if excess.any() else (values == values.max()).astype(float)
            return picked / picked.mean()
    raise AssertionError("no number of records fits")


def bpf(rounds: int, rate: float, adversary_rate: float, rho: float, floor: float) -> list[Vector]:
    """Return the models of BPF (Martinez et al. 2021), the adversary projected by a general solver."""
    everybody = np.arange(len(bc10.dataset()))
    weights = np.full(len(everybody), rho)

    def step(theta: Vector, _: int) -> Vector:
        nonlocal weights
        slope = gradient(theta, everybody, weights / weights.mean())
        point, w = weights + adversary_rate * losses(theta, everybody), cp.Variable(len(everybody))
        inside = [w >= floor, w <= 1, cp.sum(w) == rho * len(everybody)]
        problem = cp.Problem(cp.Minimize(cp.sum_squares(w - point)), inside)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        weights = np.asarray(w.value)
        return theta - rate * slope

    return trajectory(step, rounds)
