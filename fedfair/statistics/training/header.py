"""The numbers of a training sum, whose layout `terms.table` has. No torch."""

from __future__ import annotations

import math

from fedfair.aggregation.header import Header
from fedfair.aggregation.sum_kinds import MAX_INTEGER, SumKind
from fedfair.plan.derived import greatest_weight, threshold_limit
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.terms.table import is_bounded, training_layout


def _header(plan: Plan, schema: FeatureSchema) -> Header:
    return training_layout(plan, schema.classes)


def _largest_real(plan: Plan, schema: FeatureSchema) -> float:
    """Return the bound of w * change of c, where no further number needs a greater one."""
    if not is_bounded(plan, schema.classes):
        return MAX_INTEGER
    return min(math.ceil(greatest_weight(plan) * threshold_limit(plan, schema.classes)), MAX_INTEGER)


HEADER = SumKind(_header, largest_real=_largest_real)
