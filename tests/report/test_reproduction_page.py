"""The page and the summary of a repetition, from real runs of a small study."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedfair.report.reproduction.page import reproduction_page, reproduction_summary
from fedfair.report.reproduction.tables import composition
from fedfair.results.document import ResultDocument
from fedfair.studies.reproduction.claims import CLAIMS
from fedfair.studies.reproduction.comparison import Verdict
from fedfair.studies.reproduction.conclusions import Conclusions, conclude
from fedfair.studies.reproduction.execution import Done, PreparedStudy
from fedfair.studies.reproduction.runs import Cell
from fedfair.studies.reproduction.study import Figure
from fedfair.studies.sweep.events import Event
from tests.fork_server import forked_workers
from tests.studies.reproduction.small_study import SIZE, study

FIGURES = (Figure.BASELINES, Figure.TRADEOFFS, Figure.LOCAL_STEPS, Figure.KNOWN_GROUPS)


@pytest.fixture(scope="module", autouse=True)
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with forked_workers(tmp_path_factory.mktemp("workers")):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduction")


@pytest.fixture(scope="module")
def done(folder: Path) -> Done:
    return PreparedStudy(study(*FIGURES), SIZE, folder, folder).run(1, lambda event: None)  # noqa: ARG005


@pytest.fixture(scope="module")
def shown(done: Done) -> Conclusions:
    return conclude(done)


@pytest.mark.slow
def test_every_claim_and_run_has_a_result_and_a_reason(shown: Conclusions, done: Done) -> None:
    assert [decision.claim for decision in shown.decisions] == list(CLAIMS)
    assert all(decision.reason for decision in shown.decisions)
    by_claim = {decision.claim: decision for decision in shown.decisions}
    # These are exact, and true for every data set.
    for claim in ("C1", "C2", "C12", "C14"):
        assert by_claim[claim].verdict is Verdict.HOLDS, by_claim[claim]
    # No other federated method and no large group was run.
    assert by_claim["C10"].reason == "FedMinMax was not run at this size"
    assert not done.failures
    assert not done.evidence.missing
    assert len(done.results) == len(done.runs.points)


@pytest.mark.slow
def test_a_second_run_repeats_nothing(done: Done, folder: Path) -> None:
    events: list[Event] = []
    again = PreparedStudy(study(*FIGURES), SIZE, folder, folder)
    assert again.finished() == len(done.runs.points)
    assert again.run(1, events.append).results == done.results
    assert not any(isinstance(event.said, ResultDocument) for event in events)


@pytest.mark.slow
def test_page_and_summary_have_their_figures_and_name_what_is_left_out(done: Done, shown: Conclusions) -> None:
    page = reproduction_page("A <repetition>", [(done, shown)])
    assert page.count("<svg") == 3
    assert "<repetition>" not in page
    assert "A small study of &lt;three&gt;" in page
    assert "Chosen &amp; open." in page
    for words in ("Figure 2", "Figure 3", "Figure 4", "uniform guess", "Chosen on validation records"):
        assert words in page
    summary = reproduction_summary("Title", "fedfair reproduce small", [(done, shown)])
    assert "`fedfair reproduce small`" in summary
    rows = [line for line in summary.splitlines() if line.startswith("| FedSRCVaR (soft ReLU")]
    assert len(rows[0].split("|")) == 9  # a method, four risks, mean and accuracy, between bars
    assert "| uniform guess | 0.693 |" in summary
    lost = Cell(Figure.BASELINES, "dro", 0.3, None)
    short = replace(done, evidence=replace(done.evidence, missing=(lost,)))
    for text in (reproduction_page("T", [(short, shown)]), reproduction_summary("T", "fedfair", [(short, shown)])):
        assert "Left out, because no run finished everywhere:" in text
        assert "baselines, dro: 30%" in text
    assert "Left out" not in reproduction_summary("T", "fedfair", [(done, shown)])


def test_table_a2_sets_our_shares_above_the_papers_row_by_row() -> None:
    rows = composition(
        {"everybody": {("white", 0): 0.25, ("black", 1): 0.125}, "worst 10 %": {("other", 1): 1.0}}, paper=True
    )
    assert [row[0] for row in rows.body] == ["worst 10 %", "worst 10 %, paper", "everybody", "everybody, paper"]
    assert rows.body[0][1:] == ("0.0", "0.0", "0.0", "0.0", "0.0", "100.0")
    assert rows.body[2][1:] == ("25.0", "0.0", "0.0", "12.5", "0.0", "0.0")


def test_who_is_in_the_worst_group_of_other_data_stands_without_the_papers_rows() -> None:
    rows = composition({"everybody": {("f", 0): 0.25, ("m", 1): 0.75}}, paper=False)
    assert rows.head == ("", "f, label 0", "m, label 1")
    assert rows.body == (("everybody", "25.0", "75.0"),)


@pytest.mark.slow
def test_a_repetition_whose_time_is_up_reports_what_there_is_and_goes_on_later(tmp_path: Path) -> None:
    small = study(Figure.BASELINES, methods=("fedavg",))
    ended: list[Event] = []
    prepared = PreparedStudy(small, SIZE, tmp_path, tmp_path)
    assert prepared.run(1, ended.append, lambda: True).unfinished == len(prepared.runs.points)
    part = prepared.run(1, ended.append, lambda: any(isinstance(event.said, ResultDocument) for event in ended))
    assert len(part.results) == 1
    assert part.unfinished == len(part.runs.points) - 1
    summary = reproduction_summary("T", "fedfair", [(part, conclude(part))])
    assert f"{part.unfinished} of {len(part.runs.points)} runs are not finished" in summary
    assert PreparedStudy(small, SIZE, tmp_path, tmp_path).run(1, lambda _: None).unfinished == 0
