"""Follows the run that a site takes part in: holds its copy, and brings the features to the scaling of that copy.

Used in the worker's thread alone. A whole run is followed from the plan's own beginning and kept on the disk. A
run that evaluates a saved model begins with that model, which this site has itself or has approved; nothing of it
is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fedfair.aggregation.requests import GlobalModel, SumRequest
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import SurveyError
from fedfair.ids import RoundNumber
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.run.kept_sum import KeptSum
from fedfair.run.progress import FinalStage, Progress
from fedfair.run.replica import OutOfStepError, RunReplica
from fedfair.run.state import RunState
from fedfair.statistics.table import Purpose
from fedfair.training.site_task import SiteTask
from fedfair.wire.frames import SumStart, Welcome
from fedfair.wire.receiving import ReceivedRequest

if TYPE_CHECKING:
    from collaborator.witnessing import SiteWitness
    from fedfair.news.event import News


class Recording(Protocol):
    """The recording of a run at this site: `run_recording.RunRecording`.

    It knows how the site's own records fare, and what makes messages must not: so this is all of it that is known
    here.
    """

    def progressed(self, replica: RunReplica, before: GlobalModel, progress: Progress, *, kept: bool) -> None:
        """Record the outcome of an opened sum."""

    def surveyed(self, survey: KeptSum) -> SurveyError | None:
        """Say what a survey shows of this site's own columns, once; return why it stops, if it does."""

    def ended(self, replica: RunReplica, words: str, *, finished: bool) -> None:
        """Record the end of the run."""

    def take_notices(self) -> list[News]:
        """Return what there is to say to the operator, once."""

    def close(self) -> None:
        """Close every file."""


OnDemand = Callable[[bytes], RunReplica]
"""From the digest of a saved model to a run that evaluates it and nothing else. Raises a FedfairError where this
site neither has that model nor has approved it."""


Opened = Callable[[Purpose, RunState, tuple[str, ...]], None]
"""Hears of an opened sum. Raises a FedfairError where it cannot be written down."""


@dataclass(frozen=True, slots=True)
class HeldRun:
    """The words of a site about its copy when it connects.

    Attributes:
        run_id: the run, as the aggregator named it; empty before the first.
        digest: of the copy's state, 32 bytes.
        rounds_done: training rounds that are behind it.
        is_over: whether it is the copy of a whole run, and has that to its end.
    """

    run_id: str
    digest: bytes
    rounds_done: RoundNumber
    is_over: bool = False


class RunFollower:
    """This site's copy of the run.

    Args:
        task: what computes.
        own: the copy of the whole run.
        on_demand: makes the copy of a run that evaluates a saved model.
        recording: records the outcome of each opened sum; it is the owner's to read and close.
        opened: hears of every opened sum: why it was made, about which state, and who took part.
        witness: signs where the copy of the whole run stands; None where nobody asks for it.

    Attributes:
        replica: the copy of the run that this site takes part in now.
    """

    def __init__(
        self,
        task: SiteTask,
        own: RunReplica,
        on_demand: OnDemand,
        recording: Recording,
        opened: Opened,
        witness: SiteWitness | None = None,
    ) -> None:
        self._witness = witness
        self._task = task
        self._own = own
        self._on_demand = on_demand
        self.recording = recording
        self._opened = opened
        self.replica = own
        self._saved = b""  # which saved model the copy is of; empty for that of the whole run

    @property
    def held(self) -> HeldRun:
        """Return what to say of it."""
        replica = self.replica
        is_over = replica is self._own and replica.state.stage is FinalStage.FINISHED
        return HeldRun(replica.run_id, replica.digest, replica.state.rounds_done, is_over)

    @property
    def unsent(self) -> deque[bytes]:
        """Return the signed checkpoints that the aggregator does not have yet, the oldest first."""
        if self._witness is None or self.replica is not self._own:
            return deque()
        return self._witness.unsent_of(self.replica.state)

    @property
    def statement(self) -> bytes:
        """Return the newest signed statement of the whole run; empty for a saved model, or without one."""
        return self._witness.last if self._witness is not None and self.replica is self._own else b""

    def take_notices(self) -> list[News]:
        """Return what there is to say to the operator, once."""
        witnessed = [] if self._witness is None else self._witness.take_notices()
        return [*self.recording.take_notices(), *witnessed]

    def has_joined(self, welcome: Welcome) -> bool:
        """Return whether this site takes part in the announced run already, so that there is nothing to join."""
        replica = self.replica
        same_kind = welcome.evaluation_only == (replica is not self._own)
        return same_kind and (replica.run_id, self._saved) == (welcome.run_id, welcome.model)

    def join(self, welcome: Welcome) -> None:
        """Take part in the run that the aggregator announces.

        Raises:
            FedfairError: it evaluates a saved model that this site neither has nor has approved.
        """
        if self.has_joined(welcome):
            return
        self.replica = self._on_demand(welcome.model) if welcome.evaluation_only else self._own
        self._saved = welcome.model
        self.replica.join(welcome.run_id)

    def survey_stop(self) -> SurveyError | None:
        """Return why this site stops after the survey of its state; None where it continues, or has no survey.

        Raises:
            RemoteProtocolError: the survey does not have this site's part in it.
        """
        survey = self.replica.state.kept.get(Purpose.SURVEY.value)
        return None if survey is None else self.recording.surveyed(survey)

    def due(self, start: SumStart) -> SumRequest:
        """Return the sum that is asked for, from this site's own state, and prepare the records for it.

        Raises:
            SurveyError: the survey shows a fault in this site's own data, and its policy says to stop.
            OutOfStepError: the request is about another state, or names another sum than that state asks for.
        """
        request = self.replica.request(start.state)
        if (request.purpose, int(request.round)) != (start.purpose, start.round):
            raise OutOfStepError(
                f"asked for {start.purpose.value} of round {start.round}, this site's state asks for "
                f"{request.purpose.value} of round {request.round}",
                "compare the versions of fedfair on both sides",
            )
        stop = self.survey_stop()
        if stop is not None:
            raise stop
        scaling = self.replica.state.scaling
        if scaling is not None and scaling is not self._task.scaling:
            self._task.apply_scaling(scaling)
        references = self.replica.state.judging
        if references is not None:
            self._task.apply_references(references)
        return request

    def asked(
        self,
        question: ReceivedRequest,
        request: SumRequest,
        openers: tuple[int, ...] = (),
        cohort: tuple[str, ...] = (),
    ) -> AggregationRequest:
        """Return the request as the rules of this site see it."""
        replica = self.replica
        return AggregationRequest(
            run=question.run_id,
            on_demand=question.on_demand,
            purpose=request.purpose,
            round=int(request.round),
            query=request.query,
            state=replica.digest,
            model_sha256=replica.state.model.vector_sha256,
            openers=openers,
            scaling_sha256=scaling_digest(replica.state.scaling),
            cohort=cohort,
            part=request.part,
        )

    def apply(self, totals: Totals, members: tuple[str, ...]) -> Purpose:
        """Apply an opened sum; return why it was summed.

        Raises:
            RemoteProtocolError: it cannot come from honest contributions; the state is what it was.
        """
        before = self.replica.state
        progress = self.replica.apply(totals, members)
        self._opened(progress.purpose, before, members)
        is_own = self.replica is self._own
        self.recording.progressed(self.replica, before.model, progress, kept=is_own)
        if is_own and self._witness is not None:
            self._witness.applied(self.replica, progress)
        return progress.purpose

    def finish(self, words: str) -> None:
        """Record the end of the run that the aggregator has announced.

        Args:
            words: how it ended.
        """
        if self.replica is self._own:
            finished = self.replica.finish()
            self.recording.ended(self.replica, words, finished=finished)
            if self._witness is not None:
                self._witness.ended(self.replica)
