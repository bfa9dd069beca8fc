"""How the paper's algorithm steps, in the keys of a plan: for benchmarks whose published figures are about it.

The defaults of a plan are others (docs/explain/defaults.md), so these benchmarks state everything.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedfair.plan.algorithms import ALGORITHMS

SMOOTHING: Mapping[str, object] = {"name": "softplus", "gamma": 0.05}
LEARNING_RATE = 0.05
BATCH = 64


def constant_steps(algorithm: str = "fedsrcvar") -> dict[str, object]:
    """Return the keys of `training` for a constant rate and, where an algorithm takes it, plain averaging.

    The threshold begins at its bound, unless a benchmark states another value after them.
    """
    averaged = {name for name, facts in ALGORITHMS.items() if facts.mean_of_changes}
    averaging = {"server_optimizer": {"name": "sgd"}} if algorithm in averaged else {}
    return {"schedule": "constant", "threshold_init": "bound", **averaging}
