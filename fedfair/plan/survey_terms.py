"""Refuses plans whose survey would tell of single sites or of single records.

A survey is a sum without noise, and each member can take its own part out of it. So the sum is masked, no promise
of differential privacy stands beside it, and what is left without any one member is still of two others. Where the
plan counts on colluding members, it is so without all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.fields import Fault
from fedfair.plan.privacy import PrivacySection
from fedfair.plan.sections import FederationSection, SecureAggregationSection
from fedfair.plan.task import TaskSection

MIN_OTHERS = 2
"""The fewest sites that a survey may still be of when those that collude have taken their own parts out."""

_PLACE = ("task", "survey")


def fewest_in_survey(colluders: int) -> int:
    """Return how many collaborators at least a survey is of.

    Args:
        colluders: `secure_aggregation.colluders`; a single curious member counts as one.
    """
    return max(colluders, 1) + MIN_OTHERS


def survey_faults(
    task: TaskSection,
    federation: FederationSection,
    secure_aggregation: SecureAggregationSection,
    privacy: PrivacySection,
) -> Iterator[Fault]:
    """Yield what excludes a survey; nothing for a plan without one."""
    if not task.survey:
        return
    if secure_aggregation.mode == "off":
        message = "is true, but secure_aggregation.mode is off: the aggregator would see each site's own columns"
        yield Fault(_PLACE, message, "set mode: malicious, or survey: false")
    for level in ("sample_level", "collaborator_level"):
        if getattr(privacy, level) is not None:
            yield Fault(
                _PLACE,
                f"is true, but a survey is a sum without noise, which privacy.{level} does not allow",
                "set survey: false and run `fedfair data check` at each site, which sends nothing",
            )
    fewest = federation.min_collaborators or len(federation.collaborators)
    needed = fewest_in_survey(secure_aggregation.colluders)
    if fewest < needed:
        yield Fault(
            _PLACE,
            f"is true, but a sum may be of {fewest} collaborators, and {needed} are the fewest: who subtracts its "
            f"own part must be left with {MIN_OTHERS} others",
            "name more collaborators, raise federation.min_collaborators, or set survey: false",
        )
