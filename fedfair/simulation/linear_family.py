"""Says which group sizes no linear model serves better than guessing, where all records are in one process.

Decides how records are put before the linear program of `fairness.critical_size`: flat, scaled, missing values as
the mean. A federation has nobody who could ask this; a simulation and `fedfair plan advise` do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedfair.fairness.critical_size import critical_group_size, critical_size_bounds
from fedfair.fairness.cvar import rcvar
from fedfair.fairness.linear_design import linear_design
from fedfair.fairness.linear_fit import fit_linear, linear_losses
from fedfair.ids import ParticipantId
from fedfair.plan.derived import minimises_objective
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import CROSS_ENTROPY
from fedfair.plan.schema import Plan
from fedfair.plan.task import LinearModel
from fedfair.results.advice import FamilyFacts
from fedfair.simulation.centralised.pooled import pool
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.pixels import feature_values

Features = NDArray[np.float64]

MAX_PROGRAM_RECORDS = 5000
"""Up to so many records the linear program gives the critical size; above, its dual bounds it."""

MAX_VALUES = 4_000_000
"""a solver that was not asked for sees at most so many feature values times logits."""

_MEAN_ALGORITHMS = frozenset({"fedavg", "erm"})
"""The algorithms that minimise the mean loss."""


def _critical_size(plan: Plan, sites: Mapping[ParticipantId, Splits]) -> tuple[float, float] | None:
    if not isinstance(plan.task.model, LinearModel) or plan.task.loss != CROSS_ENTROPY:
        return None
    trained = [site.train for site in sites.values()]
    held_out = [site.test for site in sites.values() if site.test is not None] or trained
    schema = held_out[0].schema
    if is_too_much(schema, sum(map(len, held_out))):
        return None
    classes, train, asked = schema.classes, pool(trained), pool(held_out)
    return critical_sizes(scaled(asked, standardised_columns(train)), asked.labels, classes)


def family_facts(plan: Plan, sites: Mapping[ParticipantId, Splits]) -> FamilyFacts | None:
    """Return what no model of the plan's kind can do better.

    The critical size is that of the records held out, the optimum that of the training records.

    Args:
        plan: of the run.
        sites: the records of all sites. Without test records the training records are asked about.

    Returns:
        None where the model is not linear, the loss is not cross-entropy, or there are too many records to ask.
        The optimum is None where the algorithm minimises something else than the objective or the mean loss.
    """
    bounds = _critical_size(plan, sites)
    if bounds is None:
        return None
    trained = pool([site.train for site in sites.values()])
    if is_too_much(trained.schema, len(trained)):
        return FamilyFacts(*bounds)
    return FamilyFacts(*bounds, _optimum(plan, trained))


def _optimum(plan: Plan, trained: Dataset) -> float | None:
    """Return the least objective, or mean loss, of a linear model over the training records, or a little more."""
    stated = plan.objective
    if minimises_objective(plan):
        size, tradeoff = stated.worst_group_size, stated.tradeoff
    elif plan.training.algorithm in _MEAN_ALGORITHMS:
        size, tradeoff = 1.0, 1.0
    else:
        return None
    features, classes = scaled(trained, standardised_columns(trained)), trained.schema.classes
    design = linear_design(features, trained.labels, classes)
    losses, _ = linear_losses(fit_linear(design, size, tradeoff), design, features, trained.labels)
    # The uniform guess is a linear model, too.
    return min(float(rcvar(losses, size, tradeoff)), math.log(classes))


def is_too_much(schema: FeatureSchema, records: int) -> bool:
    """Return whether the solver is not asked about so many records."""
    return records * math.prod(schema.input_shape) * (schema.classes - 1) > MAX_VALUES


def critical_sizes(features: Features, labels: NDArray[np.int64], classes: int) -> tuple[float, float]:
    """Return a lower and an upper bound of the critical group size of linear models; equal for few records.

    Args:
        features: (n, p), finite.
        labels: (n,), in 0..classes-1.
        classes: number of classes, at least 2.
    """
    if len(features) > MAX_PROGRAM_RECORDS:
        return critical_size_bounds(features, labels, classes)
    exact = critical_group_size(features, labels, classes)
    return exact, exact


def standardised_columns(records: Dataset) -> tuple[Features, Features]:
    """Return means and deviations of the columns: of the numeric ones, and 0 and 1 of the others.

    The family of linear models with a bias is the same in every scaling, so that the plan's own has no part in it.
    """
    features = _flat(records)
    mean, scale = np.zeros(features.shape[1]), np.ones(features.shape[1])
    columns = list(records.schema.numeric)
    known = ~np.isnan(features[:, columns])
    count = np.maximum(known.sum(axis=0), 1)
    present = np.where(known, features[:, columns], 0.0)
    mean[columns] = present.sum(axis=0) / count
    deviation = np.sqrt(np.where(known, (present - mean[columns]) ** 2, 0.0).sum(axis=0) / count)
    scale[columns] = np.where(deviation > 1e-12 * np.maximum(np.abs(mean[columns]), 1.0), deviation, 1.0)
    return mean, scale


def scaled(records: Dataset, scaling: tuple[Features, Features]) -> Features:
    """Return the features (n, p) in that scaling; a missing value becomes the mean."""
    features = (_flat(records) - scaling[0]) / scaling[1]
    return np.where(np.isnan(features), 0.0, features)


def _flat(records: Dataset) -> Features:
    return feature_values(records.features).reshape(len(records), -1).astype(np.float64)
