"""A cohort that makes the private local steps of all at once: linear and MLP models in float32 or float64.

Answers what `LoopClients` answers, up to rounding. Only training is vectorised; evaluations and standardisations
under noise are rare, and are the loop's. Decides the order in which releases are written down and noise is drawn:
a group's releases first, then its samples and its noise, from the very streams that the loop draws from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.target_scaling import target_scaling
from fedfair.aggregation.training_sum import TRAINING_LAYOUT
from fedfair.errors import LocalProtocolError
from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import ParticipantId
from fedfair.plan.derived import standardises, threshold_limit
from fedfair.plan.learning_rates import local_rates
from fedfair.plan.local_rounds import stated_batch_size
from fedfair.plan.schema import Plan
from fedfair.privacy.planned_releases import sample_level_of, training_release
from fedfair.simulation.clients import LoopClients
from fedfair.simulation.vectorised.clipping import ChangeClipping, training_totals
from fedfair.simulation.vectorised.groups import Members, planned_groups, suitable_budget
from fedfair.simulation.vectorised.pool import Pool, pooled
from fedfair.simulation.vectorised.private_descent import PrivateDescent, group_samples
from fedfair.tables.dataset import Splits
from fedfair.training.assembly import mechanism_of
from fedfair.training.device import plain_arithmetic
from fedfair.training.dp_sgd import RecordProtection, poisson_indices
from fedfair.training.flat_model import FlatModel
from fedfair.training.model_faults import training_faults


class PrivateClients:
    """A cohort that computes the noised steps of all at once; see `Clients` for what is asked.

    Args:
        plan: a plan that protects single records and that `engine.obstacle` finds nothing against.
        sites: all sites' records, unscaled.
        model: the plan's model on the device to work on.
        protections: what each member's records are protected with.
        loop: the same cohort, one after the other, for all that is not training.
        group_bytes: memory that collaborators who are computed together may take; None for what suits the device.
    """

    def __init__(
        self,
        plan: Plan,
        sites: Mapping[ParticipantId, Splits],
        model: FlatModel,
        protections: Mapping[ParticipantId, RecordProtection],
        loop: LoopClients,
        *,
        group_bytes: int | None = None,
    ) -> None:
        self._plan, self._model, self._loop = plan, model, loop
        self.names, self.counts, self.weights = loop.names, loop.counts, loop.weights
        self.changes, self.losses = loop.changes, loop.losses
        # No plan that protects single records has sites that keep anything of earlier rounds.
        self.memory = None
        self._sites = tuple(sites.values())
        self._protections = [protections[name] for name in sites]
        self._schema = self._sites[0].train.schema
        self._mechanism = mechanism_of(plan, sample_level_of(plan))
        self._pool = None if standardises(plan, len(self._schema.numeric)) else self._pooled(None)
        budget = suitable_budget(model.flat.device) if group_bytes is None else group_bytes
        members, columns = np.flatnonzero(self.counts), math.prod(self._schema.input_shape)
        places = planned_groups(
            plan.training, self.counts[members], model.layout, columns, budget, own_models=True
        )
        self._groups = [members[group] for group in places]

    @property
    def loss_unit(self) -> float:
        """Return how many natural units one loss of the local steps has."""
        return self._loop.loss_unit

    @property
    def last_losses(self) -> list[SiteLosses]:
        """Return what the last evaluation found at each collaborator."""
        return self._loop.last_losses

    def totals(self, request: SumRequest, model: GlobalModel, clip: float | None = None) -> Totals:
        """Return the sum over all; that of a round's changes without single addends."""
        if not request.purpose.statistic.is_round:
            return self._loop.totals(request, model)
        with training_faults(), plain_arithmetic():
            return self._training_totals(request, model, None if clip is None else ChangeClipping(clip))

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features of all collaborators; a second call replaces the first."""
        self._loop.apply_scaling(scaling)
        self._pool = self._pooled(scaling)

    def apply_references(self, references: References) -> None:
        """Refuse: no plan that protects single records has references; raises LocalProtocolError."""
        raise LocalProtocolError(f"{references.sums} sums of references under noise for single records")

    def _training_totals(self, request: SumRequest, model: GlobalModel, clipping: ChangeClipping | None) -> Totals:
        self._model.load(model.vector)
        start, header, weights = self._model.flat, TRAINING_LAYOUT.zeros(), self.weights
        sums, unit = TRAINING_LAYOUT.read(header), self.loss_unit
        total, limit = torch.zeros_like(start), threshold_limit(self._plan, self._schema.classes)
        for group in self._groups:
            first = torch.full_like(start[:1], model.threshold / unit).expand(len(group), 1)
            models, last = self._walked(group, request, first)
            changes = models.sub_(start)
            if clipping is not None:
                clipping.limit(changes)
            total.addmv_(changes.t(), torch.as_tensor(weights[group]).to(start))
            moved: NDArray[np.float64] = (last.double() - first.double())[:, 0].cpu().numpy() * unit
            sums["weight"] += weights[group].sum()
            sums["threshold"] += weights[group] @ np.clip(moved, -limit, limit)
        return training_totals(header, total, len(self._sites), request.round, clipping)

    def _walked(
        self, group: Members, request: SumRequest, first: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the models (k, d) and thresholds (k, 1) of a group after its steps."""
        if self._pool is None:
            raise LocalProtocolError("this plan standardises features, and their scaling has not arrived")
        training, words = self._plan.training, (int(request.round), request.attempt)
        counts, protections = self.counts[group].tolist(), [self._protections[member] for member in group]
        for protection, count in zip(protections, counts, strict=True):
            protection.record(training_release(self._plan, count))
        samples = group_samples(
            self._pool.records,
            torch.from_numpy(self._pool.starts[group]),
            [
                poisson_indices(training, count, protection.draws("batch", *words))
                for protection, count in zip(protections, counts, strict=True)
            ],
        )
        expected = [stated_batch_size(training, count) for count in counts]
        noise = [protection.draws("noise", *words) for protection in protections]
        rates, loss = local_rates(self._plan, request.round), self._model.record_loss
        descent = PrivateDescent(self._model.layout, self._mechanism, rates, loss)
        return descent.walk(self._model.flat, first, samples, expected, noise)

    def _pooled(self, scaling: FeatureScaling | None) -> Pool:
        train, loss = [site.train for site in self._sites], self._plan.task.loss
        self._model.record_loss = self._model.record_loss.under(target_scaling(loss, scaling))
        return pooled(train, self._schema, loss, scaling, self._model.flat)
