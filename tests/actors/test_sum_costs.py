"""What the sums of a run cost and who left it, also after its process ended and its logs are gone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aggregator.journal import Journal
from aggregator.records import SMALL_MODEL_BYTES, RunPaths, RunRecords, SumFigures
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.sum_kinds import sum_specs
from fedfair.ids import ParticipantId, RoundNumber, SumNumber
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.results.costs import SumCost
from fedfair.results.document import to_json
from fedfair.results.outcome import AggregatorFacts, EndState, RunSubject, run_outcome
from fedfair.results.parts import Departure, LateSite
from fedfair.rounds.events import CaughtUp, Departed, LeftBehind
from fedfair.run.saved_model import ModelOrigin
from fedfair.run.training_run import Progress, TrainingRun
from fedfair.statistics.table import Purpose

PLAN = Plan.model_validate(
    {
        "federation": {"name": "heart", "collaborators": ["clinic-a", "clinic-b"]},
        "task": {"data": "breast-cancer", "model": {"name": "linear"}, "standardize": "none"},
        "training": {"rounds": 9},
    }
)
LAYOUT = Layout((LayoutEntry("weight", (1, 2)),), np.dtype(np.float32))
SCHEMA = FeatureSchema((2,), 2, (0, 1), ("radius", "texture"))
SPEC = sum_specs(PLAN, LAYOUT, SCHEMA)[Purpose.TRAINING]
COURSE = TrainingRun(PLAN, LAYOUT, SCHEMA, np.zeros(2, np.float32))
ORIGIN = ModelOrigin.of_plan(PLAN, "sha256:" + "0" * 64, SCHEMA)


def records(folder: Path, columns: int = 2, *, every_sum: bool = False) -> RunRecords:
    paths = RunPaths(folder)
    for parent in (paths.save, paths.metrics.parent):
        parent.mkdir(exist_ok=True)
    layout = Layout((LayoutEntry("weight", (1, columns)),), np.dtype(np.float32))
    return RunRecords(
        paths,
        layout,
        Journal.open(paths.journal, bytes(32), "run", 1_800_000_000.0),
        ORIGIN,
        0.1,
        every_sum=every_sum,
    )


@pytest.mark.parametrize(
    ("columns", "every_sum", "due"),
    [(2, False, True), (SMALL_MODEL_BYTES, False, False), (SMALL_MODEL_BYTES, True, True)],
)
def test_a_large_model_waits_for_the_journal_unless_a_repeated_sum_would_cost_privacy(
    tmp_path: Path, columns: int, every_sum: bool, due: bool
) -> None:
    progress = Progress(Purpose.TRAINING, RoundNumber(1), 0.5, 3, None, is_best=False, model_changed=True)
    kept = records(tmp_path, columns, every_sum=every_sum)
    assert kept.is_entry_due(progress) is due
    kept.close()


def closed(kept: RunRecords, number: int) -> SumCost:
    """Let a training sum close; return what it cost."""
    progress = Progress(Purpose.TRAINING, RoundNumber(number), 0.5, 3, None, is_best=False, model_changed=True)
    figures = SumFigures(started=10.0, bytes_in=300 * number, bytes_out=600)
    kept.count_sum(progress, figures, 10.25)
    kept.append_line(progress, figures, 10.25)
    return SumCost(Purpose.TRAINING, number, 0.25, contributors=3, bytes_up=300 * number, bytes_down=600)


def enter(kept: RunRecords) -> None:
    kept.write(COURSE, (), journal=True)


def test_the_cost_of_a_sum_outlives_the_process_with_its_total_and_whatever_becomes_of_the_logs(
    tmp_path: Path,
) -> None:
    kept = records(tmp_path)
    first, second = closed(kept, 1), closed(kept, 2)
    enter(kept)
    forgotten = closed(kept, 3)
    assert kept.costs() == [first, second, forgotten]
    kept.close()
    for log in RunPaths(tmp_path).metrics.parent.iterdir():
        log.unlink()
    again = records(tmp_path)
    # The third sum is forgotten with its total; it is repeated, and counts once.
    assert again.costs() == [first, second]
    third = closed(again, 3)
    enter(again)
    enter(again)
    assert again.costs() == [first, second, third]
    again.close()


def test_who_left_outlives_the_process_at_once_and_without_the_logs(tmp_path: Path) -> None:
    kept = records(tmp_path)
    for name in ("clinic-a", "clinic-b"):
        kept.append_departure(Departed(ParticipantId(name), 3, "budget"))
    told = kept.departures()
    assert told[0] == Departure(collaborator="clinic-a", round=3, reason="budget")
    kept.close()
    for log in RunPaths(tmp_path).metrics.parent.iterdir():
        log.unlink()
    again = records(tmp_path)
    assert again.departures() == told
    assert again.informed() == {"clinic-a", "clinic-b"}
    again.close()


def test_who_was_late_is_in_the_result_with_how_often_and_the_longest_time_over_all_starts(tmp_path: Path) -> None:
    slow = ParticipantId("clinic-b")
    kept = records(tmp_path)
    kept.note_late(LeftBehind(slow, SumNumber(4), SumRequest(Purpose.TRAINING, RoundNumber(2), 1, SPEC), 2.0, 0.5))
    kept.close()
    again = records(tmp_path)
    again.note_late(CaughtUp(slow, 7.25, 0.5))
    late = again.late_sites()
    assert late == (LateSite(collaborator="clinic-b", times=1, longest_seconds=7.25),)
    again.close()
    subject = RunSubject(PLAN, "sha256:" + "0" * 64, LAYOUT, SCHEMA)
    told = [
        to_json(run_outcome(subject, COURSE.result(), EndState.STOPPED, "it was stopped", known))
        for known in (AggregatorFacts(2.0, (), (), late), AggregatorFacts(2.0, (), ()))
    ]
    assert told[0]["late"] == [{"collaborator": "clinic-b", "times": 1, "longest_seconds": 7.25}]
    assert "late" not in told[1]
