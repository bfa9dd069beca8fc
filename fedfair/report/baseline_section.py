"""The section of a run's page about what could be had without the model: a table, and by how much it differs.

Decides which plain training stands there: the one that was trained beside the model, or else another result of the
page. Where there is none, it says so, and which command trains one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from fedfair.plan.description import percent
from fedfair.report.baseline_lines import (
    PLAIN_ALGORITHMS,
    PlainFigures,
    difference_lines,
    plain_beside,
    worst_of,
)
from fedfair.report.blocks import paragraph, table
from fedfair.report.figure_names import ACCURACY, BASE_RATE, OVERALL, PLAIN_TRAINING, UNIFORM_GUESS
from fedfair.report.per_hundred import OUT_OF, per_hundred
from fedfair.report.sentences import Reported, loss
from fedfair.report.tables import share
from fedfair.results.baselines import base_rate
from fedfair.results.risks import SplitRisk

IS_PLAIN = "This model is plain training itself."
NO_PLAIN = (
    "No plain training stands beside this model. In a simulation, fedfair simulate --beside plain trains it at "
    "equal effort. Of a deployed run, run the plan again with training.algorithm: fedavg, and give both results "
    "to fedfair report."
)

_WRONG = (
    f"Of {OUT_OF} people, so many of class 1 are missed, and so many others are alarmed for nothing, where class "
    "1 is named from a score of one half on."
)


def baseline_parts(results: Sequence[Reported]) -> Markup:
    """Return the section; the first result is the one that the page is about."""
    about = results[0]
    plain, words = _plain(results), Markup()
    headings = ["model", OVERALL, f"worst {percent(about.document.worst_group_size)}", ACCURACY]
    if per_hundred(about.document.shown[1].confusion) is not None:
        headings += ["missed", "false alarms"]
        words = paragraph(_WRONG, "soft")
    rows = [row[: len(headings)] for row in _rows(about, plain)]
    caption = f"Losses in {about.document.loss_unit}, smaller is better."
    return words + table(caption, headings, rows) + _beside(about, plain)


def _plain(results: Sequence[Reported]) -> PlainFigures | None:
    """Return the plain training of a page: that of its first result, or else another result of these records."""
    about, *others = results
    held, (split, risk) = plain_beside(about.document), about.document.shown
    if held is not None or about.document.algorithm in PLAIN_ALGORITHMS:
        return held
    for other in others:
        told, judged = other.document.shown
        if other.document.algorithm in PLAIN_ALGORITHMS and (told, judged.n) == (split, risk.n):
            return PlainFigures(other.document.algorithm, other.document.rounds, judged, other.label)
    return None


def _rows(about: Reported, plain: PlainFigures | None) -> Iterator[tuple[str, ...]]:
    document = about.document
    risk, size, floor = document.shown[1], document.worst_group_size, document.uniform_floor
    yield _row(about.label, risk, size)
    if plain is not None:
        yield _row(plain.label or PLAIN_TRAINING, plain.risk, size)
    rate = base_rate(risk, size)
    if rate is not None:
        named = _all_named_alike(risk)
        yield (BASE_RATE, loss(rate.mean), loss(rate.worst), share(rate.accuracy), *named)
    if floor is not None:
        yield (UNIFORM_GUESS, loss(floor), loss(floor), "-", "-", "-")


def _row(label: str, risk: SplitRisk, size: float) -> tuple[str, ...]:
    people = per_hundred(risk.confusion)
    wrong = ("-", "-") if people is None else (str(people.missed), str(people.alarmed))
    return (label, loss(risk.mean), loss(worst_of(risk, size), risk.mean), share(risk.accuracy), *wrong)


def _all_named_alike(risk: SplitRisk) -> tuple[str, str]:
    """Return who is missed, and alarmed for nothing, where all are taken for the most frequent of two classes."""
    counts = [sum(row) for row in risk.confusion or ()]
    if len(counts) != 2:
        return "-", "-"
    others, wanted = counts
    people = per_hundred(((others, 0), (wanted, 0)) if others >= wanted else ((0, others), (0, wanted)))
    return ("-", "-") if people is None else (str(people.missed), str(people.alarmed))


def _beside(about: Reported, plain: PlainFigures | None) -> Markup:
    if about.document.algorithm in PLAIN_ALGORITHMS:
        return paragraph(IS_PLAIN)
    if plain is None:
        return paragraph(NO_PLAIN)
    return Markup().join(map(paragraph, difference_lines(about.document, plain)))
