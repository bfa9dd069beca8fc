"""A cohort that computes all collaborators together: linear and MLP models in float32 or float64.

Answers what `LoopClients` answers, up to the rounding of sums in another order. Decides what is pooled and how a
group's numbers become totals; nobody's upload ever exists. The steps are `descent.py`'s.

Rounding: the loop and this differ by the order in which products of a matrix multiplication and weighted changes
are added up, a few units in the last place of each sum, and by nothing else.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfair.aggregation.loss_histogram import SPLITS
from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, SumRequest, histogram_spec
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.target_scaling import target_scaling
from fedfair.errors import LocalProtocolError
from fedfair.fairness.record_losses import Losses, SiteLosses
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.plan.derived import (
    keeps_site_thresholds,
    reference_of,
    score_columns,
    standardises,
    threshold_limit,
)
from fedfair.plan.known_groups import group_count
from fedfair.plan.learning_rates import local_rates
from fedfair.plan.local_rounds import round_length, round_weight
from fedfair.plan.schema import Plan
from fedfair.plan.simulated_clip import clips_in_simulation
from fedfair.simulation.clients import AskedSteps, asked_members
from fedfair.simulation.vectorised.clipping import ChangeClipping, training_totals
from fedfair.simulation.vectorised.descent import Descent
from fedfair.simulation.vectorised.group_batch import GroupBatch, group_batches
from fedfair.simulation.vectorised.groups import Members, planned_groups, suitable_budget
from fedfair.simulation.vectorised.pool import Pool, pooled
from fedfair.tables.dataset import Splits
from fedfair.terms.group_weights.all_sites import PooledGroups
from fedfair.terms.loss_powers.site import LossPowers
from fedfair.terms.site_thresholds.all_sites import PooledThresholds
from fedfair.terms.table import training_layout
from fedfair.terms.variates.all_sites import PooledVariates
from fedfair.training.assembly import loss_weighting, objective_of
from fedfair.training.device import plain_arithmetic
from fedfair.training.flat_model import FlatModel
from fedfair.training.inference import evaluate
from fedfair.training.model_faults import training_faults
from fedfair.training.reference_training import ReferenceParts, ReferenceSetting, answered, judged
from fedfair.training.site_statistics import site_statistic


class VectorisedClients:
    """A cohort that computes all collaborators at once; see `Clients` for what is asked.

    Args:
        plan: a plan that `engine.obstacle` finds nothing against.
        sites: all sites' records, unscaled.
        model: the plan's model on the device to work on; it is overwritten by every evaluation.
        group_bytes: memory that collaborators who are computed together may take; None for what suits the device.

    Attributes:
        names: who they are.
        counts: int64 array (collaborators,), training records of each.
        weights: float64 array (collaborators,), what each weighs in a round.
        memory: what the collaborators keep of earlier rounds.
        loss_unit: how many natural units one loss of the local steps has.
        scaling: of the features; None where they are not scaled.
        last_losses: what the last evaluation found at each collaborator.
    """

    def __init__(
        self,
        plan: Plan,
        sites: Mapping[ParticipantId, Splits],
        model: FlatModel,
        *,
        group_bytes: int | None = None,
    ) -> None:
        self.plan, self._model = plan, model
        self._budget = suitable_budget(model.flat.device) if group_bytes is None else group_bytes
        self.names, self.sites = tuple(sites), tuple(sites.values())
        self._schema = self.sites[0].train.schema
        self.loss_unit, self.objective = 1.0, objective_of(plan)
        self._histogram = histogram_spec(plan, self._schema)
        self._rule = loss_weighting(plan)
        self.counts = np.array([len(site.train) for site in self.sites])
        self.weights = np.array([round_weight(plan.training, count) for count in self.counts.tolist()], np.float64)
        self.scaling: FeatureScaling | None = None
        self._pools = None if standardises(plan, len(self._schema.numeric)) else self._pool(None)
        self._references: References | None = None
        self._judged: dict[str, Pool] = {}
        self._answered: dict[str, NDArray[np.float64]] = {}
        self._with_records = np.flatnonzero(self.counts)
        count, classes = len(self.names), self._schema.classes
        has_variates, own_thresholds = plan.training.control_variates, keeps_site_thresholds(plan)
        self.memory = (
            PooledVariates(plan, count, model.layout.dimension) if has_variates else None,
            PooledThresholds(plan, count, classes) if own_thresholds else None,
        )
        self._powers = LossPowers.of_plan(plan, classes)
        is_grouped = bool(group_count(plan, classes))
        self._known_groups = PooledGroups(plan, [site.train for site in self.sites]) if is_grouped else None
        # A change that is clipped, counted or weighed must exist, so each collaborator needs its own model.
        kept = clips_in_simulation(plan) or has_variates or self._powers is not None
        self._groups = self._grouped(self._with_records, None, own_models=kept)
        self.last_losses: list[SiteLosses] = [{} for _ in self.sites]

    def apply_scaling(self, scaling: FeatureScaling) -> None:
        """Scale the features of all collaborators; a second call replaces the first."""
        self._pools, self.scaling = self._pool(scaling), scaling

    def apply_references(self, references: References) -> None:
        """Judge the records of all collaborators by these references, once they are trained."""
        if references is self._references:
            return
        self._references = references
        if not references.are_done(reference_of(self.plan)):
            return
        setting, like = self._reference_setting(), self._model.flat
        self._judged = {}
        for name, pool in self._ready().items():
            sites = [
                judged(setting, site, {name: pool.of_site(place)}, references, like)[name].labels
                for place, site in enumerate(self.names)
            ]
            self._judged[name] = replace(pool, records=replace(pool.records, labels=torch.cat(sites)))
        self._model.excess = setting.answers.excess
        said, own = ({name: pool.records for name, pool in each.items()} for each in (self._judged, self._ready()))
        self._answered = answered(said, own, self._model.record_loss)

    def reference_parts(self) -> Iterator[ReferenceParts]:
        """Yield of each collaborator what sums about references are computed from, one by one."""
        references, pools = self._references, self._ready()
        if references is None:
            raise LocalProtocolError("a sum about references came before the references")
        setting, like = self._reference_setting(), self._model.flat
        for at, site in enumerate(self.names):
            yield setting, site, {name: pool.of_site(at) for name, pool in pools.items()}, references, like

    def _reference_setting(self) -> ReferenceSetting:
        return ReferenceSetting.of(self.plan, self._schema, self._model.record_loss)

    def totals(self, request: SumRequest, model: GlobalModel, clip: float | None = None) -> Totals:
        """Return the sum over all collaborators, computed without single addends; see `Clients.totals`."""
        at_all_sites = site_statistic(request.purpose).at_all_sites
        if at_all_sites is None:
            return self._training_totals(request, model, None if clip is None else ChangeClipping(clip))
        header = at_all_sites(self, request, model)
        return Totals(header, np.zeros(0, self._model.layout.dtype), len(self.names))

    @training_faults()
    @plain_arithmetic()
    def changes(self, model: GlobalModel, asked: AskedSteps) -> NDArray[np.floating]:
        """Return what local steps change at each member; see `Clients.changes`."""
        members = asked_members(self.names, self.counts, asked.members)
        start, weighed = self._on_device(model.vector), asked.record_weights
        models, descent = np.empty((len(members), len(start)), model.vector.dtype), self._descent(asked.round)
        for places in self._grouped(members, asked.steps, own_models=True):
            weights = None if weighed is None else [self._on_device(weighed[place]) for place in places]
            batches = self._batches(members[places], asked.round, 1, weights)
            first = self._on_device(np.full((len(places), 1), model.threshold / self.loss_unit))
            models[places] = descent.changes(start, first, itertools.islice(batches, asked.steps))[0].cpu().numpy()
        return models

    def losses(self, model: GlobalModel, splits: Collection[str] = SPLITS) -> list[SiteLosses]:
        """Return the losses of the model at each collaborator, for those of the splits that have records."""
        return self._by_site(self.pooled_losses(model, splits))

    @training_faults()
    @plain_arithmetic()
    def _training_totals(self, request: SumRequest, model: GlobalModel, clipping: ChangeClipping | None) -> Totals:
        layout = training_layout(self.plan, self._schema.classes)
        start, header = self._on_device(model.vector), layout.zeros()
        sums = layout.read(header)
        total, weights = torch.zeros_like(start), self.weights
        limit, descent = threshold_limit(self.plan, self._schema.classes), self._descent(request.round)
        variates, thresholds = self.memory
        counted = None if variates is None else variates.begin(request)
        levels = np.full(len(weights), model.threshold) if thresholds is None else thresholds.begin(request, model)
        losses = None if self._powers is None else self._mean_losses(model)
        for places in self._groups:
            group = self._with_records[places]
            batches = self._batches(group, request.round, request.attempt, self._factors(request, group))
            first = self._on_device(levels[group] / self.loss_unit)[:, None]
            drift = None if variates is None or counted is None else variates.drift(counted, group, start)
            # Nobody's last step is needed by itself, unless it is clipped, counted or weighed.
            summed, length = clipping is None and drift is None and losses is None, self._length(group)
            column = self._on_device(weights[group])[:, None]
            if summed:
                models, last = descent.walk(start, first, itertools.islice(batches, length - 1))
                last = descent.add_last_step(models, last, next(batches), column, total)
                changes = None if models is start else models.sub_(start)
            else:
                changes, last = descent.changes(start, first, itertools.islice(batches, length), drift)
            if changes is not None:
                if self._powers is not None and losses is not None:
                    curvatures = _weigh(changes, self._powers, losses[group], descent.rates.model / self.loss_unit)
                    sums["curvature"] += weights[group] @ curvatures
                if clipping is not None:
                    clipping.limit(changes)
                total.addmv_(changes.t(), column[:, 0])
            moved = np.clip(_difference(last, first) * self.loss_unit, -limit, limit)
            if variates is not None and counted is not None and changes is not None:
                variates.adding(counted, group, changes, moved)
            if thresholds is not None:
                moved = thresholds.adding(model, group, moved)
            sums["weight"] += weights[group].sum()
            sums["threshold"] += weights[group] @ moved
        if variates is not None:
            sums["new_weight"] = variates.new_weight(weights)
        self._add_groups(sums, request, model)
        return training_totals(header, total, len(self.names), request.round, clipping)

    def _factors(self, request: SumRequest, group: Members) -> list[Tensor] | None:
        """Return what every record of each member is multiplied by; None for nothing."""
        found = None if self._known_groups is None else self._known_groups.factors(request, group.tolist())
        return None if found is None else [self._on_device(factors) for factors in found]

    def _add_groups(self, sums: NDArray[Any], request: SumRequest, model: GlobalModel) -> None:
        """Write all records of each known group into a header, and their losses, in a round that tells of them."""
        if self._known_groups is not None and self._known_groups.looks_in(request.round):
            self._known_groups.add_to(sums, self.pooled_losses(model, ("train",))["train"].values)

    def _mean_losses(self, model: GlobalModel) -> NDArray[np.float64]:
        """Return the mean training losses in nats: float64 array (collaborators,); 1 without records."""
        found = self.losses(model, ("train",))
        return np.array([float(site["train"].values.mean()) if "train" in site else 1.0 for site in found])

    def _descent(self, number: RoundNumber) -> Descent:
        """Return the steps of a round."""
        rates = local_rates(self.plan, number)
        loss, excess = self._model.record_loss, self._model.excess
        if excess is not None:
            loss = replace(loss, per_record=excess, is_cross_entropy=False)
        return Descent(self._model.layout, self._rule, rates, loss)

    def evaluated(self, losses: Mapping[str, Losses]) -> list[SiteLosses]:
        """Keep the losses of an evaluation, `pooled_losses`; return each collaborator's own."""
        self.last_losses = self._by_site(losses)
        return self.last_losses

    def pooled_losses(self, model: GlobalModel, splits: Collection[str] = SPLITS) -> dict[str, Losses]:
        """Return the losses of the records of all collaborators together, by split."""
        self._model.load(model.vector)
        held = {name: pool for name, pool in self._ready().items() if name in splits}
        columns = score_columns(self.plan, self._schema.classes)
        judged = {name: pool.records for name, pool in self._judged.items()}
        found = {
            name: evaluate(self._model, pool.records, columns, judged=judged.get(name))
            for name, pool in held.items()
        }
        if self._answered:
            found = {name: replace(losses, answered=self._answered[name]) for name, losses in found.items()}
        return found

    def _by_site(self, losses: Mapping[str, Losses]) -> list[SiteLosses]:
        parts = {name: self._ready()[name].of_each(found) for name, found in losses.items()}
        return [
            {name: each[k] for name, each in parts.items() if len(each[k].values)} for k in range(len(self.names))
        ]

    def _batches(
        self, group: Members, number: RoundNumber, attempt: int, weights: list[Tensor] | None
    ) -> Iterator[GroupBatch]:
        members = [(int(member), self.names[member]) for member in group]
        pools = self._judged or self._ready()
        return group_batches(self.plan.training, pools["train"], members, number, attempt, weights)

    def _grouped(self, members: Members, steps: int | None, *, own_models: bool) -> list[Members]:
        """Return the places of `members` in groups."""
        counts, layout, columns = self.counts[members], self._model.layout, math.prod(self._schema.input_shape)
        return planned_groups(
            self.plan.training, counts, layout, columns, self._budget, own_models=own_models, steps=steps
        )

    def _length(self, group: Members) -> int:
        return max(round_length(self.plan.training, int(count)) for count in self.counts[group])

    def _on_device(self, values: NDArray[np.floating]) -> Tensor:
        return torch.tensor(values, dtype=self._model.flat.dtype, device=self._model.flat.device)

    def _ready(self) -> dict[str, Pool]:
        if self._pools is None:
            raise LocalProtocolError("this plan standardises features, and their scaling has not arrived")
        return self._pools

    def _pool(self, scaling: FeatureScaling | None) -> dict[str, Pool]:
        splits = ([getattr(site, name) for site in self.sites] for name in SPLITS)
        loss = self.plan.task.loss
        target = target_scaling(loss, scaling)
        self.loss_unit = target.loss_unit(loss)
        self._model.record_loss = self._model.record_loss.under(target)
        self.objective = objective_of(self.plan, self.loss_unit)
        return {
            name: pooled(datasets, self._schema, loss, scaling, self._model.flat)
            for name, datasets in zip(SPLITS, splits, strict=True)
        }


def _weigh(models: Tensor, powers: LossPowers, losses: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Multiply the changes (k, d) of a group by the powers of its losses; return its curvatures: array (k,)."""
    squares = models.double().square().sum(1).cpu().numpy()
    models.mul_(torch.from_numpy(powers.factors(losses)).to(models)[:, None])
    return powers.curvatures(losses, squares, rate)


def _difference(last: Tensor, first: Tensor) -> NDArray[np.float64]:
    """Return by how much thresholds (k, 1) moved: array (k,). Both have the device's width, as in the loop."""
    moved: NDArray[np.float64] = (last.double() - first.double())[:, 0].cpu().numpy()
    return moved
