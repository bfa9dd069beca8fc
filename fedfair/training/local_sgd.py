"""The local steps of one collaborator: forward, one backward pass, one step of theta and c, as often as asked.

Decides how a batch becomes a step, in every precision. Which batches those are and what is sent afterwards is
`client.py`'s business; how losses become coefficients is that of the rules in `algorithms/`. Centralised descent
uses the same `descend`, which is why one local step of all sites equals one step on the pooled records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedfair.errors import PlanError, TrainingError
from fedfair.fairness.weighted_gradient import backward_weighted
from fedfair.plan.learning_rates import LearningRates
from fedfair.privacy.batch_parts import ALONE, BatchParts
from fedfair.terms.drift import Drift
from fedfair.training.flat_model import FlatModel


class Batch(NamedTuple):
    """The batch of one local step.

    Attributes:
        features: tensor (batch, *input_shape) on the model's device.
        labels: the records' answers, tensor (batch, *targets), beside the features; a reference's where steps
            follow the excess over it.
        weights: tensor (batch,): by how much each record's coefficient is multiplied; None for not at all.
    """

    features: Tensor
    labels: Tensor
    weights: Tensor | None = None


LossFunction = Callable[[Tensor, Tensor], Tensor]
"""From features (batch, *input_shape) and answers (batch, *targets) to per-sample losses (batch,)."""

LossWeighting = Callable[[Tensor, Tensor], Tensor]
"""From detached losses (..., batch) and thresholds (..., 1) to the coefficients (..., batch) of the gradients.

With losses (batch,) the threshold is a scalar. Its gradient is 1 minus the sum of the coefficients over the last
dimension: mean(d/dc f_i) = 1 - mean(u_i).
"""

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
FIRST_LOSS_SCALE = 2.0**15


def loss_function(model: FlatModel, precision: str, *, compiled: bool) -> LossFunction:
    """Return the loss of each record as a function of a batch: by default its cross-entropy, in nats.

    Args:
        model: the model; its weights stay in their own width.
        precision: fp32 and fp64 compute in the model's width; bf16 and fp16 compute layers in half width and the
            losses in float32.
        compiled: let torch.compile fuse the computation.
    """
    # The loss of a model is another one once the scaling of targets has arrived.

    def losses(features: Tensor, labels: Tensor) -> Tensor:
        return model.followed(model(features), labels)

    def mixed_losses(features: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(features.device.type, AUTOCAST[precision]):
            logits = model(features)
        return model.followed(logits.float(), labels)

    chosen = mixed_losses if precision in AUTOCAST else losses
    return _compiled(chosen, model.flat.device) if compiled else chosen


def _compiled(losses: LossFunction, device: torch.device) -> LossFunction:
    """Return the function as torch.compile makes it, after a trial that finds out whether this machine can."""
    try:
        torch.compile(torch.square)(torch.ones(2, device=device))
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise PlanError(
            f"training.compile: torch.compile does not work on this machine: {reason}",
            "install a C++ compiler (g++), or set compile: false, which changes speed only",
        ) from error
    return torch.compile(losses)


@dataclass(frozen=True, slots=True)
class LocalSteps:
    """The local steps of a round; `at` returns those of another one.

    Attributes:
        model: what is trained, in place.
        losses: the per-sample losses of a batch.
        rule: what the algorithm makes of them.
        rates: of the round.
        scaled: scale the losses so that gradients in fp16 do not vanish.
        parts: the processes that compute every batch together.
    """

    model: FlatModel
    losses: LossFunction
    rule: LossWeighting
    rates: LearningRates
    scaled: bool = False
    parts: BatchParts = ALONE

    def at(self, rates: LearningRates) -> LocalSteps:
        """Return the same steps at the rates of another round."""
        return self if rates == self.rates else replace(self, rates=rates)

    def descend(self, batches: Iterable[Batch], threshold: Tensor, drift: Drift | None = None) -> Tensor:
        """Make one step for each batch; change the model in place.

        Nothing here waits for the device: the threshold stays a tensor on it until everything is done.

        Args:
            batches: one for each step, on the model's device.
            threshold: scalar tensor on that device, in the width of the losses.
            drift: what is added to every gradient; None for nothing.

        Returns:
            The threshold after the last step; not projected, so it may be negative.

        Raises:
            TrainingError: fp16 only: the gradients overflow at every scale.
        """
        scale, one, parts = FIRST_LOSS_SCALE, torch.ones_like(threshold), self.parts
        for features, labels, weights in batches:
            self.model.zero_gradient()
            mine = parts.part(len(labels))
            with parts.agreed():
                losses = self._own_losses(features[mine], labels[mine])
            coefficients = self.rule(parts.whole(losses.detach(), len(labels)), threshold)
            if weights is not None:
                coefficients = coefficients * weights
            if self.scaled:
                scale = _scaled_backward(self.model, losses, coefficients[mine], scale, parts)
            else:
                with parts.agreed():
                    backward_weighted(losses, coefficients[mine])
                for gradient in self.model.gradients:
                    parts.add(gradient)
            if drift is not None:
                self.model.gradient.add_(drift.model)
            self.model.step(self.rates.model)
            if self.rates.threshold is not None:
                slope = one - coefficients.sum()
                if drift is not None:
                    slope = slope + drift.threshold
                threshold = torch.sub(threshold, slope, alpha=self.rates.threshold)
        return threshold

    def _own_losses(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the losses of this process's part, which may be empty where there are several."""
        if len(labels) or self.parts is ALONE:
            return self.losses(features, labels)
        return self.model.flat.new_zeros(0).requires_grad_()


def _scaled_backward(
    model: FlatModel, losses: Tensor, coefficients: Tensor, scale: float, parts: BatchParts
) -> float:
    """Send scale * coefficients backward and divide the gradient by it; return the first scale that fits fp16.

    Halving and repeating the same pass, instead of skipping the step as a GradScaler does, keeps the number of
    updates exact and the outcome a function of the round alone.
    """
    while scale >= 1.0:
        with parts.agreed():
            backward_weighted(losses, coefficients * scale, keep_graph=True)
        for gradient in model.gradients:
            parts.add(gradient)
        if all(bool(torch.isfinite(gradient).all()) for gradient in model.gradients):
            for gradient in model.gradients:
                gradient.div_(scale)
            return scale
        model.zero_gradient()
        scale /= 2.0
    raise TrainingError("the gradients overflow in fp16 at every loss scale", "use precision: bf16 or fp32")
