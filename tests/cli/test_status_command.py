"""`fedfair status`: what it shows of an aggregator, and what it says where there is nothing to show."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer

from fedfair.cli.status import status_command
from fedfair.errors import FedfairError, RemoteProtocolError, UnreachableError
from fedfair.identity.development import issue_all
from fedfair.watching.http_server import ServedPage
from fedfair.watching.pages import status_pages
from fedfair.watching.place import StatusPlace
from fedfair.watching.run_status import (
    PooledEvaluation,
    PooledFigures,
    RunStatus,
    SumStep,
    answered,
    attended,
    evaluated,
    left_behind,
    noted,
    round_ended,
    stepped,
)
from tests.watching.served_status import served
from tests.watching.statuses import NOON, START, A, B


def status() -> RunStatus:
    begun = stepped(START, SumStep("training", 8, 1, "uploads", NOON + timedelta(minutes=1)), NOON)
    begun = attended(begun, (A,), (B,), NOON)
    begun = left_behind(answered(begun, {A: 0.4, B: 1.2}, 0.8), B, NOON)
    figures = PooledFigures(0.25, 0.75, 0.5)
    begun = evaluated(round_ended(begun, 7, NOON), PooledEvaluation(7, {"test": figures}))
    return noted(begun, "clinic-b disconnected", NOON)


PAGES = status_pages(status, lambda: NOON + timedelta(seconds=5))


def place_of(address: str) -> str:
    return address.partition("://")[2].rstrip("/")


def test_it_shows_who_is_there_who_is_awaited_and_the_losses(capsys: pytest.CaptureFixture[str]) -> None:
    with served(PAGES) as address:
        status_command(place_of(address))
        status_command(address)
    said = capsys.readouterr().out
    for words in (
        "heart, aggregator: round 7 of 20, running",
        "the last round ended 5.0 s ago",
        "training sum of round 8 waits for uploads",
        "waiting for clinic-b until 2031-05-04T12:01:00.000+00:00",
        "after round 7, test: everybody 0.2500, worst 10 % 0.7500 nats",
        "clinic-b disconnected",
        "the median site answers in 0.8 s",
        "left behind since: 2031-05-04T12:00:00.000+00:00",
    ):
        assert said.count(words) == 2, words


def test_a_status_under_tls_is_read_by_its_authority(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    issue_all(tmp_path, "heart", (A,), ["localhost"], datetime.now(UTC))
    own = tmp_path / "aggregator"
    with served(PAGES, StatusPlace("localhost", 0, own / "tls.crt", own / "tls.key")) as address:
        status_command(address, authority=tmp_path / "authority" / "ca.crt")
        assert "round 7 of 20" in capsys.readouterr().out
        with pytest.raises(UnreachableError, match="certificate verify failed"):
            status_command(address)
        with pytest.raises(FedfairError, match=r"none\.crt cannot be used"):
            status_command(address, authority=tmp_path / "none.crt")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>", "is no JSON"), (b"[]", "is no status of fedfair"), (b"{}", "is no status of fedfair"),
        (b'{"format": "fedfair/status/1"}', "lacks 'rounds_total'"),
        (b'{"format": "fedfair/status/1", "rounds_total": 3}', "lacks 'rounds_done'"),
    ],
)  # fmt: skip
def test_an_answer_of_something_else_is_refused_in_words(body: bytes, words: str) -> None:
    with (
        served({"/healthz": ServedPage("application/json", lambda: lambda: body)}) as address,
        pytest.raises(RemoteProtocolError, match=words),
    ):
        status_command(address)


def test_json_is_the_whole_document_and_other_answers_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    with served(PAGES) as address:
        status_command(address, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(PAGES["/healthz"].make()())
    assert (document["format"], document["last_round_age_seconds"]) == ("fedfair/status/1", 5.0)
    with served(PAGES) as address:
        pass
    with pytest.raises(UnreachableError, match="no status is served at") as fault:
        status_command(place_of(address))
    assert "--status HOST:PORT" in fault.value.remedy
    with served({}) as address, pytest.raises(RemoteProtocolError, match="answers with status 404 Not Found"):
        status_command(address)


@pytest.mark.parametrize("address", ["localhost", "ftp://localhost:1", "http://localhost", "localhost:0"])
def test_words_that_are_no_address_are_refused(address: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not HOST:PORT"):
        status_command(address)
