"""`fedfair report`: tables, numbers and one page, and nobody's file replaced."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.errors import FedfairError
from fedfair.report.html import MARK
from fedfair.results.json_schema import result_schema
from tests.result_files import complete, oldest

pytestmark = pytest.mark.usefixtures("undrawn")


def report(*words: str) -> str:
    outcome = CliRunner().invoke(app, ["report", *words])
    if outcome.exception is not None:
        raise outcome.exception
    return outcome.output


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    pair = tmp_path / "fair.json", tmp_path / "average.json"
    for path, result in zip(pair, (complete(), oldest("fedavg", 0.6)), strict=True):
        path.write_text(json.dumps(result))
    return pair


def test_the_table_is_shown_and_a_page_is_written_beside_the_first_result(files: tuple[Path, Path]) -> None:
    shown = report(*map(str, files))
    page = files[0].with_name("report.html")
    assert "fair.json" in shown
    assert "average.json: mean loss" in shown
    assert f"The page: {page}" in shown.replace("\n", "")
    assert MARK in page.read_text(encoding="utf-8")
    assert sorted(path.name for path in page.parent.iterdir()) == ["average.json", "fair.json", "report.html"]


def test_json_has_the_numbers_and_writes_a_page_only_where_it_is_told(files: tuple[Path, Path]) -> None:
    (shown,) = json.loads(report(str(files[0]), "--json"))
    assert shown["train"]["by_group_size"]["0.1"]["worst"] == 0.5
    assert shown["traffic"]["bytes_up"] == 2_000_000
    assert not files[0].with_name("report.html").exists()
    elsewhere = files[0].with_name("elsewhere.html")
    report(str(files[0]), "--json", "--output", str(elsewhere))
    assert MARK in elsewhere.read_text(encoding="utf-8")


@pytest.mark.parametrize("sign", ["\x1b[2J", "\x9b2J", "\x07", "\x00"])
def test_a_result_cannot_speak_to_the_terminal(sign: str, files: tuple[Path, Path]) -> None:
    for change in ({"outcome": sign}, {"versions": {"fedfair": sign}}, {"versions": {sign: "1"}}):
        files[0].write_text(json.dumps(complete() | change))
        with pytest.raises(FedfairError, match="holds control characters"):
            report(str(files[0]))
    assert not files[0].with_name("report.html").exists()


def test_files_that_cannot_be_read_or_are_not_ours_leave_everything_as_it_is(files: tuple[Path, Path]) -> None:
    files[0].with_name("certificate.json").write_text("{}")
    shown = report(str(files[0]))
    assert f"the page leaves {files[0].with_name('certificate.json')} out: " in shown
    assert "The page:" in shown
    mine = files[0].with_name("report.html")
    mine.write_text("my own report")
    with pytest.raises(FedfairError, match="is no page of fedfair's"):
        report(str(files[0]))
    assert mine.read_text() == "my own report"
    mine.unlink()
    files[1].write_text("{}")
    with pytest.raises(FedfairError, match="is not a result file"):
        report(*map(str, files))
    assert not mine.exists()
    files[0].write_text(json.dumps(complete() | {"algorithm": "[bold]odd[/bold]"}))
    assert "[bold]odd[/bold]: mean loss" in report(str(files[0]))


def test_the_word_schema_prints_the_schema_of_a_result_and_a_file_of_that_name_is_a_result(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    assert json.loads(report("schema")) == result_schema()
    files[0].rename("schema")
    assert "FedSRCVaR" in report("schema")
