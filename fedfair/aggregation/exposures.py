"""Says what masked sums do not hide, for the person who approves a plan: what `plan check` begins with.

Decides which sentences a plan needs. What its sums do hide is `masking_terms.guarantee`, and what a site accepts
is its own policy. No torch: the aggregator imports this.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.derived import is_masked, needs_everybody, quorum
from fedfair.plan.schema import Plan


def exposures(plan: Plan) -> tuple[str, ...]:
    """Return in words who could read or spoil what in spite of the masks, the worst first; none for plain sums."""
    return (*_neighbouring_rounds(plan), *_colluding_site(plan)) if is_masked(plan) else ()


def _neighbouring_rounds(plan: Plan) -> Iterator[str]:
    if needs_everybody(plan):
        return
    count, fewest = len(plan.federation.collaborators), quorum(plan)
    yield (
        f"federation.min_collaborators: {fewest} lets a sum leave out {count - fewest} of {count} sites. Two "
        "neighbouring rounds, one with and one without a site, can be subtracted: with full batches and a small "
        "rate the difference is that site's update. Each site consents to that by policy.min_collaborators: "
        f"{fewest} or less"
    )


def _colluding_site(plan: Plan) -> Iterator[str]:
    if not plan.secure_aggregation.check_sums:
        return
    yield (
        "one site that sides with the aggregator, such as the hospital that runs it, takes away the check of the "
        "sum: the two can have any sum believed within the clip times the weights, and so move the model towards "
        "one that reads records out of the next sum"
    )
