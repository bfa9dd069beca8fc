"""Every line that either actor writes for programs says when it was written and of which run it tells."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from aggregator.journal import Journal
from aggregator.records import RunPaths, SumFigures
from aggregator.records import RunRecords as AggregatorRecords
from collaborator.link import Link
from collaborator.records import SiteLogs as SiteRecords
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.spec import SumSpec
from fedfair.ids import ParticipantId, RoundNumber, SumNumber
from fedfair.policy.refusal import Refusal
from fedfair.process.log_lines import log_line
from fedfair.results.parts import Departure
from fedfair.rounds.events import Departed
from fedfair.run.training_run import Progress
from fedfair.statistics.table import Purpose
from fedfair.wire.frames import SumStart

RUN = "0123456789abcdef" * 2
SITE = ParticipantId("clinic-a")
ONE = RoundNumber(1)
PROGRESS = Progress(Purpose.TRAINING, ONE, 0.5, 3, None, is_best=False, model_changed=True)
START = SumStart(SumNumber(1), Purpose.TRAINING, ONE, 1, bytes(32), 60)
REQUEST = SumRequest(Purpose.TRAINING, ONE, 1, SumSpec(Purpose.TRAINING, 2, 2, np.dtype(np.float32)))


class Bytes:
    """What a link has carried."""

    bytes_sent = 10
    bytes_received = 20


LINK = cast(Link, Bytes())

OF_THE_AGGREGATOR: dict[str, Callable[[AggregatorRecords], None]] = {
    "append_line": lambda kept: kept.append_line(PROGRESS, SumFigures(started=1.0), 1.25),
    "append_departure": lambda kept: kept.append_departure(Departed(SITE, ONE, "it left")),
    "append_refusal": lambda kept: kept.append_refusal(SITE, REQUEST, "no"),
    "append_notified": lambda kept: kept.append_notified(SITE),
}


def _answered(kept: SiteRecords) -> None:
    kept.asked(START, LINK)
    kept.answered(LINK, "accepted")


OF_A_SITE: dict[str, Callable[[SiteRecords], None]] = {
    "answered": _answered,
    "refused": lambda kept: kept.refused(Refusal("no"), START),
}
WITHOUT_A_LINE = {"begin_link", "asked", "append_note", "close"}


def of_the_aggregator(folder: Path) -> AggregatorRecords:
    paths = RunPaths(folder)
    for parent in (paths.save, paths.metrics.parent):
        parent.mkdir()
    layout = Layout((LayoutEntry("weight", (1, 2)),), np.dtype(np.float32))
    return AggregatorRecords(paths, layout, Journal.open(paths.journal, bytes(32), RUN, 1_800_000_000.0), {}, 0.1)


def public_methods(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}


def lines(folder: Path) -> Iterator[tuple[str, dict[str, object]]]:
    for path in sorted(folder.rglob("*.jsonl")):
        yield from ((path.name, json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())


def check(line: dict[str, object], run_id: str) -> None:
    assert line["run_id"] == run_id
    moment = datetime.fromisoformat(str(line["time"]))
    assert moment.utcoffset() == timedelta(0)


def test_every_line_of_the_aggregator_has_its_time_and_its_run(tmp_path: Path) -> None:
    appending = {name for name in public_methods(AggregatorRecords) if name.startswith("append_")}
    assert appending - {"append_note"} == OF_THE_AGGREGATOR.keys()
    with closing(of_the_aggregator(tmp_path)) as kept:
        for write in OF_THE_AGGREGATOR.values():
            write(kept)
    found = list(lines(tmp_path))
    assert len({name for name, _ in found}) == len(found) == len(OF_THE_AGGREGATOR)
    for _, line in found:
        check(line, RUN)


@pytest.mark.parametrize("run_id", ["", RUN])
def test_every_line_of_a_site_has_its_time_and_the_run_that_it_heard_of(tmp_path: Path, run_id: str) -> None:
    assert public_methods(SiteRecords) - WITHOUT_A_LINE == OF_A_SITE.keys()
    with closing(SiteRecords(tmp_path, "clinic-a")) as kept:
        assert kept.run_id == ""
        kept.run_id = run_id
        for write in OF_A_SITE.values():
            write(kept)
    found = list(lines(tmp_path))
    assert len({name for name, _ in found}) == len(found) == len(OF_A_SITE)
    for _, line in found:
        check(line, run_id)


def test_the_result_says_who_left_in_the_same_keys_as_ever(tmp_path: Path) -> None:
    with closing(of_the_aggregator(tmp_path)) as kept:
        kept.append_departure(Departed(SITE, ONE, "it left"))
        assert kept.departures() == (Departure(collaborator="clinic-a", round=1, reason="it left"),)
        assert kept.informed() == {"clinic-a"}


def test_the_time_of_a_line_is_told_in_utc_whatever_zone_the_writer_is_in() -> None:
    now = datetime(2031, 5, 6, 7, 8, 9, 123456, timezone(timedelta(hours=2)))
    assert json.loads(log_line(now, RUN, {"round": 3})) == {
        "time": "2031-05-06T05:08:09.123+00:00",
        "run_id": RUN,
        "round": 3,
    }
