"""The groups of an algorithm that knows them by name, as far as the plan tells them to all sites.

All sites must number the groups alike before any record is read. So in a deployment they are the classes of the
label, or what a declared categorical column becomes: one group for each of its values, one for any other value
and, where the plan wants it, one for a missing value. Of any other column only the records know the values.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource


def group_names(plan: Plan, classes: int) -> tuple[str, ...] | None:
    """Return the groups in the order of their numbers; none where the algorithm knows none.

    None where the plan does not tell them.

    Args:
        plan: the plan.
        classes: how many there are.
    """
    if plan.training.algorithm != "fedminmax":
        return ()
    column, data = plan.training.options.group_column, plan.task.data
    if column is None:
        return tuple(f"class {number}" for number in range(classes))
    if isinstance(data, CsvSource) and column in data.csv.categorical:
        return data.csv.coding_of(column)
    return None


def group_count(plan: Plan, classes: int) -> int:
    """Return how many groups a training sum tells of; 0 where it tells of none."""
    return len(group_names(plan, classes) or ())


def names_groups(plan: Plan) -> bool:
    """Return whether training sums hold figures of groups that the plan names."""
    return bool(group_names(plan, 2))


def publishes_groups(plan: Plan) -> bool:
    """Return whether all sites know the groups from the plan, or needs to know none."""
    return group_names(plan, 2) is not None


def group_obstacles(plan: Plan) -> Iterator[str]:
    """Yield why a deployment cannot have the groups of the plan, and what would help, as one text."""
    if not publishes_groups(plan):
        yield (
            f"training.options.group_column: {plan.training.options.group_column!r} is no declared category, so "
            "that sites could not number its groups alike"
        )
