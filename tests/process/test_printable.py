"""Words of others, on every way to a person: no character of theirs steers what shows them."""

import io
import json
import sys
import unicodedata
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from rich.table import Table
from rich.text import Text

from fedfair.process.printable import is_shown, printable
from fedfair.process.terminal import Terminal
from fedfair.report.html import PageSection, page
from fedfair.wire.frames import showable
from tests.trees import called

REPOSITORY = Path(__file__).parents[2]
HOSTILE = "a\u202eb\u200bc\u2066d\u2028e\u2029f\x1b[2Jg\x7fh\x9bi\ufeffj\u00adk\ue000l\U000e0041m"
HARMLESS = "Zürich Ω 5\u00a0% 東京 ∑ 🙂"


def test_every_character_that_steers_is_replaced_and_every_word_of_a_language_stays() -> None:
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        assert is_shown(letter) == (letter.isprintable() or unicodedata.category(letter) == "Zs"), hex(code)
    assert printable(HARMLESS) == HARMLESS
    assert all(is_shown(letter) for letter in printable(HOSTILE))
    assert len(printable(HOSTILE)) == len(HOSTILE)


@given(st.text())
def test_what_is_printable_stays_as_it_is(text: str) -> None:
    assert printable(printable(text)) == printable(text)


def shown_on_a_terminal(what: object) -> str:
    stream = io.StringIO()
    Terminal(file=stream, width=200, highlight=False).print(what, soft_wrap=True)
    return stream.getvalue()


def test_a_terminal_shows_no_such_character_in_text_tables_titles_or_json() -> None:
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(Text(HOSTILE))
    table.add_row(HOSTILE.replace("[", "("))
    for what in (Text(HOSTILE), table):
        assert all(is_shown(letter) or letter == "\n" for letter in shown_on_a_terminal(what))
    stream = io.StringIO()
    Terminal(file=stream, width=40).print_json(json.dumps({"label": HOSTILE}))
    assert stream.getvalue().isascii()
    assert json.loads(stream.getvalue()) == {"label": HOSTILE}


def test_a_page_shows_no_such_character_wherever_the_words_stand() -> None:
    body = Markup("<p title='{}'>{}</p>").format(HOSTILE, HOSTILE)
    made = page(HOSTILE, [PageSection("", HOSTILE, body)])
    assert all(is_shown(letter) or letter == "\n" for letter in made)


def test_a_frame_keeps_no_such_character() -> None:
    assert all(is_shown(letter) for letter in showable(HOSTILE))


PRINTING = {"print", "sys.stdout.write", "sys.stderr.write", "typer.echo"}
CONSOLES = {"Console", "rich.print", "rich.get_console"}
WRITERS = {
    # Their own words and numbers: the plan's pages, the results that other programs read.
    "fedfair/report/plan_keys.py", "fedfair/report/presets_page.py", "fedfair/report/disclosure_table.py",
    "fedfair/cli/simulate.py", "fedfair/cli/evaluate.py",
    # A table that another program reads; a terminal is shown no control characters of it.
    "fedfair/cli/predict.py",
    # Below the consoles, and of its own words and numbers alone: what a simulation waits for.
    "fedfair/simulation/ray_cluster.py",
    # The one fault of a process whose output is a log of its own site.
    "collaborator/computing/__main__.py",
}  # fmt: skip


def test_every_place_that_prints_goes_through_the_consoles_or_is_listed_without_need() -> None:
    assert {place for place, name, _ in called() if name in PRINTING} <= WRITERS
    assert {place for place, name, _ in called() if "write" in name or name == "print"} >= WRITERS
    assert [place for place, name, _ in called() if name in CONSOLES] == []
