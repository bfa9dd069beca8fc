"""The numbers of a standardisation.

`aggregation.feature_moments` has their layout, `aggregation.feature_scaling` their meaning.
Decides which columns are summed, and which total lies nearest to one with noise. No torch.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedfair.aggregation.feature_moments import moments_layout, noise_deviation, possible_sums
from fedfair.aggregation.header import Header
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.sum_kinds import SumKind
from fedfair.aggregation.target_scaling import scaled_columns
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import predicts_number
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource


def _header(plan: Plan, schema: FeatureSchema) -> Header:
    return moments_layout(scaled_columns(plan.task.loss, len(schema.numeric)))


def _columns(plan: Plan, schema: FeatureSchema) -> list[str]:
    """Return the names of the columns that are standardised, the target among them."""
    features = [schema.names[place] if schema.names else f"feature {place}" for place in schema.numeric]
    return [*features, *_targets(plan)]


def _targets(plan: Plan) -> list[str]:
    """Return the name of the target that is standardised; none where records have no number to predict."""
    if not predicts_number(plan.task.loss):
        return []
    data = plan.task.data
    return [data.csv.target or "the target" if isinstance(data, CsvSource) else "the target"]


def _possible(totals: Totals, plan: Plan, schema: FeatureSchema) -> Totals:
    asked = plan.privacy.sample_level
    if asked is None:
        return totals
    released = np.count_nonzero(~_header(plan, schema).counts(noised=True))
    deviation = noise_deviation(int(released), asked.standardisation_noise_multiplier)
    return replace(totals, header=possible_sums(totals.header, deviation * math.sqrt(totals.contributors)))


HEADER = SumKind(_header, columns=_columns, possible=_possible)
