"""The numbers of a survey; `aggregation.survey` has their layout and their meaning. No torch.

Decides which totals records can have.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.header import NO_RECORDS, Header
from fedfair.aggregation.sum_kinds import SumKind
from fedfair.aggregation.survey import SurveyLayout, survey_layout
from fedfair.errors import RemoteProtocolError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan

_ROUNDING = 1e-9
"""By how much a square of a sum may exceed its bound, relative to it: far more than adding a million rounds."""


def _header(plan: Plan, schema: FeatureSchema) -> Header:
    return survey_layout(plan, schema).header


def _columns(plan: Plan, schema: FeatureSchema) -> list[str]:
    layout = survey_layout(plan, schema)
    return [column.name for column in layout.numeric] + [column.name for column in layout.categories]


def check_survey(header: NDArray[np.float64], layout: SurveyLayout) -> None:
    """Refuse a total that no records have.

    Raises:
        RemoteProtocolError: a count is none, bins do not add up to the values, or squares are too small.
    """
    found = layout.header.read(header)
    records = float(found["records"])
    if not records > 0:
        raise _impossible(f"{records:g} training records ({NO_RECORDS})", "look at the plan's filters")
    whole = layout.header.counts(noised=False)
    counts = header[whole]
    if (counts < 0).any() or (counts != np.floor(counts)).any():
        raise _impossible(f"the count {counts[(counts < 0) | (counts != np.floor(counts))][0]:g}")
    if layout.classes and found["labels"].sum() != records:
        raise _impossible(f"{found['labels'].sum():g} labels of {records:g} records")
    for place, (column, bins) in enumerate(zip(layout.numeric, layout.bins_of(found["bins"]), strict=True)):
        present = float(found["present"][place])
        if present > records or bins.sum() != present:
            raise _impossible(f"{present:g} values of {column.name}, {bins.sum():g} in bins, {records:g} records")
        total, squares = float(found["sums"][place]), float(found["squares"][place])
        if total * total > present * squares * (1 + _ROUNDING) + _ROUNDING:
            raise _impossible(f"the sum {total:g} and the sum of squares {squares:g} of {column.name}")
    held = zip(layout.categories, layout.values_of(found["values"]), found["unknown"], strict=True)
    for category, values, unknown in held:
        if values.sum() != records or unknown > records:
            raise _impossible(f"{values.sum():g} values of {category.name} in {records:g} records")


def _impossible(what: str, remedy: str = "compare the versions of fedfair at the sites") -> RemoteProtocolError:
    return RemoteProtocolError(f"the survey is of {what}, which no records have", remedy)


def _check(total: NDArray[np.float64], plan: Plan, schema: FeatureSchema) -> None:
    check_survey(total, survey_layout(plan, schema))


HEADER = SumKind(_header, columns=_columns, check=_check)
