"""The numbers of an exact evaluation; `aggregation.quantile_query` has their layout and meaning. No torch."""

from __future__ import annotations

from fedfair.aggregation.header import Header
from fedfair.aggregation.quantile_query import exact_layout
from fedfair.aggregation.sum_kinds import SumKind
from fedfair.plan.derived import reported_group_sizes
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan


def _header(plan: Plan, _schema: FeatureSchema) -> Header:
    return exact_layout(len(reported_group_sizes(plan)))


HEADER = SumKind(_header)
