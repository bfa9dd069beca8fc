"""The numbers of every sum over sites: header, masks and post-processing, by statistic.

`fedfair.statistics.table` lists the statistics; the room of each has its row in `header.py`, which is found by the
name of the room. Lengths and masks follow from the header; `plan.schedule` tells when a sum is due. No torch.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import Header
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.running_sum import Totals
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import LocalProtocolError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.statistics.table import Purpose, room_of

MAX_INTEGER = 2.0**54
"""The greatest integer part of a real number in a masked header, where a statistic has no bound of its own."""


@dataclass(frozen=True, slots=True)
class SumKind:
    """The numbers of one statistic.

    Attributes:
        header: the fields of a contribution under a plan.
        columns: the names of the columns whose values a sum tells of, whatever the model is.
        check: refuses a total that no records have, with a RemoteProtocolError.
        possible: post-processing of a total that carries every site's noise: the nearest total that records have.
        largest_real: the greatest real number of a header that one site adds, rounded up.
    """

    header: Callable[[Plan, FeatureSchema], Header]
    columns: Callable[[Plan, FeatureSchema], Sequence[str]] = lambda _plan, _schema: ()
    check: Callable[[NDArray[np.float64], Plan, FeatureSchema], None] = lambda _total, _plan, _schema: None
    possible: Callable[[Totals, Plan, FeatureSchema], Totals] = lambda totals, _plan, _schema: totals
    largest_real: Callable[[Plan, FeatureSchema], float] = lambda _plan, _schema: MAX_INTEGER


@functools.cache
def sum_kind(purpose: Purpose) -> SumKind:
    """Return the numbers of a purpose, from its room."""
    # By name, because the table of statistics lies below the headers, and a circle is one also when it is late.
    found = importlib.import_module(f"{room_of(purpose)}.header").HEADER
    if not isinstance(found, SumKind):
        raise LocalProtocolError(f"{room_of(purpose)}.header.HEADER is no SumKind")
    return found


def planned_purposes(plan: Plan) -> tuple[Purpose, ...]:
    """Return the statistics that a plan has in a run or on demand, in the order of `Purpose`."""
    return tuple(purpose for purpose in Purpose if purpose.statistic.planned(plan))


def sum_specs(plan: Plan, layout: Layout, schema: FeatureSchema) -> dict[Purpose, SumSpec]:
    """Return the shape of every sum of a plan; a round has a body, w * change of theta."""
    width = layout.dtype.newbyteorder("<")
    return {
        purpose: SumSpec(
            purpose,
            sum_kind(purpose).header(plan, schema).length,
            layout.dimension if purpose.statistic.is_round else 0,
            width,
        )
        for purpose in planned_purposes(plan)
    }
