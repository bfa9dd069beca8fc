"""What a run asks about its output model by slices and in its audit, and what the opened sums say. No torch."""

from __future__ import annotations

from fedfair.aggregation.audit_findings import AuditFindings, audit_findings
from fedfair.aggregation.audit_sums import AuditQuestion, audit_layout
from fedfair.aggregation.quantile_query import QueryStep
from fedfair.aggregation.slice_findings import SliceFindings, slice_findings, worst_cells
from fedfair.aggregation.slice_sums import greatest_measure, slice_layout
from fedfair.plan.derived import audited_share, audited_slices
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.run.progress import is_at
from fedfair.run.stages import asked_by
from fedfair.run.state import RunState
from fedfair.statistics.statistic import When
from fedfair.statistics.table import Purpose


def audit_question(plan: Plan, schema: FeatureSchema, state: RunState) -> AuditQuestion:
    """Return what an audit asks about the output model, with the worst slices that the run has found."""
    most = audited_slices(plan)
    if state.slices is None or not most:
        return AuditQuestion()
    greatest = greatest_measure(plan, schema.classes)
    cells = worst_cells(state.slices, slice_layout(plan, schema), greatest, state.scaling, most)
    return AuditQuestion(cells, state.slices.cuts) if cells else AuditQuestion()


def asked(plan: Plan, schema: FeatureSchema, state: RunState) -> QueryStep | None:
    """Return the step of a query that a state asks for; None where it asks for no such sum."""
    return audit_question(plan, schema, state).step if is_at(state.stage, When.AUDITED) else asked_by(state)


def sliced(plan: Plan, schema: FeatureSchema, state: RunState) -> SliceFindings | None:
    """Return the slices that lie highest; None where a state has not found any."""
    if state.slices is None:
        return None
    greatest, fewest = greatest_measure(plan, schema.classes), plan.evaluation.min_group
    return slice_findings(state.slices, slice_layout(plan, schema), greatest, state.scaling, fewest)


def audited(plan: Plan, schema: FeatureSchema, state: RunState) -> AuditFindings | None:
    """Return what the audit of a state says; None before it, and where it could not be had."""
    kept = state.kept.get(Purpose.RELEASE_AUDIT.value)
    if kept is None:
        return None
    return audit_findings(
        kept.header,
        kept.members,
        audit_question(plan, schema, state),
        audit_layout(plan, schema),
        scaling=state.scaling,
        share=audited_share(plan),
        fewest=plan.evaluation.min_group,
    )
