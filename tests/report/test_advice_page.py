"""The page of advice: what it says, and that hostile words stay words."""

import re

from fedfair.report.advice_page import advice_page, advice_pictures
from fedfair.report.advice_tables import advice_table
from tests.studies.advice.advice_makers import advice, plain

HOSTILE = "</p><script>alert('x')</script>"


def text_of(page: str) -> str:
    bare = re.sub(r"<svg.*?</svg>|<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)
    return " ".join(bare.replace("&#39;", "'").replace("\N{NO-BREAK SPACE}", " ").split())


def test_the_page_begins_with_the_recommendation_and_has_pictures_tables_and_limits() -> None:
    made = advice()
    page = advice_page(made)
    said = text_of(page)
    for sentence in (*made.sentences, *made.notes):
        assert sentence in said
    assert {"group-sizes", "trade-off"} <= set(re.findall(r'<svg[^>]* id="([^"]+)"', page))
    assert "30 %, tradeoff 0.3 (recommended) 0.690 ± 0.010" in said
    assert "always the most frequent class" in said
    pictures = " ".join(advice_pictures(made).values())
    assert "recommended: 30 %, tradeoff 0.3" in pictures
    assert "uniform guess: 0.693" in pictures


def test_pages_without_recommendation_or_with_hostile_words_are_whole() -> None:
    base = plain(worst=(1.9, 1.2, 0.9))
    made = advice(base=base, models=advice().models[:1])
    assert made.recommendation is None
    assert "No setting is recommended" in text_of(advice_page(made))
    assert "<script" not in advice_page(advice(federation=HOSTILE, model=HOSTILE))
    table = advice_table(advice())
    assert table.row_count == len(advice().models) + 2
    assert "0.3 *" in list(table.columns[1].cells)
