"""Local steps that are differentially private for every record: clip, weigh, add up, add noise, step.

Makes the same steps as `learning.local.LocalSteps`, from Poisson batches. With S of `sensitivity.py`, the expected
batch size b and independent standard normal numbers z,

    before_weighting    v_i = (u_i clip_C(grad l_i), kappa (1 - u_i))
    joint               v_i = clip_C(u_i grad l_i, kappa (1 - u_i)),  S = C
    (g, h) = (sum over the batch of v_i + sigma S z) / b,    theta -= eta g,    c -= eta_c h / kappa

so theta and c are one vector, noised once: one step of the accountant. The sum is divided by the EXPECTED size,
because the size of the batch that was drawn tells who was in it. A batch may be empty; its step is noise alone. A
record whose loss or gradient is no number adds nothing, instead of giving itself away by spoiling the sum. No step
looks for one, because that would make the CPU wait for a GPU: where a sum that was begun cannot leave it out, the
round ends in NaN, which is looked for once, and is made again with the same draws, looking at every step.

Accounting, and writing the release down before it is made, is the caller's. Source: Abadi et al. 2016, "Deep
Learning with Differential Privacy", Algorithm 1; the weights are the FedSRCVaR paper's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedfair.errors import LocalProtocolError, PrivacyError
from fedfair.fairness.rcvar import Objective
from fedfair.privacy.noise import Draws
from fedfair.privacy.per_sample import PerSample
from fedfair.privacy.replay import draws_replayed
from fedfair.privacy.sensitivity import Clipping, step_sensitivity

Losses = Callable[[Tensor, Tensor], Tensor]
"""From features (batch, *input_shape) and labels (batch,) to the per-sample losses (batch,), with their graph."""


class Trained(Protocol):
    """What is trained: `learning.parameters.FlatModel`, whose gradients are views into one vector."""

    flat: Tensor
    gradient: Tensor

    def step(self, learning_rate: float) -> None:
        """Move against the gradient."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What is done to the gradients of single records; the same for everybody.

    Attributes:
        objective: whose weights are used; None where all weigh the same and the threshold rests (FedAvg).
        noise_multiplier: standard deviation of the noise in units of the sensitivity (sigma), above 0.
        clip: largest norm of a record's gradient (C); with joint clipping, of its whole vector.
        clipping: before_weighting or joint.
        threshold_scale: weight of the threshold's gradient beside the model's (kappa), above 0.
    """

    objective: Objective | None
    noise_multiplier: float
    clip: float
    clipping: Clipping = "before_weighting"
    threshold_scale: float = 1.0

    @property
    def sensitivity(self) -> float:
        """The most that one record changes the sum (S)."""
        return step_sensitivity(self.objective, self.clip, self.threshold_scale, self.clipping)

    @property
    def noise_deviation(self) -> float:
        """Standard deviation of the noise on every entry of the sum (sigma S); it grows like 1/rho."""
        return self.noise_multiplier * self.sensitivity

    def factors(self, losses: Tensor, norms: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
        """Return by how much each gradient counts, and what each record adds to the threshold's part.

        Args:
            losses: tensor (batch,), finite, without a graph.
            norms: of the records' gradients, tensor (batch,), finite.
            threshold: scalar tensor.

        Returns:
            The coefficients (batch,) and kappa times the threshold's gradients (batch,), both after clipping: the
            vector (coefficient * gradient, threshold part) of no record is longer than the sensitivity.
        """
        if self.objective is None:
            return (self.clip / norms).clamp(max=1.0), torch.zeros_like(losses)
        weights = self.objective.weights(losses, threshold)
        pull = self.threshold_scale * (1.0 - weights)
        if self.clipping == "before_weighting":
            return weights * (self.clip / norms).clamp(max=1.0), pull
        kept = (self.clip / torch.hypot(weights * norms, pull)).clamp(max=1.0)
        return weights * kept, pull * kept


@dataclass(frozen=True, slots=True)
class PrivateSteps:
    """The local steps of one collaborator in one round.

    Attributes:
        model: what is trained, in place.
        losses: the per-sample losses of a batch.
        gradients: how the gradients of single records are treated; watches that model.
        mechanism: clipping, weights and noise.
        expected_batch: how many records a batch has on average (b = q n), above 0.
        learning_rate: eta, of the model.
        threshold_learning_rate: eta_c, of the threshold; None where it stays as it is.
        draws: the noise of this round, of which nobody else may know the seed.
        trainable: bool tensor (d,), False at entries that are never trained; None where all are.
    """

    model: Trained
    losses: Losses
    gradients: PerSample
    mechanism: Mechanism
    expected_batch: float
    learning_rate: float
    threshold_learning_rate: float | None
    draws: Draws
    trainable: Tensor | None = None

    def __post_init__(self) -> None:
        if not (self.expected_batch > 0.0 and math.isfinite(self.mechanism.noise_deviation)):
            raise PrivacyError(f"a batch of {self.expected_batch} records on average has no noise to be hidden in")

    def descend(self, batches: Iterable[tuple[Tensor, Tensor, Tensor | None]], threshold: Tensor) -> Tensor:
        """Make one noised step for each batch; change the model in place.

        Args:
            batches: features, labels and None: a Poisson sample for each step, on the model's device. Iterated a
                second time, they must be the same.
            threshold: scalar tensor on that device, in the width of the losses.

        Returns:
            The threshold after the last step; not projected, so it may be negative.

        Raises:
            LocalProtocolError: a batch brings weights of its own, which no sensitivity accounts for.
        """
        if self.gradients.drops_unsound:
            return self._walk(batches, threshold, self.draws, looking=False)
        start = self.model.flat.clone()
        with draws_replayed(start.device) as replay:
            moved = self._walk(batches, threshold, self.draws, looking=False)
            if bool(torch.isfinite(self.model.flat).all()):
                return moved
            replay()
            self.model.flat.copy_(start)
            return self._walk(batches, threshold, self.draws.again(), looking=True)

    def _walk(
        self,
        batches: Iterable[tuple[Tensor, Tensor, Tensor | None]],
        threshold: Tensor,
        draws: Draws,
        *,
        looking: bool,
    ) -> Tensor:
        deviation, scale = self.mechanism.noise_deviation, self.mechanism.threshold_scale
        for features, labels, weights in batches:
            if weights is not None:
                raise LocalProtocolError("a private step weighs records by the objective alone")
            pull = self._sum(features, labels, threshold, looking=looking)
            self.model.gradient.add_(self._noise(draws), alpha=deviation).div_(self.expected_batch)
            self.model.step(self.learning_rate)
            if self.threshold_learning_rate is not None:
                noised = torch.add(pull, draws.gaussian(pull), alpha=deviation)
                slope = noised / (scale * self.expected_batch)
                threshold = torch.sub(threshold, slope, alpha=self.threshold_learning_rate)
        return threshold

    def _sum(self, features: Tensor, labels: Tensor, threshold: Tensor, *, looking: bool) -> Tensor:
        """Set the model's gradient to the clipped sum over a batch; return that of the threshold's part."""
        size, count = self.gradients.most_records, len(labels)
        if 0 < count <= size:
            return self._part(features, labels, threshold, looking=looking)
        total, pull = torch.zeros_like(self.model.gradient), torch.zeros_like(threshold)
        for part in range(0, count, size):
            here = slice(part, part + size)
            pull = pull + self._part(features[here], labels[here], threshold, looking=looking)
            total.add_(self.model.gradient)
        self.model.gradient.copy_(total)
        return pull

    def _part(self, features: Tensor, labels: Tensor, threshold: Tensor, *, looking: bool) -> Tensor:
        with draws_replayed(features.device, wanted=looking) as replay:
            losses, norms, sound = self._seen(features, labels)
            if looking and not bool(sound.all()):
                # All others must get the very gradients that they have without that record: the same draws in the
                # same places.
                replay()
                kept = features.masked_fill(~sound.view(-1, *[1] * (features.dim() - 1)), 0.0)
                losses, norms, _ = self._seen(kept, labels)
        coefficients, pulls = self.mechanism.factors(losses.detach(), norms.detach(), threshold)
        self.gradients.weigh(losses, coefficients.masked_fill(~sound, 0.0), sound)
        return pulls.masked_fill(~sound, 0.0).sum()

    def _seen(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the losses with their graph, the norms of the gradients, and which of both are numbers."""
        self.gradients.reset()
        losses = self.losses(features, labels)
        norms = self.gradients.norms(losses)
        return losses, norms, torch.isfinite(norms) & torch.isfinite(losses)

    def _noise(self, draws: Draws) -> Tensor:
        noise = draws.gaussian(self.model.gradient)
        return noise if self.trainable is None else noise * self.trainable
