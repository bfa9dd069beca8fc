"""One step of a server optimizer as its formulas stand, on whole vectors; slow in memory, and nothing is shared.

With the same operations in the same order as `terms.server_step.state`, so both come to the same bits.
"""

from typing import Any

import numpy as np

from fedfair.plan.sections import ServerOptimizerSection


def step(
    stated: ServerOptimizerSection,
    vector: np.ndarray,
    moments: tuple[np.ndarray, np.ndarray],
    powers: tuple[float, float],
    gradient: np.ndarray,
    rate: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the model and both moments after a step, in the width of the model.

    Args:
        stated: the optimizer.
        vector: array (d,), the model.
        moments: m and v, in its width; v is of no length where the optimizer has none.
        powers: beta1 and beta2 to the number of this round.
        gradient: float64 array (d,), the pseudo-gradient.
        rate: of the step.
    """
    width, (first, second) = vector.dtype, (moment.astype(np.float64) for moment in moments)
    beta1, beta2 = stated.momentum, stated.second_momentum
    direction: Any = gradient
    if stated.name == "momentum":
        direction = first = beta1 * first + gradient
    elif stated.name != "sgd":
        first, square = beta1 * first + (1.0 - beta1) * gradient, gradient * gradient
        if stated.name == "adam":
            second = beta2 * second + (1.0 - beta2) * square
        else:
            second = second - (1.0 - beta2) * np.sign(second - square) * square
        direction = first / (1.0 - powers[0]) / (np.sqrt(second / (1.0 - powers[1])) + stated.floor)
    return (vector - rate * direction).astype(width), first.astype(width), second.astype(width)
