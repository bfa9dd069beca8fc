"""The parts of a run that gathering people and summing share, and the two ways in which a run ends.

Decides nothing of either: `gathering` waits for people, `summing` leads one sum after the other, and `federation`
takes the events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedfair.ids import SumNumber
from fedfair.rounds.events import Abort, Checkpoint, CheckpointKind, Effect, Finish
from fedfair.rounds.phases import Phase

if TYPE_CHECKING:
    from fedfair.plan.sections import FederationSection
    from fedfair.rounds.cohort_selection import CohortSelection
    from fedfair.rounds.deadlines import Deadlines
    from fedfair.rounds.exit_reasons import ExitReason
    from fedfair.rounds.liars import Liars
    from fedfair.rounds.lost_sums import LostSums
    from fedfair.rounds.membership import Membership
    from fedfair.rounds.secagg_session import SecaggSession
    from fedfair.rounds.slowness.late_members import LateMembers
    from fedfair.rounds.state_steps import StateSteps
    from fedfair.rounds.sum_round import SumRound
    from fedfair.run.training_run import TrainingRun


@dataclass(slots=True)
class RunUnderWay:
    """One run, wherever it stands.

    Attributes:
        patience: the deadlines of the plan.
        rounds_total: how many training rounds the plan has.
        training_run: what is summed, and what a total does.
        steps: the states that sites must be brought to.
        members: who is connected.
        deadlines: that are running.
        late: who is not waited for.
        liars: who is proven to lie.
        next: who is asked next.
        lost: what follows a lost sum.
        protection: masks every sum; None where sums are plain.
        sum_number: the number of the sum that is open, or of the last one.
        sum: the sum that is open; None for none.
        phase: where the run stands.
        trains: whether there is a model to be saved; without one the run ends with statistics of columns.
    """

    patience: FederationSection
    rounds_total: int
    training_run: TrainingRun
    steps: StateSteps
    members: Membership
    deadlines: Deadlines
    late: LateMembers
    liars: Liars
    next: CohortSelection
    lost: LostSums
    protection: SecaggSession | None
    sum_number: SumNumber
    sum: SumRound | None = None
    phase: Phase = Phase.NEW
    trains: bool = True

    def finish(self) -> Iterator[Effect]:
        """End a run that is done."""
        self.phase = Phase.FINISHED
        if self.trains:
            yield Checkpoint(CheckpointKind.LAST)
        if self.trains and not self.training_run.evaluation_only:
            yield Checkpoint(CheckpointKind.TRAINED)
        for participant in self.members.connected:
            yield from self.steps.to_the_end(participant, self.members.held(participant))
        words = f"all {self.rounds_total} rounds are done" if self.trains else "the statistics are summed"
        yield Finish(self.training_run.rounds_done, words)

    def abort(self, reason: str, remedy: str, why: ExitReason) -> Iterator[Effect]:
        """End a run that cannot continue."""
        # An open sum is dropped with whatever is in it: the model only ever changes by a whole total.
        self.sum, self.phase = None, Phase.ABORTED
        yield from self.deadlines.cancel_all()
        yield Checkpoint(CheckpointKind.LAST)
        yield Abort(reason, remedy, why)
