"""The numbers of an evaluation. No torch.

`aggregation.evaluation_sums` has their layout, `aggregation.evaluator` their meaning.
"""

from __future__ import annotations

from fedfair.aggregation.evaluation_sums import planned_layout
from fedfair.aggregation.sum_kinds import SumKind

HEADER = SumKind(planned_layout)
