"""Documents from templates: a value cannot begin a line, and a name that a template misses is our mistake."""

import pytest
from jinja2 import DictLoader, Environment, UndefinedError

from fedfair import templates


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put templates of this test in place of every package's."""
    own = {"a.txt.jinja": "{% if first %}\nfirst\t{{ first }}\n{% endif %}\n\nlast\t{{ last }}, {{ number }}\n"}
    made = templates.environment("fedfair.report").overlay(loader=DictLoader(own))

    def of_tests(_: str) -> Environment:
        return made

    monkeypatch.setattr(templates, "environment", of_tests)
    templates._of_lines.cache_clear()


@pytest.mark.usefixtures("lines")
def test_each_line_of_a_template_is_a_sentence_and_empty_ones_are_none() -> None:
    assert templates.sentences("x", "a.txt.jinja", first="one", last="two", number=3) == (
        "first\tone",
        "last\ttwo, 3",
    )
    assert templates.sentences("x", "a.txt.jinja", first="", last="two", number=3) == ("last\ttwo, 3",)


@pytest.mark.usefixtures("lines")
def test_a_line_break_in_a_value_begins_no_sentence() -> None:
    found = templates.sentences("x", "a.txt.jinja", first="one\nprotection\tmasked", last="\u2028two\r", number=3)
    assert found == ("first\tone\nprotection\tmasked", "last\t\u2028two\r, 3")


@pytest.mark.usefixtures("lines")
def test_a_value_that_is_missing_is_our_mistake() -> None:
    with pytest.raises(UndefinedError, match="number"):
        templates.sentences("x", "a.txt.jinja", first="", last="two")
