"""Checks what the aggregator says on one stream, frame by frame.

The aggregator is not trusted to keep the order of the protocol: this side compares lengths with its own layout
before it allocates, a sum with the model that it is about, and sum and round numbers with those before. What is
left when a frame has passed is something that the driver can act on. No socket, no clock, no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.aggregation.sum_kinds import sum_kind
from fedfair.errors import RemoteProtocolError
from fedfair.ids import SumNumber
from fedfair.policy.aggregation_request import AggregationRequest
from fedfair.secagg.checks import SecaggError
from fedfair.secagg.messages import Kind, kind_of
from fedfair.wire.chunking import Assembler, agreed_vector_length, expect_broadcast
from fedfair.wire.frames import (
    Accepted,
    AggregatorFrame,
    BroadcastKind,
    BroadcastStart,
    Chunk,
    Finished,
    Refused,
    SecaggMessage,
    SumStart,
    Welcome,
)

"""What may be asked for where a saved model is evaluated and nothing else."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes of every broadcast, fixed by the plan and the model.

    Attributes:
        dimension: values in the model vector.
        dtype: float32 or float64, its width.
        numeric: numeric columns that are scaled; 0 where the plan does not standardise.
        rounds: training rounds of the plan.
        opened_lengths: bytes that the body of an opened sum may have; none where sums are plain.
    """

    dimension: int
    dtype: np.dtype[np.floating]
    numeric: int
    rounds: int
    opened_lengths: frozenset[int] = frozenset()

    def nbytes(self, kind: BroadcastKind) -> int:
        """Return the length of a broadcast of this kind."""
        if kind is BroadcastKind.MODEL:
            return self.dimension * self.dtype.itemsize
        return 2 * self.numeric * np.dtype(np.float64).itemsize


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One sum that this site is asked for, with the model that it is about.

    Attributes:
        start: the request as it came; equal requests have equal answers.
        model: the global model; a vector of no length where the sum is about no model.
        run_id: the run, as the aggregator names it.
        on_demand: whether that run evaluates a saved model and nothing else.
        scaling: of the features, in force when the answer is computed, as the worker notes; None for none.
        openers: roster indices of those who can open the sum together and only together; empty where sums are
            plain, and where a part of the cohort is enough.
    """

    start: SumStart
    model: GlobalModel
    run_id: str = ""
    on_demand: bool = False
    scaling: FeatureScaling | None = None
    openers: tuple[int, ...] = ()

    @property
    def request(self) -> AggregationRequest:
        """Return what of it the rules of the site look at."""
        start = self.start
        return AggregationRequest(
            run=self.run_id,
            on_demand=self.on_demand,
            purpose=start.purpose,
            round=start.round,
            attempt=start.attempt,
            query=start.query,
            model_sha256=start.model_sha256,
            threshold=self.model.threshold,
            scaling=self.scaling,
            openers=self.openers,
        )


@dataclass(frozen=True, slots=True)
class ReceivedSum:
    """One opened sum as the aggregator tells it; nothing of it is checked but the length of its body.

    Attributes:
        message: of secure aggregation.
        vector: the words of its body; empty where it has none.
    """

    message: bytes
    vector: bytes | memoryview = b""


Said = Welcome | FeatureScaling | ReceivedRequest | SecaggMessage | ReceivedSum | Accepted | Finished | Refused


class RunScalings:
    """The feature scaling of every run that this process has heard of; it outlives the streams.

    A site cannot know whether a scaling is right: one that comes late, or returns, has perhaps never added to the
    sums behind it. What makes all sites of a sum use one scaling is its digest in the transcript. The checks here
    give two more things, as long as the process lives: a run has one scaling, and nothing is standardised after
    it, so an aggregator cannot vary the scaling of one model, nor ask for column sums that no scaling needs.
    """

    def __init__(self) -> None:
        self._digests: dict[str, bytes] = {}

    def check_standardisation(self, run_id: str) -> None:
        """Refuse a standardisation of a run that has its scaling.

        Raises:
            RemoteProtocolError: this run has one.
        """
        if run_id in self._digests:
            raise RemoteProtocolError(
                "a standardisation sum was asked for after the feature scaling of this run had been sent",
                "if the aggregator resumed from an older state, restart this site",
            )

    def take(self, run_id: str, sha256: bytes) -> None:
        """Note the scaling of a run, or that it was sent again.

        Raises:
            RemoteProtocolError: this run has another one.
        """
        known = self._digests.setdefault(run_id, sha256)
        if known != sha256:
            raise RemoteProtocolError(
                f"a second feature scaling was sent in one run: {sha256.hex()[:16]} after {known.hex()[:16]}",
                "if the aggregator resumed from an older state, restart this site",
            )


class Receiver:
    """The receiving half of one stream.

    Args:
        shapes: what this site expects.
        last_sum: the newest sum that an earlier stream asked for; 0 if there was none.
        scalings: of the runs that earlier streams were about.
    """

    def __init__(self, shapes: Shapes, last_sum: SumNumber, scalings: RunScalings) -> None:
        self._shapes = shapes
        self._last_sum = last_sum
        self._last_round = 0
        self._asked_here = False
        self._welcomed = False
        self._evaluation_only = False
        self._run_id = ""
        self._scalings = scalings
        self._arriving: tuple[BroadcastStart | SecaggMessage, Assembler] | None = None
        self._model = GlobalModel(np.zeros(0, shapes.dtype), 0.0)
        self._model_sha256 = b""

    def take(self, frame: AggregatorFrame) -> Said | None:  # noqa: C901, PLR0911 - one case per frame
        """Take one frame; return what it means, or None where more must come first.

        Raises:
            RemoteProtocolError: the frame is out of order or contradicts the plan.
        """
        if isinstance(frame, Refused | Finished):
            return frame
        if self._arriving is not None:
            return self._append(frame, *self._arriving)
        if isinstance(frame, Welcome) == self._welcomed:
            raise RemoteProtocolError(f"{type(frame).__name__} came at the wrong end of the greeting")
        match frame:
            case Welcome():
                return self._greet(frame)
            case BroadcastStart():
                if frame.kind is BroadcastKind.FEATURE_SCALING and not self._shapes.numeric:
                    raise RemoteProtocolError(
                        "a feature scaling was sent, and the plan that this site approved has no use for one",
                        "compare the plan digests on both sides",
                    )
                self._arriving = (frame, expect_broadcast(frame, self._shapes.nbytes(frame.kind)))
                return None
            case SumStart():
                return self._question(frame)
            case Accepted(sum_number):
                if sum_number > self._last_sum:
                    raise RemoteProtocolError(f"sum {sum_number} was accepted before it was asked for")
                return frame
            case SecaggMessage():
                return self._message(frame)
            case Chunk():
                raise RemoteProtocolError("a chunk arrived that belongs to no broadcast")

    def _message(self, said: SecaggMessage) -> SecaggMessage | ReceivedSum | None:
        if _is_opened_sum(said):
            # Whoever returns is told the last sum again, before it is asked for anything on the new stream.
            assembler = Assembler(agreed_vector_length(said, self._shapes.opened_lengths), None)
            if assembler.complete:
                return ReceivedSum(said.message)
            self._arriving = (said, assembler)
            return None
        if said.vector_length or not self._asked_here:
            raise RemoteProtocolError("a message of secure aggregation came with a vector, or before its sum")
        return said

    def _greet(self, welcome: Welcome) -> Welcome:
        if welcome.rounds_total != self._shapes.rounds:
            raise RemoteProtocolError(
                f"the aggregator announces {welcome.rounds_total} rounds, the plan has {self._shapes.rounds}"
            )
        self._welcomed, self._evaluation_only = True, welcome.evaluation_only
        self._run_id = welcome.run_id
        return welcome

    def _append(
        self, frame: AggregatorFrame, start: BroadcastStart | SecaggMessage, assembler: Assembler
    ) -> Said | None:
        if not isinstance(frame, Chunk):
            what = start.kind.value if isinstance(start, BroadcastStart) else "sum"
            raise RemoteProtocolError(f"{type(frame).__name__} interrupts the chunks of a {what}")
        assembler.add(frame)
        if not assembler.complete:
            return None
        self._arriving = None
        payload = assembler.take()
        if isinstance(start, SecaggMessage):
            return ReceivedSum(start.message, payload)
        if start.kind is BroadcastKind.MODEL:
            vector = np.frombuffer(payload, self._shapes.dtype.newbyteorder("<"))
            _check_finite(vector, start.kind)
            self._model = GlobalModel(vector.astype(self._shapes.dtype, copy=False), start.threshold)
            self._model_sha256 = start.sha256
            return None
        values = np.frombuffer(payload, "<f8").astype(np.float64, copy=False)
        _check_finite(values, start.kind)
        mean, scale = values[: self._shapes.numeric], values[self._shapes.numeric :]
        if not (scale > 0).all():
            raise RemoteProtocolError("the feature scaling holds a scale that is not positive")
        self._scalings.take(self._run_id, start.sha256)
        return FeatureScaling(mean, scale)

    def _question(self, start: SumStart) -> ReceivedRequest:
        # The first request of a stream may repeat the last one of the stream before it, after an interruption.
        grows = start.sum_number > self._last_sum or (start.sum_number == self._last_sum and not self._asked_here)
        if not grows:
            raise RemoteProtocolError(f"sum {start.sum_number} follows sum {self._last_sum}")
        if self._evaluation_only and not sum_kind(start.purpose).is_evaluation:
            raise RemoteProtocolError(
                f"a {start.purpose.value} sum was asked for in a run that was announced as an evaluation only"
            )
        if not self._last_round <= start.round <= self._shapes.rounds:
            raise RemoteProtocolError(
                f"{start.purpose.value} sum of round {start.round} follows round {self._last_round} "
                f"of {self._shapes.rounds}"
            )
        if not sum_kind(start.purpose).is_about_model:
            self._scalings.check_standardisation(self._run_id)
        elif start.model_sha256 != self._model_sha256:
            raise RemoteProtocolError(
                f"sum {start.sum_number} is about model {start.model_sha256.hex()}, "
                f"the last one that arrived is {self._model_sha256.hex() or 'none'}"
            )
        self._last_sum, self._last_round, self._asked_here = start.sum_number, start.round, True
        return ReceivedRequest(start, self._model, self._run_id, self._evaluation_only)


def _is_opened_sum(frame: SecaggMessage) -> bool:
    try:
        return kind_of(frame.message) is Kind.OPENED
    except SecaggError:
        return False  # It goes on to the worker, which refuses what is no message.


def _check_finite(values: NDArray[np.floating], kind: BroadcastKind) -> None:
    if not np.isfinite(values).all():
        raise RemoteProtocolError(f"the {kind.value} holds a NaN or an infinity")
