"""A small run and what its sites would sign: no process, no model of torch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from collaborator.witnessing import Signatory
from fedfair.aggregation.loss_histogram import loss_block
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.requests import SumRequest, histogram_spec
from fedfair.aggregation.running_sum import Totals
from fedfair.ids import FederationName, ParticipantId
from fedfair.plan.approval import approve
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.run.progress import Progress
from fedfair.run.replica import RunReplica, Unkept
from fedfair.run.training_run import TrainingRun
from fedfair.statistics.table import Purpose
from fedfair.transcript.leaf import TranscriptLeaf
from tests import plans
from tests.oracles.header_places import block_length

LAYOUT = Layout((LayoutEntry("weight", (3,)),), np.dtype(np.float64))
SCHEMA = FeatureSchema((2,), 2, (0, 1))
FEDERATION = FederationName("heart")
PLAN_DIGEST = bytes(range(32))
RUN = "0f" * 16
SITES = tuple(ParticipantId(name) for name in ("clinic-a", "clinic-b"))
KEYS = {name: Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number, name in enumerate(SITES)}
APPROVALS = {
    name: approve(PLAN_DIGEST, FEDERATION, name, key, approved_at="2031-05-04T12:00:00+00:00")
    for name, key in KEYS.items()
}


def plan_of(rounds: int = 3, every: int = 2) -> Plan:
    return plans.parsed(
        list(SITES),
        task={"standardize": "none"},
        training={"rounds": rounds, "precision": "fp64"},
        evaluation={"every": every, "group_sizes": [0.5]},
    )


def run_of(plan: Plan) -> TrainingRun:
    return TrainingRun(plan, LAYOUT, SCHEMA, np.zeros(3))


def totals_of(request: SumRequest, plan: Plan, scale: float = 1.0) -> Totals:
    """Return some total of a sum."""
    if request.purpose is Purpose.TRAINING:
        return Totals(np.array([4.0, -0.4]), np.array([scale, 2.0 * scale, 1.0]), 2)
    spec, losses = histogram_spec(plan, SCHEMA), np.array([0.1, 0.4, 0.9, 1.7])
    blocks = [loss_block(losses, np.zeros(4, bool), losses.sum(), spec), *[np.zeros(block_length(spec))] * 2]
    # Every record is in class 1 and taken for class 0.
    return Totals(np.concatenate([*blocks, [0.0, 0.0, 4.0, 0.0], *[np.zeros(4)] * 2]), np.zeros(0), 2)


@dataclass
class Play:
    """One actor's copy of a run, moved by the sums that it is given.

    Attributes:
        plan: of the run.
        leaves: of the transcript so far.
        progress: of each sum.
    """

    plan: Plan = field(default_factory=plan_of)
    leaves: list[TranscriptLeaf] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = run_of(self.plan)
        self.replica = RunReplica(self.run, PLAN_DIGEST, Unkept())
        self.replica.run_id = RUN

    def sum(self, scale: float = 1.0, members: tuple[str, ...] = SITES) -> Progress | None:
        """Apply the next sum; None at the end."""
        request = self.run.next_sum()
        if request is None:
            return None
        progress = self.replica.apply(totals_of(request, self.plan, scale), members)
        assert progress.added is not None
        self.leaves += progress.added.leaves
        self.progress.append(progress)
        return progress

    def finish(self) -> Play:
        """Apply all sums."""
        while self.sum(1.0 + len(self.progress) / 10) is not None:
            pass
        return self


def signatory(name: ParticipantId, **other: object) -> Signatory:
    facts = {"federation": FEDERATION, "participant": name, "plan_digest": PLAN_DIGEST}
    facts |= {"approval": APPROVALS[name], "signing_key": KEYS[name], **other}
    return Signatory(**facts)  # type: ignore[arg-type]
