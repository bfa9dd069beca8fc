"""The leaves that a step adds to the transcript in the state of a run: of a sum, and of the beginning of its plan.

A plan begins with a leaf of its own, together with its first sum: also where it continues an earlier run, whose
transcript goes on. No torch: the aggregator imports this module.
"""

from __future__ import annotations

from fedfair.aggregation.model_layout import Layout
from fedfair.plan.schema import Plan
from fedfair.run.progress import is_at
from fedfair.run.state import RunState
from fedfair.statistics.statistic import When
from fedfair.transcript.leaf import NO_PLAN, AddedLeaves, TranscriptLeaf, leaf_of_beginning
from fedfair.transcript.merkle import MerkleFrontier


def longer_transcript(before: RunState, leaf: TranscriptLeaf, plan: Plan, layout: Layout) -> AddedLeaves:
    """Return what the transcript has more after a sum.

    Args:
        before: the state that the sum was about.
        leaf: of the sum.
        plan: of the run.
        layout: of its model.
    """
    tree = before.tree or MerkleFrontier()
    if not _begins(before, plan):
        return AddedLeaves(tree, (leaf,))
    begun = leaf_of_beginning(
        plan, layout, int(before.rounds_done), before.digest(NO_PLAN), before.model.vector_sha256
    )
    return AddedLeaves(tree, (begun, leaf))


def _begins(before: RunState, plan: Plan) -> bool:
    """Return whether the sum that a state asks for is the first one of its plan."""
    initial = plan.training.initial
    continues = None if initial is None else initial.continues
    if before.tree is None or continues is None:
        return before.tree is None
    # The first sum of such a plan is the round after those of the earlier run; no other state asks for that one.
    return is_at(before.stage, When.ROUND) and int(before.rounds_done) == continues.rounds
