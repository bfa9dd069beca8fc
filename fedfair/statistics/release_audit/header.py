"""The numbers of a release audit; `audit_sums` has their layout, `audit_findings` their meaning. No torch."""

from __future__ import annotations

from fedfair.aggregation.audit_sums import audit_layout, check_audit
from fedfair.aggregation.header import Header
from fedfair.aggregation.sum_kinds import SumKind
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan


def _header(plan: Plan, schema: FeatureSchema) -> Header:
    return audit_layout(plan, schema).header


HEADER = SumKind(_header, check=lambda total, plan, schema: check_audit(total, audit_layout(plan, schema)))
