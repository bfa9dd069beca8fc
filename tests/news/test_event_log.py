"""The JSON log: one object on each line, a name for every notice, and values that programs can read."""

import ast
import dataclasses
import json
import re
import warnings
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from docs.events_page import AT_AGGREGATOR, AT_SITE, OTHERS
from fedfair.aggregation.requests import SumRequest
from fedfair.aggregation.spec import SumSpec
from fedfair.errors import AbortedError, StoppedError
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.news import run, site, sums
from fedfair.news.event import RESERVED, LogLevel, News, event_name, json_value
from fedfair.news.log import JsonLog
from fedfair.news.processors import json_lines
from fedfair.process.terminal import complaints
from fedfair.rounds.events import AfterWaiting, Waiting
from fedfair.statistics.table import Purpose
from tests.news.test_notices import AGGREGATOR, SITE
from tests.trees import called

RUN = "0123456789abcdef" * 2

PUBLISHED = {
    "protection_stated", "identity_warned", "run_continued", "port_opened", "entry_refused", "invitation_declined",
    "stream_opened", "stream_ended", "sites_awaited", "answer_unawaited", "lie_suspected", "sent_away",
    "site_withdrew", "attempt_lost", "evaluation_omitted", "journal_behind", "changes_clipped", "values_replaced",
    "older_trust_kept", "stop_begun", "absent_sites_awaited", "run_joined", "retry_planned", "sum_declined",
    "values_omitted", "evaluation_done", "privacy_forecast", "summary_unwritten", "leaving_begun", "plan_refused",
    "aggregator_untold", "tracker_failed", "own_records_evaluated", "run_file_unwritten", "last_sums_missed",
}  # fmt: skip
"""Names that somebody's alert rules may hold: a name may come, and none may go."""


@pytest.fixture(autouse=True)
def _nobody_takes_faults_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complaints, "taker", None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)


def lines_of(log: list[str]) -> list[dict[str, object]]:
    return [json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON")) for line in log]


@pytest.mark.parametrize(("news", "words"), AGGREGATOR + SITE, ids=lambda one: type(one).__name__)
def test_every_notice_is_one_line_with_its_sentence_and_fields(news: News, words: str) -> None:
    written: list[str] = []
    log = JsonLog(LogLevel.DEBUG, written.append)
    log.run_id = RUN
    json_lines(log)(news)
    (line,) = lines_of(written)
    assert (line["message"], line["event"]) == (words, event_name(type(news)))
    assert line["run_id"] == getattr(news, "run_id", RUN)
    assert set(line) == {*RESERVED, *(field.name for field in dataclasses.fields(news))}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", str(line["time"]))


def test_no_published_name_of_an_event_goes_and_no_two_notices_share_one() -> None:
    kinds = {*AT_AGGREGATOR, *AT_SITE}
    # A tracker may fail on either side.
    names = [event_name(kind) for kind in kinds]
    assert len(names) == len(set(names))
    assert set(names) >= PUBLISHED
    assert set(names).isdisjoint(OTHERS)


@pytest.mark.parametrize(
    "kind",
    [
        run.CertificateEnding,
        run.CertificateUnusable,
        site.SiteCertificateEnding,
        site.SiteCertificateUnusable,
        site.RevocationListRefused,
        site.RevocationListUnwritten,
    ],
)
def test_a_certificate_that_ends_or_cannot_be_used_is_a_warning(kind: type[News]) -> None:
    assert kind.level is LogLevel.WARNING


def test_no_field_of_a_notice_hides_a_key_of_every_line() -> None:
    for kind in (*AT_AGGREGATOR, *AT_SITE):
        assert {field.name for field in dataclasses.fields(kind)}.isdisjoint(set(RESERVED) - {"run_id"}), kind


def test_every_event_that_is_no_notice_is_in_the_table() -> None:
    found = {
        leaf.value
        for _, name, node in called()
        if name == "LoggedEvent" or name.endswith("log.doubt")
        for leaf in node.args[:1]
        if isinstance(leaf, ast.Constant)
    }
    own = {"command_failed", "command_stopped", "sum_applied", "round_evaluated"}
    assert found | own == set(OTHERS)


def test_values_keep_their_types() -> None:
    notice = sums.AttemptLost(Purpose.TRAINING, RoundNumber(7), 2, "too few")
    assert json_value(notice) == {"purpose": "training", "round": 7, "attempt": 2, "reason": "too few"}
    leads = sums.JournalBehind({ParticipantId("clinic-a"): 3}, 0)
    assert json_value(leads) == {"leads": {"clinic-a": 3}, "rounds": 0}
    noon = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
    assert json_value([noon, Path("save"), float("nan"), True]) == [
        "2031-05-04T12:00:00.000+00:00", "save", None, True
    ]  # fmt: skip
    assert json_value([object]) == ["<class 'object'>"]


def test_a_wait_tells_which_sum_is_due_and_not_its_shapes() -> None:
    spec = SumSpec(Purpose.TRAINING, 2, 2, np.dtype(np.float64))
    due = SumRequest(Purpose.TRAINING, RoundNumber(7), 2, spec)
    facts = Waiting((ParticipantId("clinic-b"),), 1, 2, 2, (), AfterWaiting.END, due)
    noon = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
    event = run.SitesAwaited(facts, noon, noon).logged()
    assert json.loads(json.dumps(event.fields["facts"]))["request"] == {
        "purpose": "training", "round": 7, "attempt": 2,
    }  # fmt: skip


def test_a_line_names_the_run_as_soon_as_a_site_has_joined_it() -> None:
    written: list[str] = []
    write = json_lines(JsonLog(LogLevel.INFO, written.append))
    write(site.PrivacyForecast("free"))
    write(site.RunJoined(RUN, 0, 20))
    write(site.EvaluationDone(RoundNumber(1), 20))
    assert [line["run_id"] for line in lines_of(written)] == ["", RUN, RUN]


def test_what_matters_less_than_the_level_is_not_told() -> None:
    written: list[str] = []
    write = json_lines(JsonLog(LogLevel.WARNING, written.append))
    for notice, _ in AGGREGATOR:
        write(notice)
    told = {line["event"] for line in lines_of(written)}
    assert told == {event_name(kind) for kind in AT_AGGREGATOR if kind.level in {LogLevel.WARNING, LogLevel.ERROR}}


def test_a_fault_that_ends_the_process_is_a_line_and_a_stop_is_no_error() -> None:
    written: list[str] = []
    JsonLog(LogLevel.INFO, written.append)
    assert complaints.taker is not None
    complaints.taker(AbortedError("the quorum was lost", "start it again"))
    complaints.taker(StoppedError("this site was stopped", signal_name="SIGTERM"))
    complaints.taker(FileNotFoundError(2, "No such file or directory", "plan.yaml"))
    failed, stopped, missing = lines_of(written)
    assert (failed["event"], failed["level"], failed["status"]) == ("command_failed", "error", 3)
    assert (failed["fault"], failed["remedy"]) == ("AbortedError", "start it again")
    assert (stopped["event"], stopped["level"], stopped["status"]) == ("command_stopped", "info", 4)
    assert (missing["message"], missing["status"]) == ("No such file or directory plan.yaml", 2)


def test_a_warning_of_a_library_is_a_line_too() -> None:
    written: list[str] = []
    JsonLog(LogLevel.INFO, written.append)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning("old", DeprecationWarning, "x.py", 3)
    (line,) = lines_of(written)
    assert (line["event"], line["category"], line["place"]) == ("library_warned", "DeprecationWarning", "x.py:3")
