"""Writes algorithms_bc10.json: where the algorithms of docs/explain/algorithms.md come to on bc10.

The optima are those of a convex solver. Run `python tests/vectors/make_algorithms_bc10.py`.

Everything here is written from the definitions, in cvxpy, and
imports nothing of fedfair: bc10 is scikit-learn's breast cancer set, its first ten columns standardised with
ddof=0, the model a two-logit softmax written as one weight vector w and a bias b (logit of class 1 minus that
of class 0), the loss of a record log(1 + exp(-s (x w + b))) with s = +1 for class 1. Solver: Clarabel (interior
point); the value that is kept is recomputed in numpy from its solution.

Collaborators hold records 0-199, 200-399 and 400-568. Groups are the records with x_0 > 0 and the others.

`within` holds the least objective over the ball |theta| <= R, theta the two logits' weights and biases with the
least norm that give w and b, so that |theta|^2 = (|w|^2 + b^2) / 2. The unconstrained optima lie far away in
nearly flat directions, and what first-order methods provably reach depends on how far the point of comparison is.
"""

import json
import math
from pathlib import Path

import cvxpy as cp
import numpy as np
from sklearn.datasets import load_breast_cancer

CUTS = [200, 400]
RHO, EPSILON = 0.3, 0.1
CHI2_RHO = 0.8  # at 0.3 the chi-square form is so strict that the uniform classifier is its optimum
RADII = [2, 4, 8]


def records() -> tuple[np.ndarray, np.ndarray]:
    bunch = load_breast_cancer()
    features = bunch.data[:, :10]
    return (features - features.mean(axis=0)) / features.std(axis=0), 2.0 * bunch.target - 1.0


def tail(losses: np.ndarray, weights: np.ndarray, share: float) -> float:
    """Return the mean of the worst `share`, one loss after the other, by hand."""
    left, total = share, 0.0
    for place in np.argsort(-losses):
        taken = min(left, weights[place])
        total += taken * losses[place]
        left -= taken
    return total / share


def optima_of(features: np.ndarray, signs: np.ndarray, parts: list[np.ndarray], groups: list[np.ndarray]) -> dict:
    """Return the optimum of every objective, over records (n, p) with labels -1 and 1, sites and groups."""
    count = len(signs)
    share = np.array([len(part) / count for part in parts])
    w, b = cp.Variable(features.shape[1]), cp.Variable()
    losses = cp.logistic(-cp.multiply(signs, features @ w + b))

    def means(of: list[np.ndarray]) -> list[cp.Expression]:
        return [cp.sum(losses[part]) / len(part) for part in of]

    def means_of(values: np.ndarray, of: list[np.ndarray]) -> np.ndarray:
        return np.array([values[part].mean() for part in of])

    eta, sites = cp.Variable(), means(parts)
    spread = math.sqrt(2.0 * (1.0 / CHI2_RHO - 1.0) ** 2 + 1.0)

    def worst_pointwise(values: np.ndarray) -> float:
        def at(level: float) -> float:
            return spread * math.sqrt(np.mean(np.maximum(values - level, 0.0) ** 2)) + level

        low, high = -20.0, float(values.max())
        for _ in range(200):  # the function is convex in the level: keep the better third of the interval
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (low, right) if at(left) < at(right) else (left, high)
        return at((low + high) / 2)

    problems = {
        "afl": (cp.max(cp.hstack(sites)), lambda v: float(means_of(v, parts).max())),
        "fedminmax": (cp.max(cp.hstack(means(groups))), lambda v: float(means_of(v, groups).max())),
        "qffl_1": (
            sum(p * cp.square(f) / 2 for p, f in zip(share, sites, strict=True)),
            lambda v: float(share @ means_of(v, parts) ** 2 / 2),
        ),
        "deltafl_0.5": (
            eta + sum(p * cp.pos(f - eta) for p, f in zip(share, sites, strict=True)) / 0.5,
            lambda v: tail(means_of(v, parts), share, 0.5),
        ),
        f"dro_chi2_{CHI2_RHO}": (spread * cp.norm(cp.pos(losses - eta)) / math.sqrt(count) + eta, worst_pointwise),
        f"dro_cvar_{RHO}": (
            eta + cp.sum(cp.pos(losses - eta)) / (RHO * count),
            lambda v: tail(v, np.full(count, 1.0 / count), RHO),
        ),
        f"rcvar_{RHO}_{EPSILON}": (
            (1 - EPSILON) * (eta + cp.sum(cp.pos(losses - eta)) / (RHO * count))
            + EPSILON * cp.sum(losses) / count,
            lambda v: float((1 - EPSILON) * tail(v, np.full(count, 1.0 / count), RHO) + EPSILON * v.mean()),
        ),
        "mean": (cp.sum(losses) / count, lambda v: float(v.mean())),
    }
    optima = {}
    for name, (objective, exact) in problems.items():
        within = {}
        for radius in RADII:
            ball = [cp.sum_squares(w) + cp.square(b) <= 2.0 * radius**2]
            cp.Problem(cp.Minimize(objective), ball).solve(solver=cp.CLARABEL)
            within[str(radius)] = exact(np.logaddexp(0.0, -signs * (features @ w.value + b.value)))
        problem = cp.Problem(cp.Minimize(objective))
        problem.solve(solver=cp.CLARABEL)
        values = np.logaddexp(0.0, -signs * (features @ w.value + b.value))
        optima[name] = {
            "objective": exact(values), "solver_objective": float(problem.value), "status": problem.status,
            "within": within, "weights": [float(x) for x in w.value], "bias": float(b.value),
            "site_means": means_of(values, parts).tolist(), "group_means": means_of(values, groups).tolist(),
        }  # fmt: skip
    return optima


def main() -> None:
    features, signs = records()
    groups = [np.flatnonzero(features[:, 0] > 0), np.flatnonzero(features[:, 0] <= 0)]
    optima = optima_of(features, signs, np.split(np.arange(len(signs)), CUTS), groups)
    meta = {
        "made_by": "tests/vectors/make_algorithms_bc10.py",
        "solver": f"Clarabel through cvxpy {cp.__version__}",
    }
    target = Path(__file__).with_name("algorithms_bc10.json")
    target.write_text(json.dumps({"meta": meta, "optima": optima}, indent=1) + "\n")


if __name__ == "__main__":
    main()
