"""The totals of an opened masked sum, in the form of plain ones: the same at the aggregator and at every site.

No torch: the aggregator imports this.
"""

from __future__ import annotations

from dataclasses import replace

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.masked_encoding import header_parts, plain_totals
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.running_sum import Totals
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.secagg.opened_sum import OpenedSum
from fedfair.statistics.table import purpose_named


class MaskedTotals:
    """How the opened sums of one plan are read.

    Args:
        plan: the plan; its sums are masked.
        layout: of the model.
        schema: of the features.
    """

    def __init__(self, plan: Plan, layout: Layout, schema: FeatureSchema) -> None:
        self._parts = header_parts(plan, schema)
        self._noised = distributed_dp(plan, layout.dimension)

    def of(self, opened: OpenedSum) -> Totals:
        """Return the totals of an opened sum, whose body is theirs from now on."""
        if self._noised is not None:
            return self._noised.totals(opened.body, opened.contributors)
        return replace(plain_totals(opened, self._parts[purpose_named(opened.purpose)]), used_up=True)
