"""`fedfair reproduce`: mistakes on its line, and a whole small repetition."""

import json
from pathlib import Path

import pytest

from fedfair.cli import reproduction
from fedfair.cli.commands import app
from fedfair.process.terminal import run_app
from fedfair.studies.reproduction import studies
from fedfair.studies.reproduction.study import Figure
from tests.fork_server import forked_workers
from tests.signals import interrupts_given_back
from tests.studies.reproduction.small_study import study


def ended(*words: str) -> int:
    with interrupts_given_back(), pytest.raises(SystemExit) as stop:
        run_app(app, ["reproduce", *words])
    return int(stop.value.code or 0)


def test_unknown_data_sets_and_folders_of_others_are_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("celeba", "--data", str(tmp_path)) == 2
    shown = capsys.readouterr().err
    assert "celeba" in shown
    assert "acs-employment" in shown
    assert ended("heart", "--data", str(tmp_path / "none"), "--output", str(tmp_path / "out")) == 1
    assert "is no folder" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert ended("heart", "--data", str(tmp_path), "--output", str(tmp_path / "out"), "--quiet") == 2
    shown = capsys.readouterr()
    assert "processed.cleveland.data cannot be read" in " ".join(shown.err.split())
    assert shown.out == ""
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out").write_text("mine")
    assert ended("heart", "--data", str(tmp_path), "--output", str(tmp_path / "out")) == 1
    assert "is a file" in capsys.readouterr().err
    assert (tmp_path / "out").read_text() == "mine"
    (tmp_path / "index.html").write_text("mine")
    assert ended("heart", "--data", str(tmp_path), "--output", str(tmp_path)) == 1
    assert "no page of fedfair" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "index.html").read_text() == "mine"


def test_every_data_set_of_the_command_has_its_studies() -> None:
    from fedfair.cli.reproduce import DATA_SETS

    assert set(DATA_SETS) == set(studies.STUDIES)


@pytest.mark.slow
def test_a_small_repetition_writes_its_page_tables_and_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduction, "STUDIES", {"heart": (study(Figure.BASELINES),)})
    out = tmp_path / "out"
    with forked_workers(tmp_path):
        assert ended("heart", "--data", str(tmp_path), "--output", str(out), "--workers", "2") == 0
    marks = json.loads((out / "marks.json").read_text())
    assert {mark["method"] for mark in marks} == {"fedsrcvar", "fedavg"}
    assert "<svg" in (out / "index.html").read_text()
    assert "## A small study of <three>" in (out / "README.md").read_text()
    assert "FedSRCVaR" in capsys.readouterr().out
