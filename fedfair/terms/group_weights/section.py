"""When a plan has an adversary over groups that are known by name, what its sums tell, and what that shows."""

from __future__ import annotations

from fedfair.aggregation.header import Everything, Field, Number, one_of
from fedfair.plan.known_groups import group_count, names_groups
from fedfair.plan.schema import Plan

_LONE_RECORDS = Everything("a group may be one record: policy.reveals must name group-losses, policy.algorithms")


def applies(plan: Plan) -> bool:
    """Return whether training sums hold figures of groups that the plan names."""
    return names_groups(plan)


def fields_of(groups: int) -> tuple[Field, ...]:
    """Return the records of each of so many groups, and their losses in nats under the broadcast model."""
    return (
        Field("group_counts", Number.COUNT, (groups,), lone=one_of(max(groups, 1))),
        Field("group_losses", Number.REAL, (groups,), lone=_LONE_RECORDS),
    )


def fields(plan: Plan, classes: int) -> tuple[Field, ...]:
    """Return what the header tells of groups."""
    return fields_of(group_count(plan, classes))


def shown(plan: Plan) -> str:
    """Return what a round shows where a site can be left out of it."""
    return (
        f"training.algorithm: {plan.training.algorithm} shows how many records of each group a site "
        "that is left out has, since only who takes part changes these numbers from round to round"
    )
