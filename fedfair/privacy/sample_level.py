"""Local steps that are differentially private for every record: clip, weigh, add up, add noise, step.

Makes the same steps as `training.local_sgd.LocalSteps`, from Poisson batches. With S of `sensitivity.py`, the
expected batch size b,

    before_weighting    v_i = (u_i clip_C(grad l_i), kappa (1 - u_i))
    joint               v_i = clip_C(u_i grad l_i, kappa (1 - u_i)),  S = C
    (g, h) = (sum over the batch of v_i + noise) / b,    theta -= eta g,    c -= eta_c h / kappa

so theta and c are one vector, noised once: one step of the accountant. The sum is rounded to a public grid and the
noise is a whole number of its cells (`grid.py`). Its deviation is sigma times the sensitivity of the computed and
rounded sum, which is a little more than S, so that the noise multiplier is sigma exactly. All that is computed of
the noised sum is a function of whole numbers that an observer may know. The sum is divided by the EXPECTED size,
because the size of the batch that was drawn tells who was in it. A batch may be empty; its step is noise alone. A
record whose loss or gradient is no number adds nothing, instead of giving itself away by spoiling the sum. No step
looks for one, because that would make the CPU wait for a GPU: where a sum that was begun cannot leave it out, the
round ends in NaN, which is looked for once, and is made again with the same draws, looking at every step.

Accounting, and writing the release down before it is made, is the caller's. Source: Abadi et al. 2016, "Deep
Learning with Differential Privacy", Algorithm 1; the weights are the FedSRCVaR paper's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from fedfair.errors import LocalProtocolError, PrivacyError
from fedfair.fairness.rcvar import Objective
from fedfair.plan.learning_rates import LearningRates
from fedfair.privacy.batch_parts import ALONE, BatchParts
from fedfair.privacy.grid import Grid, noise_grid
from fedfair.privacy.linear_layers import significand_bits
from fedfair.privacy.noise import Draws, whole_cells, with_noise
from fedfair.privacy.per_sample import PerSample
from fedfair.privacy.sensitivity import Clipping, step_sensitivity, summed_sensitivity

Losses = Callable[[Tensor, Tensor], Tensor]
"""From features (batch, *input_shape) and labels (batch,) to the per-sample losses (batch,), with their graph."""


Weighed: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
"""Of a batch: losses with their graph, by how much gradients count, the threshold's parts, which are numbers."""


class Trained(Protocol):
    """The trained model: `training.flat_model.FlatModel`, whose gradients are views into one vector."""

    flat: Tensor
    gradient: Tensor

    def step(self, learning_rate: float) -> None:
        """Move against the gradient."""

    def go_back_to(self, values: Tensor) -> None:
        """Be as it was loaded, as if no step had been made."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """The mechanism on the gradients of single records; the same at every site.

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
        """Deviation of the noise before the price of the grid (sigma S); it grows like 1/rho."""
        return self.noise_multiplier * self.sensitivity

    def grid(self, parameters: int, dtype: torch.dtype) -> Grid:
        """Return the grid of the noised sums, and the noise that they get.

        Args:
            parameters: entries of the model (d); the threshold is one more.
            dtype: in which gradients are added up, float32 or float64.

        Raises:
            PrivacyError: the numbers cannot be rounded to a grid in this width.
        """
        computed = summed_sensitivity(self.sensitivity, significand_bits(dtype))
        grid = noise_grid(self.noise_multiplier, computed, parameters + 1)
        if grid.cell < torch.finfo(dtype).tiny:
            raise PrivacyError(
                f"noise of deviation {grid.deviation:.4g} is too small for {dtype}",
                "raise noise_multiplier or clip",
            )
        return grid

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
    """The noised local steps of a round on one model; the same object serves all clients that share that model.

    Attributes:
        model: what is trained, in place.
        losses: the per-sample losses of a batch.
        gradients: how the gradients of single records are treated; watches that model.
        mechanism: clipping, weights and noise.
        rates: eta and eta_c of the round; None for a threshold that does not move.
        trainable: bool tensor (d,), False at entries that are never trained; None where all are.
        parts: the processes that compute every batch together; the one that leads draws the noise.
    """

    model: Trained
    losses: Losses
    gradients: PerSample
    mechanism: Mechanism
    rates: LearningRates
    trainable: Tensor | None = field(default=None, repr=False)
    parts: BatchParts = ALONE

    def at(self, rates: LearningRates) -> PrivateSteps:
        """Return the same steps at the rates of another round."""
        return self if rates == self.rates else replace(self, rates=rates)

    def descend(
        self,
        batches: Iterable[tuple[Tensor, Tensor, Tensor | None]],
        threshold: Tensor,
        expected_batch: float,
        draws: Draws,
    ) -> Tensor:
        """Make one noised step for each batch; change the model in place.

        Args:
            batches: features, labels and None: a Poisson sample for each step, on the model's device. Iterated a
                second time, they must be the same.
            threshold: scalar tensor on that device, in the width of the losses.
            expected_batch: how many records a batch has on average (b = q n), above 0.
            draws: the noise of this round, whose seed is this site's secret.

        Returns:
            The threshold after the last step; not projected, so it may be negative.

        Raises:
            LocalProtocolError: a batch brings weights of its own, which no sensitivity accounts for.
            PrivacyError: there is no noise that a batch could be hidden in.
        """
        if not (expected_batch > 0.0 and math.isfinite(self.mechanism.noise_deviation)):
            raise PrivacyError(f"a batch of {expected_batch} records on average has no noise to be hidden in")
        if self.gradients.drops_unsound:
            return self._walk(batches, threshold, expected_batch, draws, looking=False)
        start = self.model.flat.clone()
        with _draws_replayed(start.device) as replay:
            moved = self._walk(batches, threshold, expected_batch, draws, looking=False)
            if bool(torch.isfinite(self.model.flat).all()):
                return moved
            replay()
            self.model.go_back_to(start)
            return self._walk(batches, threshold, expected_batch, draws.again(), looking=True)

    def _walk(
        self,
        batches: Iterable[tuple[Tensor, Tensor, Tensor | None]],
        threshold: Tensor,
        expected_batch: float,
        draws: Draws,
        *,
        looking: bool,
    ) -> Tensor:
        scale, grid, parts = self.mechanism.threshold_scale, self._grid(), self.parts
        for features, labels, weights in batches:
            if weights is not None:
                raise LocalProtocolError("a private step weighs records by the objective alone")
            mine = parts.part(len(labels))
            with parts.agreed():
                cells, pull = self._sum(features[mine], labels[mine], threshold, grid, looking=looking)
            if parts is not ALONE:
                cells, pull = self._added(cells), self._added(pull)
            if parts.leads:
                self.model.gradient.copy_(with_noise(cells, grid, draws, self.trainable))
            parts.share(self.model.gradient)
            self.model.gradient.div_(expected_batch)
            self.model.step(self.rates.model)
            if self.rates.threshold is not None:
                noised = with_noise(pull, grid, draws).to(threshold) if parts.leads else threshold.clone()
                parts.share(noised)
                slope = noised / (scale * expected_batch)
                threshold = torch.sub(threshold, slope, alpha=self.rates.threshold)
        return threshold

    def _added(self, cells: Tensor) -> Tensor:
        """Return the sum of whole cells over all processes, exact in float64 while it is below 2^53."""
        total = cells.to(torch.float64, copy=True)
        self.parts.add(total)
        return total

    def _grid(self) -> Grid:
        return self.mechanism.grid(self.model.flat.numel(), self.model.flat.dtype)

    def _sum(
        self, features: Tensor, labels: Tensor, threshold: Tensor, grid: Grid, *, looking: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the clipped sum over a batch in whole cells: the model's part and the threshold's.

        Sums of a few records are computed in floats and rounded, and these are added up exactly.
        """
        size, most, count = self.gradients.most_records, self.gradients.most_summed, len(labels)
        if 0 < count <= min(size, most):
            weights = self._weights(features, labels, threshold, looking=looking)
            return self._cells(weights, slice(0, count), grid)
        # Whole numbers are exact in a float64 while they are below 2^53, and Apple's MPS has none.
        aside = torch.device("cpu") if features.device.type == "mps" else features.device
        total = torch.zeros(self.model.gradient.shape, dtype=torch.float64, device=aside)
        pull = torch.zeros(threshold.shape, dtype=torch.float64, device=aside)
        for start in range(0, count, size):
            part = slice(start, start + size)
            weights = self._weights(features[part], labels[part], threshold, looking=looking)
            for first in range(0, len(labels[part]), most):
                cells, pulled = self._cells(weights, slice(first, first + most), grid)
                total.add_(cells.to(aside))
                pull.add_(pulled.to(aside))
        return total, pull

    def _cells(self, weights: Weighed, here: slice, grid: Grid) -> tuple[Tensor, Tensor]:
        """Return in whole cells the sums over some of the weighed records; the first is memory of the model."""
        losses, coefficients, pulls, sound = weights
        self.gradients.weigh(losses, coefficients, sound, here)
        # Apple's MPS has no float64, and adds up few at a time.
        width = pulls.dtype if pulls.device.type == "mps" else torch.float64
        return whole_cells(self.model.gradient, grid), whole_cells(pulls[here].sum(dtype=width), grid)

    def _weights(self, features: Tensor, labels: Tensor, threshold: Tensor, *, looking: bool) -> Weighed:
        with _draws_replayed(features.device, wanted=looking) as replay:
            losses, norms, sound = self._seen(features, labels)
            if looking and not bool(sound.all()):
                losses, norms, sound = self._without(features, labels, sound, replay)
        coefficients, pulls = self.mechanism.factors(losses.detach(), norms.detach(), threshold)
        return losses, coefficients.masked_fill(~sound, 0.0), pulls.masked_fill(~sound, 0.0), sound

    def _without(
        self, features: Tensor, labels: Tensor, sound: Tensor, replay: Callable[[], None]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return losses, norms and who is left of a batch, none of which is spoilt by a record that is not sound.

        All others must get the very gradients that they have without that record: the same draws in the same
        places. So a sound record stands in for it, and counts for nothing there. Features of 0 would not do: an
        aggregator may send a model that has no finite numbers about them. Where the draws of a place leave no
        stand-in sound, or no record is sound, nothing is left.
        """
        spread = sound.view(-1, *[1] * (features.dim() - 1))
        for stand_in in torch.nonzero(sound).flatten().tolist():
            replay()
            kept = torch.where(spread, features, features[stand_in])
            losses, norms, finite = self._seen(kept, torch.where(sound, labels, labels[stand_in]))
            if bool(finite.all()):
                return losses, norms, sound
        nothing = torch.zeros_like(sound, dtype=self.model.flat.dtype)
        # The graph of these losses reaches no parameter, so their gradients are 0 and not NaN.
        return nothing.clone().requires_grad_(), nothing + 1.0, torch.zeros_like(sound)

    def _seen(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the losses with their graph, the norms of the gradients, and which of both are numbers."""
        self.gradients.reset()
        losses = self.losses(features, labels)
        norms = self.gradients.norms(losses)
        return losses, norms, torch.isfinite(norms) & torch.isfinite(losses)


@contextmanager
def _draws_replayed(device: torch.device, *, wanted: bool = True) -> Iterator[Callable[[], None]]:
    """Yield a function that puts PyTorch's generators back to where they are now, so that dropout draws the same.

    Args:
        device: on which the model draws.
        wanted: False saves nothing, and the function must not be called.
    """
    on_gpu = wanted and device.type == "cuda"
    state = torch.get_rng_state() if wanted else None
    on_device = torch.cuda.get_rng_state(device) if on_gpu else None

    def replay() -> None:
        if state is not None:
            torch.set_rng_state(state)
        if on_device is not None:
            torch.cuda.set_rng_state(on_device, device)

    yield replay
