"""A site's copy of a small run, for a worker whose task is made up: the plan has two parameters and no file.

A test puts the copy into any state of the run; what the site is asked then follows from that state alone.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from collaborator.run_follower import RunFollower
from collaborator.run_recording import RunRecording, SiteFiguresLog
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.requests import GlobalModel
from fedfair.aggregation.spec import SumSpec
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.errors import ApprovalError
from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import SumNumber
from fedfair.plan.digest import format_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.results.outcome import RunSubject
from fedfair.run.replica import RunReplica, StateKeeper, Unkept
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun
from fedfair.statistics.table import Purpose
from fedfair.training.client import TrainingClient
from fedfair.wire.frames import SumStart, TrustUpdate
from fedfair.wire.receiving import ReceivedRequest
from tests import plans

SCHEMA = FeatureSchema((2,), 2, (0, 1), ("age", "dose"))
PLAN_DIGEST = bytes(range(32))
ROUNDS = 9


def layout_of(parameters: int) -> Layout:
    """Return the layout of a model that is one vector."""
    return Layout((LayoutEntry("weight", (parameters,), trainable=True),), np.dtype("<f8"))


def plan_of(*, standardize: str = "none", masked: bool = False, method: str = "histogram") -> Plan:
    """Return a plan whose first sum is of columns, or an evaluation where none are summed."""
    protection = {"mode": "malicious", "most_records": 100} if masked else {"mode": "off"}
    return plans.parsed(
        task={"standardize": standardize},
        training={"rounds": ROUNDS, "threshold_init": 0.5, "precision": "fp64"},
        secure_aggregation=protection,
        evaluation={"bins": 8, "method": method},
    )


class NoRecords:
    """Has no records whose losses could be told."""

    def losses_of(self, model: GlobalModel) -> SiteLosses:
        del model
        return {}


@dataclass
class FollowedRun:
    """One site's copy of a run, and the requests that an honest aggregator makes about it.

    Attributes:
        folder: for what is recorded.
        task: what computes.
        plan: of the run.
        layout: of its model.
        state: where the run is; None for the state before round 1.
        keeper: remembers states.
    """

    folder: Path
    task: TrainingClient
    plan: Plan = field(default_factory=plan_of)
    layout: Layout = field(default_factory=lambda: layout_of(2))
    state: RunState | None = None
    plan_digest: bytes = PLAN_DIGEST
    keeper: StateKeeper = field(default_factory=Unkept)

    def __post_init__(self) -> None:
        run = run_before_round_1(self.plan, self.layout)
        if self.state is not None:
            run.state = run.initial = self.state
        self.replica = RunReplica(run, self.plan_digest, self.keeper)
        subject = RunSubject(self.plan, format_digest(self.plan_digest), self.layout, SCHEMA)
        self.folder.mkdir(parents=True, exist_ok=True)
        figures = SiteFiguresLog(self.folder, "clinic-a")
        recording = RunRecording(NoRecords(), subject, self.folder / "runs", figures)
        self.follower = RunFollower(self.task, self.replica, nothing_saved, recording, lambda *_: None)

    @property
    def specs(self) -> dict[Purpose, SumSpec]:
        """Return the shape of every sum of the plan."""
        return sum_specs(self.plan, self.layout, SCHEMA)

    def start(self, number: int, attempt: int = 1) -> SumStart:
        """Return the request for the sum that the state asks for."""
        return start_of(self.replica.training_run, number, attempt, self.plan_digest)

    def question(self, number: int, attempt: int = 1, run_id: str = "") -> ReceivedRequest:
        """Return that request as the driver hands it over."""
        return ReceivedRequest(self.start(number, attempt), run_id)

    def move(self, state: RunState) -> None:
        """Let the copy of the run be in another state."""
        self.replica.restore(self.replica.run_id, state)


def run_before_round_1(plan: Plan, layout: Layout) -> TrainingRun:
    """Return a run as if nothing were summed before the first round."""
    run = TrainingRun(plan, layout, SCHEMA, np.zeros(layout.dimension))
    run.state = run.initial = replace(run.initial, stage=Purpose.TRAINING)
    return run


def start_of(run: TrainingRun, number: int, attempt: int = 1, plan_digest: bytes = PLAN_DIGEST) -> SumStart:
    """Return the request for the sum that the state of a run asks for."""
    due, digest = run.next_sum(), run.state.digest(plan_digest)
    return SumStart(SumNumber(number), due.purpose, int(due.round), attempt, digest, 60)


def nothing_saved(digest: bytes) -> RunReplica:
    """Refuse to evaluate a saved model: this site has none."""
    raise ApprovalError(f"no model {digest.hex()[:16]}")


class NoCertificates:
    """For a driver whose streams rest on nothing that changes."""

    reconnection = ""

    def look(self) -> None:
        """Look at nothing."""

    def take(self, update: TrustUpdate) -> None:
        """Take nothing."""
