"""The numbers of slices; `aggregation.slice_sums` has their layout, `slice_findings` their meaning. No torch."""

from __future__ import annotations

from fedfair.aggregation.header import Header
from fedfair.aggregation.slice_sums import slice_layout
from fedfair.aggregation.sum_kinds import SumKind
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan


def _header(plan: Plan, schema: FeatureSchema) -> Header:
    return slice_layout(plan, schema).header


def _columns(plan: Plan, schema: FeatureSchema) -> list[str]:
    # Counts of cells depend on no model: over other sites they show what the sets do not share.
    return [f"{column.name} of slices" for column in slice_layout(plan, schema).columns]


HEADER = SumKind(_header, columns=_columns)
