"""The objective as a module for anybody's own loop, with its threshold as a parameter.

The formula is that of `rcvar.py`; decided here are widths, devices and what is refused. The threshold is learnt
like any other parameter. At a fixed model its best value is the quantile of the losses that `reset_threshold`
sets.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedfair.errors import DataError, PlanError
from fedfair.fairness.cvar import tail_count
from fedfair.fairness.rcvar import Objective
from fedfair.fairness.smoothing import SmoothedPlus, smoothing

HALF = (torch.float16, torch.bfloat16)
"""Widths in which a tail of rare losses would be lost; such losses are computed in float32."""


class RCVaRLoss(nn.Module):
    """The mean of the worst group, smoothed, and part of the overall mean: minimise it in place of a mean loss.

    With one loss for each record, give it to any optimiser together with the model's parameters:

        (1 - tradeoff) * (c + mean(s(loss - c)) / worst_group_size) + tradeoff * mean(loss)

    where c is the parameter `threshold` and s the smoothed plus function. Minimised over c too, this is at least
    the exact objective, and above it by at most `(1 - tradeoff) * gap / worst_group_size`. At `worst_group_size=1`
    or `tradeoff=1` it is the mean loss itself, and the threshold has the gradient 0.

    The threshold is in units of the loss. Give it a learning rate of its own where the model's is small, and put
    its `weight_decay` to 0: a decayed threshold is a wrong quantile.

    Args:
        worst_group_size: the smallest share of the records that is protected (rho), above 0 to 1.
        tradeoff: weight of the overall mean (epsilon), from 0 to 1.
        smoothing: the smoothed plus function: zang, softplus, quadratic, chks or gaussian.
        gamma: width of the smoothing, above 0, in units of the loss.
        threshold: where the threshold begins, in units of the loss.

    Attributes:
        threshold: the parameter c, a scalar.

    Raises:
        PlanError: an argument is out of its range.

    Example:
        >>> import torch, fedfair
        >>> _ = torch.manual_seed(0)
        >>> features, labels = torch.randn(64, 3), torch.randint(0, 2, (64,))
        >>> model, loss = torch.nn.Linear(3, 2), fedfair.RCVaRLoss(worst_group_size=0.2, tradeoff=0.1)
        >>> adam = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=0.05)
        >>> for _ in range(50):
        ...     adam.zero_grad()
        ...     losses = torch.nn.functional.cross_entropy(model(features), labels, reduction="none")
        ...     value = loss(losses)
        ...     value.backward()
        ...     adam.step()
        >>> fedfair.worst_group_risk(losses, 0.2) < 1.0
        True
    """

    def __init__(
        self,
        worst_group_size: float = 0.3,
        tradeoff: float = 0.3,
        smoothing: str | SmoothedPlus = "zang",
        *,
        gamma: float | None = None,
        threshold: float = 1.0,
    ) -> None:
        super().__init__()
        self.objective = Objective(worst_group_size, tradeoff, _smoothed(smoothing, gamma))
        self.threshold = nn.Parameter(torch.tensor(float(threshold)))

    def forward(self, losses: Tensor) -> Tensor:
        """Return the objective of a batch: a scalar that is differentiable in the losses and in the threshold.

        Args:
            losses: float tensor (n,), n >= 1, one loss for each record; on the device of the threshold. Losses in
                half precision are computed in float32, also under autocast.

        Raises:
            DataError: the losses are not one number for each record, or lie on another device.
        """
        self._check(losses)
        with torch.autocast(losses.device.type, enabled=False):
            values = losses.float() if losses.dtype in HALF else losses
            threshold = self.threshold.to(values.dtype)
            mean = self.objective.per_sample(values, threshold).mean()
            # Where the objective is the plain mean the threshold has a gradient all the same, of 0: an optimiser
            # over several processes waits for the gradient of every parameter.
            return mean + 0.0 * threshold if self.objective.is_plain_mean else mean

    @torch.no_grad()
    def reset_threshold(self, losses: Tensor) -> None:
        """Set the threshold to the best one for these losses: their (1 - worst_group_size) quantile.

        Call it once before training, with the losses of a batch, where the scale of the loss is not known.

        Args:
            losses: float tensor (n,), n >= 1, finite.

        Raises:
            DataError: the losses are not one finite number for each record, or lie on another device.
        """
        self._check(losses)
        if not bool(torch.isfinite(losses).all()):
            raise DataError("a threshold cannot be set by losses that are NaN or infinite")
        ordered = losses.detach().cpu().double().sort(descending=True).values
        last = int(tail_count(len(ordered), self.objective.worst_group_size))
        self.threshold.copy_(ordered[min(last, len(ordered) - 1)])

    def extra_repr(self) -> str:
        """Return the settings, for the printed form of a model."""
        stated = self.objective
        return (
            f"worst_group_size={stated.worst_group_size}, tradeoff={stated.tradeoff}, "
            f"smoothing={stated.smoothing.name}, gamma={stated.smoothing.gamma}"
        )

    def _check(self, losses: Tensor) -> None:
        if not isinstance(losses, Tensor) or not losses.is_floating_point():
            found = str(losses.dtype) if isinstance(losses, Tensor) else type(losses).__name__
            raise DataError(f"the losses are {found}, not a tensor of floats", "give one loss for each record")
        if losses.ndim != 1 or not len(losses):
            raise DataError(
                f"the losses have shape {tuple(losses.shape)}, not one loss for each record",
                "compute them without a reduction, such as cross_entropy(..., reduction='none')",
            )
        if losses.device != self.threshold.device:
            raise DataError(
                f"the losses are on {losses.device}, the threshold is on {self.threshold.device}",
                "move this loss as you move the model: loss.to(device), before the optimiser is made",
            )


def _smoothed(name: str | SmoothedPlus, gamma: float | None) -> SmoothedPlus:
    if isinstance(name, SmoothedPlus):
        if gamma is not None:
            raise PlanError("gamma is stated twice: beside smoothing, and by it", "omit gamma")
        return name
    return smoothing(name, 0.02 if gamma is None else gamma)
