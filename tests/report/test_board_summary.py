"""The page for an ethics board: the same facts in every language, on one page."""

import html
import itertools
import json
import re
from pathlib import Path
from typing import get_args

from typer.testing import CliRunner

from fedfair.cli.commands import app
from fedfair.report.board_summary import Language, board_summary
from fedfair.results.document import ResultDocument
from fedfair.results.reading import parse_result
from fedfair.results.verdict import RunVerdict, State
from tests.result_files import complete

LANGUAGES: tuple[Language, ...] = get_args(Language)


def document(**changes: object) -> ResultDocument:
    return parse_result(json.dumps(complete() | changes), "here")


def words_of(page: str) -> str:
    body = page.partition("</head>")[2]
    return html.unescape(re.sub(r"<[^>]+>", " ", body.replace("\N{NO-BREAK SPACE}", " ")))


def judged(state: State) -> ResultDocument:
    verdict = RunVerdict(state=state, findings=(), better_than_guess_from=None, sentences=("in words",))
    return document().model_copy(update={"verdict": verdict})


def confused() -> ResultDocument:
    seen = document().trained.model_copy(update={"confusion": ((60, 5), (10, 25))})
    return document().model_copy(update={"train": seen, "test": None})


def documents() -> list[ResultDocument]:
    masked = {"mode": "malicious", "masked": True, "guarantee": ""}
    levels = (None, {"epsilon": None}, {"epsilon": 2.5})
    settings = itertools.product(("simulation", "deployment"), (masked, masked | {"mode": "off"}), levels)
    found = [
        document(
            setting=setting,
            secure_aggregation=protection,
            privacy={"sample_level": level, "collaborator_level": None},
        )
        for setting, protection, level in settings
    ]
    return [*found, *map(judged, get_args(State)), confused(), document().model_copy(update={"plan": None})]


def test_every_language_tells_the_same_facts_with_the_same_figures() -> None:
    for each in documents():
        pages = {language: board_summary(each, "result.json", language) for language in LANGUAGES}
        assert [page.partition('<html lang="')[2][:2] for page in pages.values()] == [*LANGUAGES]
        assert len({tuple(re.findall(r"<(?:h1|h2|li|section)", page)) for page in pages.values()}) == 1
        texts = [words_of(page) for page in pages.values()]
        figures = {tuple(sorted(re.findall(r"\d+(?:\.\d+)?", text.replace(",", ".")))) for text in texts}
        assert len(figures) == 1
        sentences = [len(re.findall(r"[.?:](?:\s|$)", text)) for text in texts]
        assert max(sentences) - min(sentences) <= 3
        # One page of paper holds about 450 words.
        assert max(len(text.split()) for text in texts) < 400


def test_the_page_says_what_the_result_does() -> None:
    words = " ".join(words_of(board_summary(confused(), "r")).split())
    assert "35 have the outcome that it looks for: it finds 25 and misses 10." in words
    assert "Of the other 65 it alarms 5 for nothing; 83 % of its alarms are right." in words
    assert "that it was trained on, which makes it look better than it is" in words
    assert "DO NOT USE THIS MODEL AS IT IS" in words_of(board_summary(judged("worse"), "r"))
    assert "DIESES MODELL SO NICHT VERWENDEN" in words_of(board_summary(judged("worse"), "r", "de"))
    assert "NE PAS UTILISER CE MODÈLE" in words_of(board_summary(judged("worse"), "r", "fr"))


def test_the_command_writes_it_and_replaces_nothing_of_others(tmp_path: Path) -> None:
    result, page = tmp_path / "result.json", tmp_path / "summary.html"
    result.write_text(json.dumps(complete()))
    words = ["report", str(result), "--summary", str(page), "--language", "fr", "--json"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert '<html lang="fr">' in page.read_text()
    assert json.loads(shown.stdout)
    page.write_text("mine")
    refused = CliRunner().invoke(app, words)
    assert "is no page of fedfair's" in str(refused.exception)
    assert page.read_text() == "mine"
    assert CliRunner().invoke(app, [*words[:-2], "nl"]).exit_code == 2
