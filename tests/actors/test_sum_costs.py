"""What the aggregator's metrics say about a run, also after the machine failed while it wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aggregator.journal import Journal
from aggregator.records import SMALL_MODEL_BYTES, Paths, Records, SumFigures
from fedfair.ids import RoundNumber
from fedfair.learning.costs import SumCost
from fedfair.learning.layout import Layout, LayoutEntry
from fedfair.learning.server import Progress
from fedfair.plan.purpose import Purpose


def records(folder: Path, columns: int = 2, *, every_sum: bool = False) -> Records:
    paths = Paths(folder)
    for parent in (paths.save, paths.metrics.parent):
        parent.mkdir(exist_ok=True)
    layout = Layout((LayoutEntry("weight", (1, columns)),), np.dtype(np.float32))
    return Records(
        paths, layout, Journal.open(paths.journal, bytes(32), "run", 1_800_000_000.0), {}, 0.1, every_sum=every_sum
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


def test_each_line_of_metrics_is_a_cost_and_a_torn_one_is_none(tmp_path: Path) -> None:
    kept = records(tmp_path)
    progress = Progress(Purpose.TRAINING, RoundNumber(1), 0.5, 3, None, is_best=False, model_changed=True)
    figures = SumFigures(started=10.0, bytes_in=300, bytes_out=600)
    kept.append_line(progress, figures, 10.25)
    with Paths(tmp_path).metrics.open("a") as lines:
        lines.write('{"round": 2, "purpose": "trai')
    assert kept.costs() == [SumCost(Purpose.TRAINING, 1, 0.25, contributors=3, bytes_up=300, bytes_down=600)]
    kept.close()
