"""A certificate as one HTML page: what is proven, the curve, what it does not mean, how to check it.

Decides what stands where; the sentences are `sentences.py`'s, the shell `fedfair.report.html`'s. Every figure on
the page, those of the curve included, follows from the certificate alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from fedfair.certificate.document import Certificate, Statement
from fedfair.certificate.proof import statements
from fedfair.certificate.sentences import (
    at_most,
    confidence,
    guess_words,
    in_words,
    loss_unit,
    population_bound,
    share,
)
from fedfair.report.blocks import bullets, figure
from fedfair.report.figure_names import UNIFORM_GUESS
from fedfair.report.figures import Level, Series, draw, group_size_chart
from fedfair.report.html import PageSection, page, render
from fedfair.results.loss_text import loss_text
from fedfair.run.which_model import UNTRAINED

CURVE_POINTS = 100

_EVALUATED = "the evaluated people (with the interval that holds the truth)"


def certificate_page(certificate: Certificate) -> str:
    """Return the page of a certificate whose figures and signature the caller has checked."""
    words, population = in_words(certificate), certificate.population

    def part(name: str) -> Markup:
        return render(
            "certificate.html.jinja",
            "fedfair.certificate",
            part=name,
            certificate=certificate,
            words=words,
            unit=loss_unit(certificate),
            rows=[_row(certificate, statement) for statement in certificate.statements],
            guessing=guess_words(certificate),
            untrained=UNTRAINED,
            population=population,
            share=share,
            loss=loss_text,
        )

    sections = (
        PageSection("proven", "", part("proven")),
        PageSection("curve", "Every size of group at once", _curve(certificate)),
        PageSection("bounds", "The bounds", part("bounds")),
        PageSection("limits", "What this does not mean", bullets(words.limits)),
        PageSection("facts", "What it is about", part("facts")),
        PageSection("check", "How to check it", part("check")),
    )
    return page(f"Fairness certificate of {certificate.federation}", sections)


def _curve(certificate: Certificate) -> Markup:
    sizes = np.linspace(1.0 / CURVE_POINTS, 1.0, CURVE_POINTS).tolist()
    points = statements(certificate.loss_histogram(), sizes, certificate.population, certificate.sites)
    curves = [_sample_curve(sizes, points)]
    words = "The worst group of the evaluated people, by its size as a share of them"
    if certificate.population is not None:
        proven = [population_bound(certificate, point) for point in points]
        bounds = [math.nan if bound is None else bound for bound in proven]
        curves.append(Series(f"at most, in the population ({confidence(certificate)} confidence)", sizes, bounds))
        words += (
            ", and above it the bound for the population. Where that line ends, nothing is proven; it comes down "
            "as more people are evaluated"
        )
    floor = certificate.uniform_floor
    levels = [] if floor is None else [Level(f"{UNIFORM_GUESS}: {loss_text(floor)}", floor)]
    picture = draw(
        [group_size_chart(curves, levels, unit=loss_unit(certificate))],
        "group-sizes",
        "Mean loss of the worst group against its size",
        f"{words}. The overall mean is {loss_text(certificate.mean)}, at the right end.",
    )
    return figure(picture, f"{words}. At 100% it is the overall mean, {loss_text(certificate.mean)}.")


def _sample_curve(sizes: Sequence[float], points: Sequence[Statement]) -> Series:
    low, high = zip(*(point.sample for point in points), strict=True)
    middle = [(below + above) / 2.0 for below, above in zip(low, high, strict=True)]
    return Series(_EVALUATED, sizes, middle, low, high)


def _row(certificate: Certificate, statement: Statement) -> tuple[str, str, str]:
    bound = population_bound(certificate, statement)
    claimed = "nothing" if bound is None else at_most(bound)
    return (share(statement.group_size), at_most(statement.sample[1]), claimed)
