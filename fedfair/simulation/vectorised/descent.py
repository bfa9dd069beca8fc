"""The local steps of a group of collaborators, all of them in the same few tensor operations.

Decides the order of the operations; the rule that turns losses into coefficients is the very one of the loop.
Two things are free here that a collaborator by itself cannot have. In its first step each member has the broadcast
weights, so the group's forward pass is one matrix product. And a weighted sum of changes needs nobody's last
step by itself:

    sum_k w_k (theta_k - eta g_k - theta) = sum_k w_k (theta_k - theta) - eta sum_k w_k g_k

where sum_k w_k g_k is one matrix product over the records of all. With one local step there is no model of one
collaborator at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfair.aggregation.model_layout import Layout
from fedfair.plan.learning_rates import LearningRates
from fedfair.simulation.vectorised.group_batch import GroupBatch
from fedfair.simulation.vectorised.layers import Layers, backward, forward, layers_in, losses_and_errors
from fedfair.terms.drift import Drift
from fedfair.training.local_sgd import LossWeighting
from fedfair.training.record_loss import CROSS_ENTROPY, RecordLoss


@dataclass(frozen=True, slots=True)
class Descent:
    """The local steps of a group in one round; `LocalSteps` makes those of one collaborator.

    Attributes:
        layout: where the tensors of the model lie.
        rule: what the algorithm makes of losses.
        rates: of the round.
        loss: of each record.
    """

    layout: Layout
    rule: LossWeighting
    rates: LearningRates
    loss: RecordLoss = CROSS_ENTROPY

    def walk(self, start: Tensor, thresholds: Tensor, batches: Iterable[GroupBatch]) -> tuple[Tensor, Tensor]:
        """Make one step for each batch.

        Args:
            start: tensor (d,), the model from which all start; it stays as it is.
            thresholds: tensor (k, 1).
            batches: of the group.

        Returns:
            Each member's model (k, d), or `start` itself after no step; and the thresholds (k, 1).
        """
        models, layers = start, layers_in(start, self.layout)
        for batch in batches:
            if models is start:
                models = start.expand(len(thresholds), -1).clone()
            moved = layers_in(models, self.layout)
            thresholds = self._step(layers, batch, thresholds, moved)
            layers = moved
        return models, thresholds

    def changes(
        self, start: Tensor, thresholds: Tensor, batches: Iterable[GroupBatch], drift: Drift | None = None
    ) -> tuple[Tensor, Tensor]:
        """Make one step for each batch, and add up the steps by themselves, as `FlatModel.take_change` does.

        Args:
            start: tensor (d,), the model from which all start; it stays as it is.
            thresholds: tensor (k, 1).
            batches: of the group.
            drift: what is added to each member's every gradient, tensors (k, d) and (k, 1); None for nothing.

        Returns:
            Each member's change of the model (k, d), and the thresholds (k, 1).
        """
        changes = start.new_zeros(len(thresholds), len(start))
        moved, layers, models = layers_in(changes, self.layout), layers_in(start, self.layout), None
        for at, batch in enumerate(batches):
            if at:
                models = torch.add(start, changes, out=models)
                layers = layers_in(models, self.layout)
            thresholds = self._step(layers, batch, thresholds, moved)
            if drift is not None:
                changes.sub_(drift.model, alpha=self.rates.model)
                if self.rates.threshold is not None:
                    thresholds = torch.sub(thresholds, drift.threshold, alpha=self.rates.threshold)
        return changes, thresholds

    def add_last_step(
        self, models: Tensor, thresholds: Tensor, batch: GroupBatch, weights: Tensor, total: Tensor
    ) -> Tensor:
        """Add each member's weighted change by one more step to a total, without making it anywhere else.

        Args:
            models: tensor (k, d), or (d,) where all are the same; it stays as it is.
            thresholds: tensor (k, 1).
            batch: what the step is made on.
            weights: tensor (k, 1), w_k.
            total: tensor (d,), changed in place.

        Returns:
            The thresholds after the step.
        """
        layers, moved = layers_in(models, self.layout), layers_in(total, self.layout)
        return self._step(layers, batch, thresholds, moved, weights)

    def _step(
        self, layers: Layers, batch: GroupBatch, thresholds: Tensor, moved: Layers, weights: Tensor | None = None
    ) -> Tensor:
        inputs, logits = forward(layers, batch.features)
        losses, error = losses_and_errors(self.loss, logits, batch.labels)
        coefficients = self.rule(losses, thresholds)
        if batch.factors is not None:
            coefficients = coefficients * batch.factors
        counted = coefficients if weights is None else coefficients * weights
        backward(layers, inputs, error.mul_(counted.unsqueeze(-1)), moved, self.rates.model)
        if self.rates.threshold is None:
            return thresholds
        slopes = 1.0 - coefficients.sum(-1, keepdim=True)
        if batch.active is not None:
            slopes = slopes * batch.active
        return torch.sub(thresholds, slopes, alpha=self.rates.threshold)
