"""A site's own copy of a run: nobody's word moves it, only opened sums do.

It begins in the approved plan. A request is right where it is about this very state; evaluations that the run
can do without may have been left out, which the digest of the request tells. A site that is not in step takes the
state of somebody else only where it has held that state itself, or where enough members have signed its digest
(`secagg.session`). No torch, no file: a `StateKeeper` remembers states between two starts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.aggregation.running_sum import Totals
from fedfair.errors import FedfairError, RemoteProtocolError
from fedfair.run.packed_state import unpack_state
from fedfair.run.progress import FinalStage, Progress
from fedfair.run.rules import RunRules
from fedfair.run.state import RunState
from fedfair.run.training_run import TrainingRun

LEFT_OUT = "the evaluation was left out by the aggregator"
"""The words of a site's own records about an evaluation that others could not have."""


class OutOfStepError(RemoteProtocolError):
    """A request, a sum or a snapshot is about another state of the run than this site's."""


class StateKeeper(Protocol):
    """The memory that a site has of a run between two starts."""

    def keep(self, run_id: str, state: RunState) -> None:
        """Remember this as the present state."""

    def settle(self) -> None:
        """Wait until what was to be remembered is on the disk."""

    def has_held(self, digest: bytes) -> bool:
        """Return whether this site has answered a request about a state with this digest."""


class Unkept:
    """Remembers nothing: a run that evaluates a saved model begins with that model in every process."""

    def keep(self, run_id: str, state: RunState) -> None:
        """Do nothing."""

    def settle(self) -> None:
        """Do nothing."""

    def has_held(self, digest: bytes) -> bool:  # noqa: ARG002 - as the protocol has it
        """Return False."""
        return False


class RunReplica:
    """One site's copy of one run.

    Args:
        training_run: the run at its beginning, which the plan gives; nobody else moves it.
        plan_digest: of the plan, 32 bytes.
        keeper: remembers states.

    Attributes:
        run_id: the run, as the aggregator names it; empty before the first greeting.
    """

    def __init__(self, training_run: TrainingRun, plan_digest: bytes, keeper: StateKeeper) -> None:
        self.training_run = training_run
        self._plan_digest, self._keeper = plan_digest, keeper
        self.run_id = ""
        self._digest = training_run.state.digest(plan_digest)
        self._initial_digest = training_run.initial.digest(plan_digest)
        self._offered: RunState | None = None

    @property
    def state(self) -> RunState:
        """Return the present state."""
        return self.training_run.state

    @property
    def rules(self) -> RunRules:
        """Return what moves the state."""
        return self.training_run.rules

    @property
    def digest(self) -> bytes:
        """Return the 32 bytes that stand for the present state."""
        return self._digest

    def restore(self, run_id: str, state: RunState) -> None:
        """Continue where an earlier process of this site was."""
        self.run_id = run_id
        self._hold(state)

    def join(self, run_id: str) -> None:
        """Take part in a run: another one than before begins where the plan says."""
        if run_id != self.run_id:
            self.run_id, self._offered = run_id, None
            self._move(self.training_run.initial)

    def request(self, digest: bytes) -> SumRequest:
        """Return the sum that is asked for about a state.

        Args:
            digest: of the state that the request is about, 32 bytes.

        Raises:
            OutOfStepError: it is not this site's state, nor what that becomes without evaluations.
        """
        state = self._reached(digest)
        request = None if state is None else self.rules.next_request(state)
        if state is None or request is None:
            raise OutOfStepError(
                f"a request about state {digest.hex()[:16]} of the run, this site holds {self._digest.hex()[:16]}",
                "the aggregator must send what this site has missed, and enough of the others must vouch for it; "
                "where they are too few for that, begin a new run with --fresh",
            )
        if state is not self.state:
            self._move(state)
        return request

    def apply(self, totals: Totals, members: Collection[str]) -> Progress:
        """Apply an opened sum.

        Raises:
            RemoteProtocolError: it cannot come from honest contributions; the state is what it was.
        """
        stepped = self.rules.step(self.state, totals, members)
        self._move(stepped.state)
        return stepped.progress

    def offer(self, raw: bytes | bytearray | memoryview) -> None:
        """Look at a state that somebody else has sent; take it at once where this site has held it itself.

        Otherwise it is taken by `take_vouched`, or never.

        Raises:
            OutOfStepError: it cannot be read, is no state of this plan, or has another model than the one that
                is evaluated on demand.
        """
        try:
            offered = unpack_state(raw, self.training_run.initial)
        except FedfairError as fault:
            raise OutOfStepError(fault.message, fault.remedy) from fault
        if self.training_run.evaluation_only and _evaluated(offered) != _evaluated(self.training_run.initial):
            raise OutOfStepError(
                "a state with another model than the one whose evaluation was announced",
                "the aggregator may evaluate only models that this site has itself or has approved",
            )
        if not self.rules.may_be(offered):
            raise OutOfStepError(
                f"a state at {offered.stage.value} after {offered.rounds_done} rounds was sent, which no run of "
                "this plan reaches",
                "compare the plan digests and the versions of fedfair on both sides",
            )
        digest = offered.digest(self._plan_digest)
        if digest == self._digest:
            return
        if digest == self._initial_digest or self._keeper.has_held(digest):
            self._offered = None
            self._move(offered)
            return
        self._offered = offered

    def take_vouched(self, digest: bytes) -> None:
        """Take a state that enough members have signed.

        Raises:
            OutOfStepError: this site neither holds it nor was sent it.
        """
        offered, self._offered = self._offered, None
        if digest == self._digest:
            return
        reached = self._reached(digest)
        if reached is None and offered is not None and offered.digest(self._plan_digest) == digest:
            reached = offered
        if reached is None:
            raise OutOfStepError(
                f"the other sites hold state {digest.hex()[:16]} of the run, this site holds "
                f"{self._digest.hex()[:16]} and was sent no copy of theirs",
                "let the aggregator send the present state; where this site is ahead, the aggregator was put back",
            )
        self._move(reached)

    def finish(self) -> bool:
        """Return whether this site has seen the run to its end, but for last sums that may be left out.

        The state that it ends in is on the disk when this returns.
        """
        ended = next((state for state in self._reachable() if state.stage is FinalStage.FINISHED), self.state)
        if ended is not self.state:
            self._move(ended)
        self._keeper.settle()
        return self.state.stage is FinalStage.FINISHED

    def trust(self) -> None:
        """Take the state that was sent on the aggregator's word, as a plan with plain sums does."""
        offered, self._offered = self._offered, None
        if offered is not None:
            self._move(offered)

    def _reached(self, digest: bytes) -> RunState | None:
        """Return the state with this digest, if no sum is needed to reach it."""
        if digest == self._digest:
            return self.state
        without = (state for state in self._reachable() if state is not self.state)
        return next((state for state in without if state.digest(self._plan_digest) == digest), None)

    def _reachable(self) -> Iterator[RunState]:
        """Yield the present state, then what becomes of it without one evaluation after the other that is due."""
        state = self.state
        yield state
        while self.rules.may_skip(state):
            state = self.rules.skip(state, LEFT_OUT)
            yield state

    def _move(self, state: RunState) -> None:
        self._hold(state)
        self._keeper.keep(self.run_id, self.state)

    def _hold(self, state: RunState) -> None:
        state = self.rules.housed(state)
        self.training_run.state, self._digest = state, state.digest(self._plan_digest)


def _evaluated(state: RunState) -> tuple[bytes, float, bytes]:
    """Return what the figures of a saved model depend on."""
    return state.model.vector_sha256, state.model.threshold, scaling_digest(state.scaling)
