"""When a site signs a checkpoint: after evaluations of the global model, at most some fifty in a run.

Every actor computes it alike, of the plan and of the leaf of a sum, so nobody can ask for another statement, and a
site that sends one at another place breaks the protocol. A site that is gone at the end has its last checkpoint in
the evidence: it covers all but a fiftieth of the rounds before it left, or what lies between two evaluations.
"""

from __future__ import annotations

from fedfair.plan.schedule import schedule_of
from fedfair.plan.schema import Plan
from fedfair.statistics.statistic import When
from fedfair.statistics.table import purpose_named
from fedfair.transcript.leaf import BEGIN, TranscriptLeaf

IN_A_RUN = 50
"""Checkpoints that a run of very many rounds has, beside the one before round 1."""


class Checkpoints:
    """The checkpoints of every run of one plan.

    Args:
        plan: the plan.
    """

    def __init__(self, plan: Plan) -> None:
        self._every = schedule_of(plan).every
        self._interval = max(1, -(-plan.training.rounds // IN_A_RUN))

    def is_due(self, leaf: TranscriptLeaf) -> bool:
        """Return whether sites sign a checkpoint after the sum of a leaf."""
        if leaf.kind == BEGIN or purpose_named(leaf.kind).statistic.when is not When.EVERY:
            return False
        return leaf.round % self._interval < self._every
