"""Refuses plans whose slices would tell of single people, or have no columns to cut.

A slice is a sum without noise over people who share a cell of a column, or of two. So the sums are masked, no
promise of differential privacy stands beside them, and every site is in each of them: two sums over other sites
could be subtracted. What is left when those that collude take their own people out is still of two other sites, as
of a survey.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from fedfair.plan.fields import MAX_PLANNED_NUMBERS, Fault
from fedfair.plan.losses import has_classes
from fedfair.plan.privacy import PrivacySection
from fedfair.plan.sections import EvaluationSection, FederationSection, SecureAggregationSection, SlicesSection
from fedfair.plan.sources import BUILT_IN, AcsEmploymentSource, CsvSource, EicuSource
from fedfair.plan.survey_terms import MIN_OTHERS, fewest_in_survey
from fedfair.plan.task import TaskSection

MIN_PEOPLE = 3
"""The fewest people of whom a slice may tell, whatever `evaluation.min_group` says."""

_PLACE = ("evaluation", "slices")


def slice_faults(
    evaluation: EvaluationSection,
    federation: FederationSection,
    task: TaskSection,
    secure_aggregation: SecureAggregationSection,
    privacy: PrivacySection,
) -> Iterator[Fault]:
    """Yield what excludes slices; nothing for a plan without them."""
    stated = evaluation.slices
    if stated is None:
        return
    if secure_aggregation.mode == "off":
        message = "is stated, but secure_aggregation.mode is off: the aggregator would see each site's own cells"
        yield Fault(_PLACE, message, "set mode: malicious, or slices: null")
    for level in ("sample_level", "collaborator_level"):
        if getattr(privacy, level) is not None:
            message = f"is stated, but slices are sums without noise, which privacy.{level} does not allow"
            yield Fault(_PLACE, message, "set slices: null")
    if evaluation.min_group < MIN_PEOPLE:
        message = f"is {evaluation.min_group}, and no slice may be of fewer than {MIN_PEOPLE} people"
        yield Fault(("evaluation", "min_group"), message, f"use at least {MIN_PEOPLE}, or slices: null")
    count = len(federation.collaborators)
    if (federation.min_collaborators or count) < count:
        message = (
            f"is stated, but a sum may be of {federation.min_collaborators} of {count} collaborators: slices of "
            "different sites can be subtracted"
        )
        yield Fault(_PLACE, message, "set federation.min_collaborators: null, or slices: null")
    needed = fewest_in_survey(secure_aggregation.colluders)
    if count < needed:
        message = (
            f"is stated for {count} collaborators, and {needed} are the fewest: who subtracts its own people must "
            f"be left with those of {MIN_OTHERS} other sites"
        )
        yield Fault(_PLACE, message, "name more collaborators, or set slices: null")
    if stated.outcomes and not has_classes(task.loss):
        message = f"is true, and {task.loss.name} has no classes of which one could be the outcome"
        yield Fault((*_PLACE, "outcomes"), message, "set outcomes: false")
    yield from _column_faults(stated, task)


def _column_faults(stated: SlicesSection, task: TaskSection) -> Iterator[Fault]:
    """Yield which columns are none, as far as the plan tells its columns."""
    data = task.data
    if not isinstance(data, CsvSource):
        if not isinstance(data, AcsEmploymentSource | EicuSource) and data not in BUILT_IN:
            message = "is stated, and these data have no columns that the plan declares"
            yield Fault(_PLACE, message, "set slices: null")
        return
    if isinstance(data.csv.numeric, str):
        message = "is stated, and numeric: all leaves the columns to the files"
        yield Fault(_PLACE, message, "list the numeric columns of task.data.csv, or set slices: null")
        return
    known = (*data.csv.numeric, *data.csv.categorical)
    for index, name in enumerate(stated.columns or ()):
        if name not in known:
            message = f"column {name!r} is no feature"
            yield Fault((*_PLACE, "columns", index), message, f"the features are {', '.join(known)}")
    sizes = [stated.bins] * sum(_is_looked_at(name, stated) for name in data.csv.numeric)
    sizes += [len(data.csv.coding_of(name)) for name in data.csv.categorical if _is_looked_at(name, stated)]
    pairs = sum(left * right for left, right in itertools.combinations(sizes, 2))
    sums = 3 if stated.outcomes else 2
    numbers = 1 + sum(sizes) + pairs + sums * (sum(sizes) + pairs * stated.pairs)
    if numbers > MAX_PLANNED_NUMBERS:
        yield too_many_cells(numbers)


def too_many_cells(numbers: int) -> Fault:
    """Return the fault of slices whose sum would have so many numbers."""
    return Fault(
        _PLACE,
        f"sums {numbers} numbers, and a masked sum has room for {MAX_PLANNED_NUMBERS} of them",
        "name fewer columns under evaluation.slices.columns, or fewer bins",
    )


def _is_looked_at(name: str, stated: SlicesSection) -> bool:
    return stated.columns is None or name in stated.columns
