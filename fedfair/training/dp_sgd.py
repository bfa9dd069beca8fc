"""Record-level differential privacy in training: from the plan's words to noised steps on Poisson batches.

Decides how batches are drawn; clipping and noise are `privacy.sample_level`'s, what is released
`privacy.planned_releases`'s, and what the noise is worth `privacy.accounting`'s. Everything that a site draws here
is its own secret: the plan's seed, which all sites know, decides nothing. How many records a site has is taken as
public.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.local_rounds import round_length
from fedfair.plan.schema import Plan
from fedfair.plan.sections import TrainingSection
from fedfair.privacy.noise import Draws, Entropy, system_entropy
from fedfair.privacy.per_sample import PerSample, check_by_trial, per_sample_gradients
from fedfair.privacy.planned_releases import sample_level_of, sampling_rate
from fedfair.privacy.releases import Record, ReleaseLog
from fedfair.tables.seeds import derived_seed
from fedfair.training.device import SplitRecords
from fedfair.training.flat_model import FlatModel
from fedfair.training.local_sgd import Batch
from fedfair.training.record_loss import trial_targets

TRIAL_RECORDS = 3


@dataclass(frozen=True, slots=True)
class RecordProtection:
    """The protection of one site's records.

    Attributes:
        entropy: where its draws are seeded from; unknown to all others.
        record: writes a release down before its noise is drawn; raises a PrivacyError where it must not happen.
    """

    entropy: Entropy
    record: Record

    def draws(self, *words: str | int) -> Draws:
        """Return the stream for one purpose; the words matter only where the entropy repeats itself."""
        return Draws(self.entropy(*words))


def site_protection(record: Record) -> RecordProtection:
    """Return the protection of a real site: every seed comes from its operating system."""
    return RecordProtection(system_entropy, record)


def simulated_protection(plan: Plan, participant: ParticipantId, log: ReleaseLog) -> RecordProtection:
    """Return a protection that repeats itself and protects nobody: its seeds follow from the plan."""
    entropy = functools.partial(derived_seed, plan.training.seed, "privacy", participant)
    return RecordProtection(entropy, log.record)


def poisson_indices(training: TrainingSection, count: int, draws: Draws) -> Iterator[Tensor]:
    """Yield, for every local step of a round, who is in its Poisson sample: int64 (batch,) on the CPU."""
    rate = sampling_rate(training, count)
    for _ in range(round_length(training, count)):
        yield torch.from_numpy(draws.poisson_sample(count, rate))


@dataclass(frozen=True, slots=True)
class PoissonBatches:
    """The Poisson samples of one round, the same ones every time they are iterated; a sample may be empty.

    Attributes:
        records: at least 1.
        training: how many steps a round has, and which part of the records a batch.
        draws: which records those are; nobody else may know its seed.
    """

    records: SplitRecords
    training: TrainingSection
    draws: Draws

    def __iter__(self) -> Iterator[Batch]:
        samples = poisson_indices(self.training, len(self.records), self.draws.again())
        return self.records.ahead(Batch(*self.records.take(indices)) for indices in samples)


def watched(plan: Plan, model: FlatModel, schema: FeatureSchema) -> PerSample:
    """Return the gradients of single records of the plan's model, after a trial that proves them.

    Raises:
        PlanError: the model cannot be trained with differential privacy; the message says what to change.
    """
    model.train()
    gradients = per_sample_gradients(model.module, sample_level_of(plan).gradients)
    source = torch.Generator().manual_seed(derived_seed(plan.training.seed, "privacy", "trial"))
    features = torch.randn(TRIAL_RECORDS, *schema.input_shape, generator=source).to(model.flat)
    labels = trial_targets(plan.task.loss, schema, TRIAL_RECORDS)
    labels = labels.to(model.flat) if labels.is_floating_point() else labels.to(model.flat.device)
    check_by_trial(model.module, gradients, features, labels, model.record_loss.per_record)
    return gradients


def trainable_entries(model: FlatModel) -> Tensor | None:
    """Return which entries of the flat model are trained, bool (d,); None where all are."""
    if all(entry.trainable for entry in model.layout.entries):
        return None
    mask = torch.zeros_like(model.flat, dtype=torch.bool)
    for entry, place in model.layout.slices():
        mask[place] = entry.trainable
    return mask
