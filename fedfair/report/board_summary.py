"""One page in plain words about a result, for an ethics board: English, German or French.

Decides which facts are told; each language has a template of its own, whose lines are, for each part, a heading
and then sentences. Every figure is one of the result's; what it lacks is not mentioned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Literal, TypeAlias

from fedfair.plan.description import percent
from fedfair.report.baseline_lines import plain_beside, worst_of
from fedfair.report.blocks import bullets, paragraph
from fedfair.report.html import PageSection, page
from fedfair.report.per_hundred import per_hundred
from fedfair.report.worst_slice import worst_decided
from fedfair.results.baselines import base_rate
from fedfair.results.document import ResultDocument
from fedfair.results.slices import ENGLISH, CellPhrases, slice_words
from fedfair.results.verdict import MARGIN
from fedfair.templates import sentences

Language: TypeAlias = Literal["en", "de", "fr"]

_PHRASES: Mapping[Language, CellPhrases] = {
    "en": ENGLISH,
    "de": CellPhrases(
        "{column} unter {high}", "{column} ab {low}", "{column} {low} bis {high}", "{column} beliebig",
        " oder ", ",", ("ein anderer Wert", "ein seltener Wert"), "kein Wert",
    ),
    "fr": CellPhrases(
        "{column} inférieur à {high}", "{column} à partir de {low}", "{column} de {low} à {high}",
        "{column} quelconque", " ou ", ",", ("toute autre valeur", "une valeur rare"), "aucune valeur",
    ),
}  # fmt: skip

_PARTS = ("what", "well", "protected", "limits", "asks")
_LISTS = ("limits", "asks")
_STYLE = "@page{size:A4;margin:15mm}@media print{body{padding:0;font-size:.85rem}section{margin-top:-.6rem}}"


def board_summary(document: ResultDocument, place: str, language: Language = "en") -> str:
    """Return the page.

    Args:
        document: the result.
        place: the file that it was read from.
        language: of the page.
    """
    tell = partial(
        sentences, "fedfair.report", f"summary.{language}.txt.jinja", **_facts(document, place, language)
    )
    (title,) = tell(part="title")
    return page(title, [*_sections(tell)], _STYLE, language)


def _sections(tell: Callable[..., tuple[str, ...]]) -> Iterator[PageSection]:
    for part in _PARTS:
        heading, *lines = tell(part=part)
        body = bullets(lines) if part in _LISTS else paragraph(" ".join(lines))
        yield PageSection(part, heading, body)
    yield PageSection("files", "", paragraph(" ".join(tell(part="files")), "soft"))


def _facts(document: ResultDocument, place: str, language: Language) -> dict[str, object]:
    """Return what the templates name, beside the part."""
    split, risk = document.shown
    size = document.worst_group_size
    plain = plain_beside(document)
    worst, usual = worst_of(risk, size), None if plain is None else worst_of(plain.risk, size)

    def number(value: float) -> str:
        written = f"{value:.2f}"
        return written if language == "en" else written.replace(".", ",")

    def share(value: float | None) -> str:
        return "-" if value is None else percent(round(value, 2))

    return {
        "document": document,
        "place": place,
        "seen": split == "train",
        "records": risk.n,
        "people": per_hundred(risk.confusion),
        "least": worst_decided(document),
        "slice_words": partial(slice_words, phrases=_PHRASES[language]),
        "rate": base_rate(risk, size),
        "accuracy": risk.accuracy,
        "usual": usual,
        "usual_serves": worst is not None and usual is not None and usual < worst - MARGIN,
        "size": percent(size),
        "worst": worst,
        "guess": document.uniform_floor,
        "state": "unknown" if document.verdict is None else document.verdict.state,
        "simulated": document.setting == "simulation",
        "level": document.privacy.sample_level,
        "number": number,
        "share": share,
    }
