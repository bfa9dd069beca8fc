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
    guess_sentence,
    guess_words,
    limits,
    loss_unit,
    main_statement,
    mixture_sentences,
    population_bound,
    population_sentence,
    sample_sentence,
    share,
    trained_for,
    verdict_sentence,
)
from fedfair.report.blocks import bullets, facts, figure, paragraph, table
from fedfair.report.figure_names import UNIFORM_GUESS
from fedfair.report.figures import Level, Series, draw, group_size_chart
from fedfair.report.html import PageSection, page
from fedfair.results.loss_text import loss_text

CURVE_POINTS = 100

_EVALUATED = "the evaluated people (with the interval that holds the truth)"


def certificate_page(certificate: Certificate) -> str:
    """Return the page of a certificate whose figures and signature the caller has checked."""
    sections = (
        PageSection("proven", "", _opening(certificate)),
        PageSection("curve", "Every size of group at once", _curve(certificate)),
        PageSection("bounds", "The bounds", _table(certificate)),
        PageSection("limits", "What this does not mean", bullets(limits(certificate))),
        PageSection("facts", "What it is about", _facts(certificate)),
        PageSection("check", "How to check it", _check(certificate)),
    )
    return page(f"Fairness certificate of {certificate.federation}", sections)


def _opening(certificate: Certificate) -> Markup:
    worst = main_statement(certificate)
    paragraphs = [
        paragraph(sample_sentence(certificate, worst), "lead"),
        paragraph(population_sentence(certificate, worst), "lead"),
        *(paragraph(sentence) for sentence in mixture_sentences(certificate)),
        paragraph(guess_sentence(certificate)),
        _verdict(certificate),
    ]
    if certificate.signature is None:
        paragraphs.insert(
            0, Markup('<p class="card" id="unsigned"><b>NOT SIGNED: anybody could have made it.</b></p>')
        )
    return Markup("").join(paragraphs)


def _verdict(certificate: Certificate) -> Markup:
    sentence = verdict_sentence(certificate)
    if certificate.verdict is not None and certificate.verdict.state == "worse":
        return Markup('<p class="card" id="verdict"><b>{}</b></p>').format(sentence)
    return Markup('<p id="verdict">{}</p>').format(sentence)


def _curve(certificate: Certificate) -> Markup:
    sizes = np.linspace(1.0 / CURVE_POINTS, 1.0, CURVE_POINTS).tolist()
    points = statements(certificate.loss_histogram(), sizes, certificate.population, certificate.sites)
    curves = [_sample_curve(sizes, points)]
    words = "The worst group of the evaluated people, by its size as a share of them"
    if certificate.population is not None:
        bounds = [_or_nan(population_bound(certificate, point)) for point in points]
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
        f"{words}. The mean over everybody is {loss_text(certificate.mean)}, at the right end.",
    )
    return figure(picture, f"{words}. At 100% it is the mean over everybody, {loss_text(certificate.mean)}.")


def _sample_curve(sizes: Sequence[float], points: Sequence[Statement]) -> Series:
    low, high = zip(*(point.sample for point in points), strict=True)
    middle = [(below + above) / 2.0 for below, above in zip(low, high, strict=True)]
    return Series(_EVALUATED, sizes, middle, low, high)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _table(certificate: Certificate) -> Markup:
    bounds = table(
        f"The mean loss of any group of at least this size is at most ({loss_unit(certificate)}; rounded upwards)",
        ("size", "evaluated people", "population"),
        (_row(certificate, statement) for statement in certificate.statements),
    )
    guessing = guess_words(certificate)
    beside = f" Guessing: {guessing}." if guessing else ""
    return bounds + paragraph(f"Everybody: {loss_text(certificate.mean)}.{beside}", "soft")


def _row(certificate: Certificate, statement: Statement) -> tuple[str, str, str]:
    bound = population_bound(certificate, statement)
    claimed = "nothing" if bound is None else at_most(bound)
    return (share(statement.group_size), at_most(statement.sample[1]), claimed)


def _facts(certificate: Certificate) -> Markup:
    training, population = certificate.training, certificate.population
    about = {
        "model (SHA-256 of its values)": certificate.model_digest,
        "plan that every site approved": certificate.plan_digest,
        "trained by": f"{training.algorithm}, {trained_for(certificate)}, to protect every group of at least "
        f"{share(training.worst_group_size)}; weight of the average {share(training.tradeoff)}",
        "evaluated": f"{certificate.n} {certificate.split} records at {certificate.participants} sites",
        "sums": "masked: nobody saw one site's" if certificate.masked else "in the clear: NOT masked",
        "differential privacy": certificate.privacy,
        "population bound": "none"
        if population is None
        else f"{population.method}, delta {population.delta}, n {certificate.n}, L {certificate.loss_range:.6g}",
        "issued": certificate.issued_at
        + (
            f" by {certificate.issuer.name}, key {certificate.issuer.key}"
            if certificate.issuer
            else ", NOT SIGNED"
        ),
    }
    return facts(about.items())


def _check(certificate: Certificate) -> Markup:
    signed = Markup(
        "<p>KEY is the key of {}, as you have it by a way that you trust: in a plan that you approved, or told by "
        "its people. Neither this page nor the file can say which key is right: whoever made up a certificate "
        "would name his own.</p>"
    )
    issuer = certificate.issuer
    return Markup(
        "<p>This page is a copy for reading. What counts is the file that it was made from, which anybody can "
        "check without a network: the signature, and every bound, computed again from the losses' histogram.</p>"
        "<p><code>fedfair certificate verify FILE{}</code></p>{}"
    ).format(" --key KEY" if issuer else " --unsigned", signed.format(issuer.name) if issuer else "")
