"""The probabilities of a result in sentences: whether there are any, and how much of them came true.

The same ones stand in the terminal, on a run's page and in a model's card. Decides the words and the rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.aggregation.calibration import SCORES_ONLY
from fedfair.results.calibration import BeforeAndAfter
from fedfair.results.document import ResultDocument
from fedfair.run.calibration_text import NOBODY_SAYS, RECORDS

MAX_CLASSES = 5
"""Of so many classes each has a sentence; the result file has all of them."""


def calibration_lines(document: ResultDocument) -> Iterator[str]:
    """Yield the sentences about a model of classes, or of times until an event; none about any other model."""
    split, risk = document.shown
    metrics = risk.metrics or {}
    names = ("observed_to_expected", "observed_events", "expected_events")
    ratio, observed, expected = (metrics.get(name) for name in names)
    if isinstance(ratio, float) and isinstance(observed, float) and isinstance(expected, float):
        yield (
            f"Of the {RECORDS[split]} records {observed:g} had the event in the intervals; the model expects "
            f"{expected:.1f} (observed to expected {ratio:.2f})."
        )
    if risk.accuracy is None:
        return
    found = document.calibration
    if found is None or found.split is None:
        reason = None if found is None else found.reason
        yield f"The model returns {SCORES_ONLY}: {reason or NOBODY_SAYS}."
    else:
        yield f"The model returns probabilities, calibrated on {RECORDS[found.split]} records."
    yield from _classes(document, split)


def _classes(document: ResultDocument, split: str) -> Iterator[str]:
    _, risk = document.shown
    by_class = {} if risk.scores is None else risk.scores.by_class
    told = {wanted: each for wanted, each in by_class.items() if each.observed is not None}
    after = {} if document.calibration is None else document.calibration.splits.get(split, {})
    for wanted in [*told][:MAX_CLASSES]:
        each = told[wanted]
        if each.observed is None or each.mean_score is None:
            continue
        yield (
            f"Of the {RECORDS[split]} records {each.observed:.1%} are of class {wanted}; the mean score is "
            f"{each.mean_score:.1%} (observed to expected {ratio_text(each.observed_to_expected)})"
            f"{_calibrated(after.get(wanted))}."
        )
    if len(told) > MAX_CLASSES:
        yield f"{MAX_CLASSES} of {len(told)} classes are told of here; the result file has all of them."


def _calibrated(figures: BeforeAndAfter | None) -> str:
    if figures is None:
        return ""
    return (
        f", calibrated {figures.mean_after:.1%} "
        f"(observed to expected {ratio_text(figures.observed_to_expected_after)})"
    )


def ratio_text(ratio: float | None) -> str:
    """Return observed to expected as people read it."""
    return "-" if ratio is None else f"{ratio:.2f}"
