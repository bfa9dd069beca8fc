"""The decisions and probabilities of a result in sentences: who is found and missed, and how much came true.

The same ones stand in the terminal, on a run's page and in a model's card. Decides the words and the rounding.
"""

from __future__ import annotations

from fedfair.aggregation.calibration import SCORES_ONLY
from fedfair.report.decision_lines import decision_line
from fedfair.report.per_hundred import per_hundred
from fedfair.report.worst_slice import worst_decided
from fedfair.results.document import ResultDocument
from fedfair.results.slices import slice_words
from fedfair.run.calibration_text import RECORDS, UNSTATED
from fedfair.templates import sentences

MAX_CLASSES = 5
"""Of so many classes each has a sentence; the result file has all of them."""


def calibration_lines(document: ResultDocument) -> tuple[str, ...]:
    """Return the sentences about a model of classes, or of times until an event; none about any other model."""
    split, risk = document.shown
    by_class = {} if risk.scores is None else risk.scores.by_class
    curve = None if risk.scores is None else risk.scores.decision
    told = sentences(
        "fedfair.report",
        "calibration.txt.jinja",
        document=document,
        risk=risk,
        people=per_hundred(risk.confusion),
        worst=worst_decided(document),
        slice_words=slice_words,
        told=[(wanted, each) for wanted, each in by_class.items() if each.observed is not None],
        most=MAX_CLASSES,
        records=RECORDS,
        scores_only=SCORES_ONLY,
        unstated=UNSTATED,
        ratio_text=ratio_text,
    )
    return told if curve is None else (*told, decision_line(curve, RECORDS[split]))


def ratio_text(ratio: float | None) -> str:
    """Return observed to expected as people read it."""
    return "-" if ratio is None else f"{ratio:.2f}"
