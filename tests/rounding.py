"""How far two computations of one model may be apart."""

import torch

FLOAT32_ROUNDING = 1e-5
"""Of a loss on a GPU: sums of some 30 products, up to about 30, added up in float32 in another order."""


def rounding(exact: float | None) -> float | None:
    """Return the tolerance of losses: `exact` on a CPU, that of float32 where a GPU computes them."""
    return FLOAT32_ROUNDING if torch.cuda.is_available() else exact
