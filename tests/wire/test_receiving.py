from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
import pytest

from fedfair.errors import RemoteProtocolError
from fedfair.ids import SumNumber
from fedfair.plan.purpose import Purpose
from fedfair.wire.chunking import broadcast_frames
from fedfair.wire.frames import (
    Accepted,
    AggregatorFrame,
    BroadcastKind,
    BroadcastStart,
    Chunk,
    Finished,
    Refused,
    SumStart,
    Welcome,
)
from fedfair.wire.receiving import Receiver, RunScalings, Shapes

SHAPES = Shapes(dimension=3, dtype=np.dtype(np.float64), numeric=2, rounds=20)
WELCOME = Welcome("0" * 32, 4, 20)


def model_frames(
    values: Sequence[float] = (1.0, 2.0, 3.0), kind: BroadcastKind = BroadcastKind.MODEL, threshold: float = 0.5
) -> list[BroadcastStart | Chunk]:
    payload = np.array(values, "<f8").tobytes()
    return list(broadcast_frames(kind, payload, hashlib.sha256(payload).digest(), threshold))


def model_digest(values: Sequence[float] = (1.0, 2.0, 3.0)) -> bytes:
    return hashlib.sha256(np.array(values, "<f8").tobytes()).digest()


def question(
    number: int = 1, round_number: int = 5, purpose: Purpose = Purpose.TRAINING, digest: bytes | None = None
) -> SumStart:
    return SumStart(SumNumber(number), purpose, round_number, 1, model_digest() if digest is None else digest, 60)


def fed(
    *frames: AggregatorFrame, last_sum: int = 0, shapes: Shapes = SHAPES, scalings: RunScalings | None = None
) -> Receiver:
    receiver = Receiver(shapes, SumNumber(last_sum), scalings or RunScalings())
    for frame in frames:
        receiver.take(frame)
    return receiver


def test_a_model_and_a_sum_become_a_question_about_that_model() -> None:
    asked = fed(WELCOME, *model_frames()).take(question())
    assert asked.start == question()
    assert asked.model.threshold == 0.5
    assert np.array_equal(asked.model.vector, [1.0, 2.0, 3.0])


def test_a_feature_scaling_is_split_into_means_and_scales() -> None:
    frames = model_frames((1.0, -1.0, 2.0, 3.0), BroadcastKind.FEATURE_SCALING, 0.0)
    receiver = fed(WELCOME, *frames[:-1])
    scaling = receiver.take(frames[-1])
    assert np.array_equal(scaling.mean, [1.0, -1.0])
    assert np.array_equal(scaling.scale, [2.0, 3.0])


def test_the_same_model_serves_several_sums_and_numbers_may_skip() -> None:
    receiver = fed(WELCOME, *model_frames(), question(1, 5))
    assert receiver.take(question(7, 5, Purpose.EVALUATION)).start.sum_number == 7


def test_after_an_interruption_the_last_question_may_come_again_once() -> None:
    receiver = fed(WELCOME, *model_frames(), last_sum=3)
    assert receiver.take(question(3)).start.sum_number == 3
    with pytest.raises(RemoteProtocolError, match="sum 3 follows sum 3"):
        receiver.take(question(3))


def test_the_last_words_pass_even_in_the_middle_of_a_broadcast() -> None:
    for words in (Refused("no", "", try_again=False), Finished(4, "done")):
        assert fed(WELCOME, model_frames()[0]).take(words) == words


@pytest.mark.parametrize(
    ("frames", "complaint"),
    [
        ((model_frames()[0],), "wrong end of the greeting"),
        ((WELCOME, WELCOME), "wrong end of the greeting"),
        ((Welcome("0" * 32, 0, 21),), "21 rounds"),
        ((WELCOME, BroadcastStart(BroadcastKind.MODEL, 1 << 35, bytes(32), 0.0)), "the plan makes it 24"),
        ((WELCOME, Chunk(b"x")), "belongs to no broadcast"),
        ((WELCOME, model_frames()[0], question()), "interrupts"),
        ((WELCOME, model_frames()[0], Chunk(bytes(25))), "25 bytes arrived"),
        ((WELCOME, model_frames()[0], Chunk(bytes(24))), "SHA-256"),
        ((WELCOME, *model_frames((1.0, np.nan, 1.0))), "NaN"),
        ((WELCOME, *model_frames((1.0, 1.0, 1.0, 0.0), BroadcastKind.FEATURE_SCALING, 0.0)), "not positive"),
        ((WELCOME, question()), "the last one that arrived is none"),
        ((WELCOME, *model_frames(), question(digest=bytes(32))), "is about model"),
        ((WELCOME, *model_frames(), question(2), question(1)), "sum 1 follows sum 2"),
        ((WELCOME, *model_frames(), question(1, 6), question(2, 5)), "follows round 6"),
        ((WELCOME, *model_frames(), question(1, 21)), "of 20"),
        ((WELCOME, Accepted(SumNumber(1))), "before it was asked"),
    ],
)
def test_an_aggregator_that_breaks_the_order_is_found_out(
    frames: tuple[AggregatorFrame, ...], complaint: str
) -> None:
    receiver = fed(*frames[:-1])
    with pytest.raises(RemoteProtocolError, match=complaint):
        receiver.take(frames[-1])


@pytest.mark.parametrize("purpose", [Purpose.TRAINING, Purpose.STANDARDISATION])
def test_a_run_that_was_announced_as_an_evaluation_may_ask_for_nothing_else(purpose: Purpose) -> None:
    receiver = fed(Welcome("0" * 32, 4, 20, evaluation_only=True), *model_frames())
    with pytest.raises(RemoteProtocolError, match="announced as an evaluation only"):
        receiver.take(question(purpose=purpose, digest=b"" if purpose is Purpose.STANDARDISATION else None))
    # Nothing has moved: what was announced is still answered, under the same number.
    assert receiver.take(question(purpose=Purpose.EVALUATION)).start.purpose is Purpose.EVALUATION


# ------------------------------------------------------------------ the scaling of the features

SCALING = model_frames((1.0, -1.0, 2.0, 3.0), BroadcastKind.FEATURE_SCALING, threshold=0.0)
OTHER_SCALING = model_frames((1.0, -1.0, 2.0, 1e300), BroadcastKind.FEATURE_SCALING, threshold=0.0)


def test_a_scaling_under_a_plan_that_has_no_use_for_one_is_refused_before_any_of_it_is_taken() -> None:
    unscaled = dataclasses.replace(SHAPES, numeric=0)
    receiver = fed(WELCOME, shapes=unscaled)
    with pytest.raises(RemoteProtocolError, match="the plan that this site approved has no use for one"):
        receiver.take(SCALING[0])


def test_a_second_scaling_in_one_run_is_refused_also_on_the_next_stream() -> None:
    scalings = RunScalings()
    fed(WELCOME, *SCALING, *SCALING, scalings=scalings)
    with pytest.raises(RemoteProtocolError, match="a second feature scaling was sent in one run"):
        fed(WELCOME, *OTHER_SCALING, scalings=scalings)
    # Another run has a scaling of its own.
    fed(dataclasses.replace(WELCOME, run_id="1" * 32), *OTHER_SCALING, scalings=scalings)


def test_nothing_is_standardised_in_a_run_whose_features_are_scaled_already() -> None:
    asked = question(purpose=Purpose.STANDARDISATION, digest=b"", round_number=0)
    fed(WELCOME, asked)
    with pytest.raises(RemoteProtocolError, match="after the feature scaling of this run had been sent"):
        fed(WELCOME, *SCALING, asked)


def test_a_site_that_comes_late_takes_the_scaling_of_the_others() -> None:
    assert fed(WELCOME, *SCALING, *model_frames()).take(question()) is not None
