"""The leaves that a step adds to the transcript in the state of a run: of a sum, and of the beginning of its plan.

A plan begins with a leaf of its own: before the first sum of a fresh run, and where it continues an earlier run,
as soon as that run's state is taken. No torch: the aggregator imports this module.
"""

from __future__ import annotations

from fedfair.aggregation.model_layout import Layout
from fedfair.plan.schema import Plan
from fedfair.run.state import RunState
from fedfair.transcript.leaf import NO_PLAN, AddedLeaves, TranscriptLeaf, leaf_of_beginning
from fedfair.transcript.merkle import MerkleFrontier


def begun_transcript(state: RunState, plan: Plan, layout: Layout) -> AddedLeaves:
    """Return what the transcript has more once a plan begins.

    Args:
        state: with which it begins.
        plan: the plan.
        layout: of its model.
    """
    leaf = leaf_of_beginning(plan, layout, int(state.rounds_done), state.digest(NO_PLAN))
    return AddedLeaves(state.tree or MerkleFrontier(), (leaf,))


def longer_transcript(before: RunState, leaf: TranscriptLeaf, plan: Plan, layout: Layout) -> AddedLeaves:
    """Return what the transcript has more after a sum.

    Args:
        before: the state that the sum was about.
        leaf: of the sum.
        plan: of the run.
        layout: of its model.
    """
    if before.tree is not None:
        return AddedLeaves(before.tree, (leaf,))
    begun = begun_transcript(before, plan, layout)
    return AddedLeaves(begun.before, (*begun.leaves, leaf))
