"""From the plan's words to the object that makes its training rounds."""

from __future__ import annotations

from fedfair.learning.algorithms.afl import AgnosticFederatedLearning
from fedfair.learning.algorithms.algorithm import Algorithm
from fedfair.plan.schema import Plan


def algorithm_of(plan: Plan) -> Algorithm | None:
    """Return what makes the training rounds of a plan; None where weighted sums do."""
    training, options = plan.training, plan.training.options
    adversary_rate = options.adversary_learning_rate or training.learning_rate
    match training.algorithm:
        case "afl":
            return AgnosticFederatedLearning(adversary_rate)
        case _:
            return None
