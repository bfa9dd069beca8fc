"""What a program reads that started an aggregator: whole lines, and never the reason that a run stands still."""

import json
import os
from dataclasses import replace

import pytest

from fedfair.ids import ParticipantId, RoundNumber
from fedfair.news.figures import Attendance
from fedfair.news.progress_pipe import ProgressPipe
from fedfair.news.run import StreamEnded
from fedfair.news.sums import SumApplied
from fedfair.run.training_run import Progress
from fedfair.statistics.table import Purpose

PROGRESS = Progress(Purpose.TRAINING, RoundNumber(1), 0.5, 3, None, is_best=False, model_changed=True)


def told_after(*rounds: int) -> tuple[ProgressPipe, int]:
    reading, writing = os.pipe()
    lines = ProgressPipe(writing, 0.1)
    for number in rounds:
        lines(SumApplied(replace(PROGRESS, round=RoundNumber(number)), 20_000))
    return lines, reading


def read(reading: int) -> bytes:
    with os.fdopen(reading, "rb") as source:
        return source.read()


def test_each_sum_is_a_line_and_the_end_of_the_run_is_the_end_of_the_pipe() -> None:
    lines, reading = told_after(1, 2)
    lines(StreamEnded(ParticipantId("clinic-a")))
    lines(Attendance((), ()))
    lines.close()
    found = [json.loads(line) for line in read(reading).splitlines()]
    assert found == [{"round": 1, "purpose": "training"}, {"round": 2, "purpose": "training"}]


def test_a_reader_that_does_not_read_stops_nothing_and_misses_whole_lines() -> None:
    lines, reading = told_after(*range(1, 20_000))
    lines.close()
    text = read(reading)
    assert text.endswith(b"\n")
    rounds = [json.loads(line)["round"] for line in text.splitlines()]
    assert rounds == list(range(1, len(rounds) + 1))
    assert len(rounds) < 19_999


def test_a_reader_that_is_gone_stops_nothing() -> None:
    lines, reading = told_after(1)
    os.close(reading)
    lines(SumApplied(PROGRESS, 20_000))
    lines.close()


def test_a_pipe_that_is_not_open_is_refused() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    with pytest.raises(OSError, match="Bad file descriptor"):
        ProgressPipe(writing, 0.1)
