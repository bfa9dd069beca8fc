"""The section of a run's page about its survey: the training records of all sites, column by column.

Decides words and rounding; the figures are `results.survey`'s. What a site found of its own columns is on its own
terminal and nowhere else.
"""

from __future__ import annotations

from markupsafe import Markup

from fedfair.report.blocks import paragraph, table
from fedfair.report.figure_names import TOO_FEW
from fedfair.results.survey import SurveyedCategories, SurveyedNumbers, SurveyFields


def survey_parts(survey: SurveyFields) -> Markup:
    """Return what a page says about a survey."""
    labels = ", ".join(f"class {label}: {_count(count)}" for label, count in enumerate(survey.labels))
    words = (
        f"Before round 1 the sites added up what their {survey.records} training records look like ({labels}). "
        "Counts, means and spreads are exact. Quartiles come from bins, and each is off by at most the number "
        "after it. Each site has compared its own columns with the rest; what it found is on its own terminal."
    )
    parts = [paragraph(words)]
    if survey.numeric:
        rows = [(name, *_numbers(column)) for name, column in survey.numeric.items()]
        headings = ("column", "values", "missing", "mean", "spread", "a quarter", "median", "three quarters")
        parts.append(table("Numeric columns of all sites.", headings, rows))
    if survey.categories:
        told = [(name, *_categories(column)) for name, column in survey.categories.items()]
        parts.append(table("Categorical columns of all sites.", ("column", "values", "missing"), told))
    return Markup("").join(parts)


def _numbers(column: SurveyedNumbers) -> tuple[str, ...]:
    moments = ("-" if value is None else f"{value:.4g}" for value in (column.mean, column.spread))
    quartiles = ["-"] * 3
    if column.quartiles is not None and column.quartile_bounds is not None:
        held = zip(column.quartiles, column.quartile_bounds, strict=True)
        quartiles = [f"{value:.3g} ± {bound:.2g}" for value, bound in held]
    return _count(column.present), _count(column.missing), *moments, *quartiles


def _categories(column: SurveyedCategories) -> tuple[str, str]:
    return ", ".join(f"{value}: {_count(count)}" for value, count in column.counts.items()), _count(column.missing)


def _count(count: int | None) -> str:
    return TOO_FEW if count is None else str(count)
