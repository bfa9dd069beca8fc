"""The decision curve of a result in sentences: at which thresholds it does good to act by the model.

The same ones stand in the terminal, on a run's page and in a model's card. Decides the words and the rounding.
"""

from __future__ import annotations

from fedfair.aggregation.score_histogram import CELLS
from fedfair.results.decisions import DecisionFigures
from fedfair.templates import sentences


def decision_line(found: DecisionFigures, whom: str) -> str:
    """Return at which thresholds the model surely does more good than to act on everybody, or on nobody.

    Args:
        found: of the model.
        whom: the records, such as test.
    """
    return _said("line", found, whom=whom)[0]


def picture_words(found: DecisionFigures) -> str:
    """Return what a picture of the curve shows, and how exact it is."""
    return " ".join(_said("picture", found))


def _said(part: str, found: DecisionFigures, **values: object) -> tuple[str, ...]:
    first, last = (f"{found.points[place].threshold:.0%}" for place in (0, -1))
    return sentences(
        "fedfair.report",
        "decisions.txt.jinja",
        part=part,
        found=found,
        ranges=[(f"{low:.0%}", f"{high:.0%}") for low, high in found.useful],
        first=first,
        last=last,
        steps=CELLS,
        **values,
    )
