"""The numbers of a sum of the references, whose layout `aggregation.reference` has. No torch."""

from __future__ import annotations

from fedfair.aggregation.reference import GREATEST_CHANGE, reference_header
from fedfair.aggregation.sum_kinds import SumKind

HEADER = SumKind(reference_header, largest_real=lambda _plan, _schema: GREATEST_CHANGE)
