"""Shows a certificate on the page of the run that it is about.

Decides which of its sentences are quoted there, never without what they do not mean; whether it is about that run
is checked first, as far as both files tell: the plan, the people, and how they fare.
"""

from __future__ import annotations

from fedfair.certificate.document import Certificate
from fedfair.certificate.proof import mean_bound
from fedfair.certificate.sentences import in_words
from fedfair.errors import CertificateError
from fedfair.report.html import PageSection, render
from fedfair.results.document import ResultDocument

SAME = 1e-6
"""Means of one run agree far better than this, and those of two runs hardly ever do."""

_REMEDY = "issue it again with `fedfair certificate`, or move it away"


def check_result(certificate: Certificate, result: ResultDocument, place: str) -> None:
    """Check that a certificate and a result are about the same run.

    Args:
        certificate: any.
        result: any.
        place: the certificate's file, for the message.

    Raises:
        CertificateError: they are about different plans, or about people who do not fare the same.
    """
    if certificate.plan_digest != result.plan_digest:
        raise CertificateError(
            f"{place} is about the plan {certificate.plan_digest}, "
            f"the result beside it about {result.plan_digest}",
            _REMEDY,
        )
    risk = result.splits[certificate.split]
    mean = mean_bound(certificate.loss_histogram())
    # The result of a simulation has the mean of the losses, a certificate that of the rounded ones.
    least, most = mean.lower * (1.0 - SAME), mean.upper * (1.0 + SAME)
    if risk is None or risk.n != certificate.n or not least <= risk.mean <= most:
        raise CertificateError(
            f"{place} is about {certificate.n} {certificate.split} records with a mean loss of "
            f"{certificate.mean:.9g}, the result beside it is about others",
            _REMEDY,
        )


def excerpt(certificate: Certificate, place: str) -> PageSection:
    """Return what a certificate says as a section; the caller has checked its figures, not its signature."""
    words = in_words(certificate)
    body = render(
        "certificate.html.jinja",
        "fedfair.certificate",
        part="excerpt",
        certificate=certificate,
        words=words,
        place=place,
    )
    return PageSection("certificate", "What is certified", body)
