"""Private local steps of a group of collaborators, all of them in the same few tensor operations.

Makes the steps of `privacy.sample_level` for linear and MLP models: the norm of each record's gradient is a closed
form (`privacy.linear_layers`), so that clipping and weighting are products with a factor for each record. Samples
of different sizes are padded with records that have the factor 0. Each member's sum is rounded to the grid of the
loop. Each member's noise comes from its own stream, in the order in which the loop draws it. So the results differ
by the order of sums, and by nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedfair.aggregation.model_layout import Layout
from fedfair.plan.learning_rates import LearningRates
from fedfair.privacy.grid import Grid
from fedfair.privacy.linear_layers import joint_norms, most_summed, outer_length, widened
from fedfair.privacy.noise import Draws, whole_cells, with_noise
from fedfair.privacy.sample_level import Mechanism
from fedfair.simulation.vectorised.layers import Layers, errors_of, forward, layers_in, losses_and_errors
from fedfair.training.device import SplitRecords
from fedfair.training.record_loss import CROSS_ENTROPY, RecordLoss


@dataclass(frozen=True, slots=True)
class GroupSample:
    """The Poisson samples that one step of a group is made on.

    Attributes:
        features: tensor (k, b, columns) on the device; b is the size of the largest sample, perhaps 0.
        labels: the records' answers, tensor (k, b, *targets).
        present: bool tensor (k, b): False for padding.
        active: for each of the k whether it still makes steps; its sample may be empty all the same.
    """

    features: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    present: Tensor = field(repr=False)
    active: Sequence[bool]


def group_samples(
    records: SplitRecords, starts: Tensor, samples: Sequence[Iterator[Tensor]]
) -> Iterator[GroupSample]:
    """Yield the samples of a group, for every local step of a round.

    Args:
        records: all training records, one collaborator after the other.
        starts: int64 tensor (k,): where those of each member begin.
        samples: for each member the indices, among its own, of the sample of each of its steps.
    """
    nothing = torch.empty(0, dtype=torch.int64)
    for drawn in itertools.zip_longest(*samples):
        indices = [nothing if one is None else one for one in drawn]
        table = pad_sequence(indices, batch_first=True)
        features, labels = records.take((table + starts[:, None]).flatten())
        sizes = torch.tensor([len(one) for one in indices])
        present = (torch.arange(table.shape[1]) < sizes[:, None]).to(features.device)
        rows = features.reshape(*table.shape, records.features.shape[1])
        answers = labels.view(*table.shape, *labels.shape[1:])
        yield GroupSample(rows, answers, present, [one is not None for one in drawn])


@dataclass(frozen=True, slots=True)
class PrivateDescent:
    """The private steps of a group in one round; `sample_level.PrivateSteps` makes those of one collaborator.

    Attributes:
        layout: where the tensors of the model lie.
        mechanism: clipping, weights and noise.
        rates: of the round.
        loss: of each record.
    """

    layout: Layout
    mechanism: Mechanism
    rates: LearningRates
    loss: RecordLoss = CROSS_ENTROPY

    def walk(
        self,
        start: Tensor,
        thresholds: Tensor,
        samples: Iterable[GroupSample],
        expected: Sequence[int],
        noise: Sequence[Draws],
    ) -> tuple[Tensor, Tensor]:
        """Make one noised step for each sample.

        Args:
            start: tensor (d,), the model from which all start; it stays as it is.
            thresholds: tensor (k, 1).
            samples: of the group.
            expected: how many records the sample of each member has on average.
            noise: each member's own stream.

        Returns:
            Each member's model (k, d) and the thresholds (k, 1).
        """
        models, layers = start.expand(len(thresholds), -1).clone(), layers_in(start, self.layout)
        sums, grid = torch.empty_like(models), self.mechanism.grid(len(start), start.dtype)
        sizes = torch.tensor(expected, dtype=start.dtype, device=start.device)[:, None]
        for sample in samples:
            cells, pulls = self._sums(layers, sample, thresholds, sums, grid)
            for place, active in enumerate(sample.active):
                # Who makes no more steps has a sum of 0, and gets no noise.
                if active:
                    with_noise(cells[place], grid, noise[place])
                if active and self.rates.threshold is not None:
                    with_noise(pulls[place], grid, noise[place])
            models.sub_(sums.copy_(cells).div_(sizes), alpha=self.rates.model)
            if self.rates.threshold is not None:
                slopes = pulls.to(thresholds) / (self.mechanism.threshold_scale * sizes)
                thresholds = torch.sub(thresholds, slopes, alpha=self.rates.threshold)
            layers = layers_in(models, self.layout)
        return models, thresholds

    def _sums(
        self, layers: Layers, sample: GroupSample, thresholds: Tensor, sums: Tensor, grid: Grid
    ) -> tuple[Tensor, Tensor]:
        """Return each member's clipped sums in whole cells, (k, d) and those of the threshold's parts (k, 1).

        Args:
            layers: of each member's model.
            sample: of the group.
            thresholds: tensor (k, 1).
            sums: memory (k, d), which is overwritten and may be what is returned.
            grid: of the sums.
        """
        inputs, logits = forward(layers, sample.features)
        losses, error = losses_and_errors(self.loss, logits, sample.labels)
        errors = errors_of(layers, inputs, error)
        norms = joint_norms([outer_length(*factors) for factors in zip(errors, inputs, strict=True)])
        counted = sample.present & torch.isfinite(norms) & torch.isfinite(losses)
        coefficients, pulls = self.mechanism.factors(losses, norms, thresholds)
        factor, left_out = coefficients.unsqueeze(-1), ~counted.unsqueeze(-1)
        weighted = [(wrong * factor).masked_fill_(left_out, 0.0) for wrong in errors]
        entered = [values.masked_fill(left_out, 0.0) for values in inputs]
        pulls, views = pulls.masked_fill(~counted, 0.0), layers_in(sums, self.layout)
        most, records = most_summed(sums), losses.shape[1]

        def cells_of(here: slice) -> tuple[Tensor, Tensor]:
            for view, wrong, values in zip(views, weighted, entered, strict=True):
                view.put_gradient(wrong[:, here], values[:, here], wide=widened(sums, records))
            pull = pulls[:, here].sum(-1, keepdim=True, dtype=torch.float64)
            return whole_cells(sums, grid), whole_cells(pull, grid)

        if records <= most:
            return cells_of(slice(0, records))
        # As in the loop: sums of a few records are rounded, and added up exactly.
        total = torch.zeros_like(sums, dtype=torch.float64)
        pulled = torch.zeros_like(thresholds, dtype=torch.float64)
        for start in range(0, records, most):
            part, pull = cells_of(slice(start, start + most))
            total.add_(part)
            pulled.add_(pull)
        return total, pulled
