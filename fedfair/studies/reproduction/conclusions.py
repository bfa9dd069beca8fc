"""Draws the conclusions from a study: who is in the worst groups, and the verdict about every claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedfair.plan.schema import Plan
from fedfair.studies.reproduction.claims import Decision, Grounds, decisions
from fedfair.studies.reproduction.composition import Shares
from fedfair.studies.reproduction.exact_checks import exact_checks
from fedfair.studies.reproduction.execution import Done
from fedfair.studies.reproduction.membership import membership
from fedfair.studies.reproduction.runs import ours
from fedfair.studies.sweep.runner import PointRunner


@dataclass(frozen=True, slots=True)
class Conclusions:
    """The conclusions from one study.

    Attributes:
        shares: the composition of worst groups and of everybody, by the words of the row.
        decisions: what became of every claim, in their order.
    """

    shares: Mapping[str, Shares]
    decisions: tuple[Decision, ...]


def conclude(done: Done) -> Conclusions:
    """Return what a study shows; trains a few models once more and makes a few short runs.

    Raises:
        FedfairError: the data cannot be loaded any more.
    """
    runner = PointRunner(done.workspace)
    checks = exact_checks(done.runs.base, runner.records(Plan.model_validate(done.runs.base)), done.workspace)
    members = membership(done, runner)
    checks |= {} if members.no_group_above is None else {"C12": members.no_group_above}
    grounds = Grounds(done.evidence, ours(done.study), checks, members.distances)
    return Conclusions(members.shares, tuple(decisions(grounds)))
