"""The section of a run's page about scores: a table, and a picture of what came true against them.

A model whose worst group fares like guessing may still rank people well, and the other way round. So these
stand beside the losses. Decides words, rounding and the picture; the figures are `results.scores`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from fedfair.report.blocks import figure, paragraph, table
from fedfair.report.calibration_lines import ratio_text
from fedfair.report.decision_section import decision_parts
from fedfair.report.figure_names import TOO_FEW, interval
from fedfair.report.figures import Chart, ChartAxis, Series, draw
from fedfair.report.sentences import Reported
from fedfair.results.scores import ClassScores, SplitScores
from fedfair.run.calibration_text import RECORDS

MAX_CURVES = 5
"""More curves, and the line that they should be on, cannot be distinguished in one picture."""


def score_parts(results: Sequence[Reported]) -> Markup:
    """Return what a page says about the scores of its results, of which at least one has some."""
    told = [(each, scores) for each in results if (scores := each.document.shown[1].scores) is not None]
    words = (
        "A score is the probability that the model gives to a class. The AUC says how well scores rank. It is the "
        "share of pairs, one record of the class and one of the others, in which the first has the higher score; "
        "guessing has 0.5. The Brier score is the mean squared difference between score and outcome; to "
        "say one half always costs 0.25. The calibration error says how far scores are from what comes true, on "
        "average."
    )
    parts = paragraph(words) + _table(told) + _calibration(results[0]) + _picture(*told[0])
    return parts + decision_parts(results)


def _table(told: Sequence[tuple[Reported, SplitScores]]) -> Markup:
    rows = []
    for each, scores in told:
        for wanted, figures in scores.by_class.items():
            rows.append((f"{each.label}: class {wanted}", *_cells(figures)))
        if len(scores.by_class) > 1:
            rows.append((f"{each.label}: all classes", *_cells(scores)))
    headings = ("scores of", "AUC", "proven interval", "Brier score", "calibration error")
    caption = "How well the scores rank and fit."
    if any(len(scores.by_class) > 1 for _, scores in told):
        caption += (
            " All classes together: the mean of their AUC and calibration error, the sum of their Brier scores."
        )
    return table(caption, headings, rows)


def _calibration(about: Reported) -> Markup:
    """Return what was promised and what came true in every split, before and after, where there are both."""
    found = about.document.calibration
    if found is None or found.split is None:
        return Markup()
    rows = [
        (
            f"{split}: class {wanted}",
            f"{each.observed:.1%}",
            f"{each.mean_before:.1%}",
            ratio_text(each.observed_to_expected_before),
            _figure(each.calibration_error_before),
            f"{each.mean_after:.1%}",
            ratio_text(each.observed_to_expected_after),
            _figure(each.calibration_error_after),
        )
        for split, classes in found.splits.items()
        for wanted, each in classes.items()
    ]
    headings = (
        "records of", "observed", "mean score", "observed to expected", "calibration error",
        "mean calibrated", "observed to expected", "calibration error",
    )  # fmt: skip
    caption = (
        f"{about.label}: before and after the calibration, which was fitted on {RECORDS[found.split]} records."
    )
    if len(found.by_class) > 1:
        caption += " Calibrated scores are those before each record's are scaled to sum 1."
    return table(caption, headings, rows)


def _cells(figures: ClassScores | SplitScores) -> tuple[str, str, str, str]:
    if figures.auc is None:
        return (TOO_FEW, "-", "-", "-")
    return (
        f"{figures.auc:.3f}",
        interval(figures.auc_bound),
        _figure(figures.brier),
        _figure(figures.calibration_error),
    )


def _picture(about: Reported, scores: SplitScores) -> Markup:
    """Return what came true against the scores; nothing where no class is reported."""
    drawn = [(wanted, figures) for wanted, figures in scores.by_class.items() if figures.reliability][:MAX_CURVES]
    if not drawn:
        return Markup()
    series = [
        Series(
            f"{about.label}: class {wanted}",
            [row.mean_score for row in figures.reliability],
            [row.observed for row in figures.reliability],
        )
        for wanted, figures in drawn
    ]
    words = (
        "What came true against what the model said, for people with neighbouring scores. Of those with a score "
        "of 70 %, seven in ten should be of the class. Below the line of scores that fit, the model promises too "
        "much."
    )
    if len(drawn) < len(scores.by_class):
        words += f" {len(drawn)} of {len(scores.by_class)} classes are drawn; the result file has all of them."
    chart = Chart(
        ChartAxis("mean score of the group", share=True),
        ChartAxis("share of the group that is of the class", share=True),
        [*series, Series("scores that fit", [0.0, 1.0], [0.0, 1.0])],
    )
    return figure(draw([chart], "calibration", "What came true against the scores", words), words)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
