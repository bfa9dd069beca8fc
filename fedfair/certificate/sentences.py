"""A certificate in sentences that a policy maker reads, and never in more than its figures prove.

Numbers are rounded upwards, because every sentence says "at most". Which sentences belong together on a page or on
a terminal is decided there.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

from fedfair.certificate.document import Certificate, Statement
from fedfair.certificate.proof import nearest_statement
from fedfair.plan.losses import CROSS_ENTROPY, loss_in_words
from fedfair.results.loss_text import decimals_for, loss_text
from fedfair.run.which_model import UNTRAINED
from fedfair.templates import sentences

_USUAL = loss_in_words(CROSS_ENTROPY)
_NOTHING_BELOW = 1.0 - 1e-9
"""A population bound this close to the range is the range: it holds for every model whatsoever."""

PEOPLE = {
    "test": "people the model has not seen",
    "validation": "people the model was not trained on",
    "train": "people the model was trained on",
}


def share(value: float) -> str:
    """Return a share in percent, exactly as it was chosen: rounding could claim more."""
    return f"{_percent(value):f}%"


def _percent(value: float) -> Decimal:
    return (100 * Decimal(repr(value))).normalize()


def at_most(value: float) -> str:
    """Return a loss with the decimals of its size, rounded upwards."""
    return str(Decimal(value).quantize(Decimal(1).scaleb(-decimals_for(value)), ROUND_CEILING))


def population_bound(certificate: Certificate, statement: Statement) -> float | None:
    """Return what is proven about the population, or None where that is nothing."""
    bound = statement.population
    return None if bound is None or bound >= _NOTHING_BELOW * certificate.loss_range else bound


def main_statement(certificate: Certificate) -> Statement:
    """Return the statement about the group size that the model was trained for, or the nearest one."""
    return nearest_statement(certificate.statements, certificate.training.worst_group_size)


def loss_unit(certificate: Certificate) -> str:
    """Return the unit of every loss of a certificate."""
    return certificate.loss.rpartition(" in ")[2]


@dataclass(frozen=True, slots=True)
class CertificateWords:
    """What a certificate says.

    Attributes:
        sample: what holds for the evaluated people.
        population: what holds for the population, or why nothing is said about it.
        mixture: whom the population consists of, and how much of the evaluated records each site has.
        guess: what to compare a loss with.
        verdict: whether the evaluated people are served worse than without a model; older files do not say. Of
            the untrained model it says first that it is one.
        limits: what the certificate does not mean.
    """

    sample: str
    population: str
    mixture: tuple[str, ...]
    guess: str
    verdict: str
    limits: tuple[str, ...]


def in_words(certificate: Certificate) -> CertificateWords:
    """Return what a certificate says, about the main of its statements."""
    statement, usual = main_statement(certificate), certificate.loss == _USUAL
    # The limits explain cross-entropy, and its unit.
    title, unit = ("loss", "") if usual else (certificate.loss.rpartition(" in ")[0], f" {loss_unit(certificate)}")
    values: dict[str, object] = {
        "certificate": certificate,
        "statement": statement,
        "bound": population_bound(certificate, statement),
        "people": PEOPLE[certificate.split],
        "usual": usual,
        "title": title,
        "unit": unit,
        "confidence": confidence(certificate),
        "mixed": _mixed(certificate),
        "shares": _shares(certificate),
        "clauses": _worse_than(certificate),
        "untrained": UNTRAINED,
        "share": share,
        "at_most": at_most,
        "loss": loss_text,
    }

    def said(part: str) -> tuple[str, ...]:
        return sentences("fedfair.certificate", "sentences.txt.jinja", part=part, **values)

    sample, population, guess, verdict = (said(part)[0] for part in ("sample", "population", "guess", "verdict"))
    return CertificateWords(sample, population, said("mixture"), guess, verdict, said("limits"))


def guess_words(certificate: Certificate) -> str:
    """Return what guessing costs in a caption; nothing where guessing has no meaning."""
    return "" if certificate.uniform_floor is None else loss_text(certificate.uniform_floor)


def _mixed(certificate: Certificate) -> str:
    """Return the shares of the sites that the plan declares."""
    weights = {} if certificate.population is None else certificate.population.weights or {}
    return ", ".join(f"{name} {weight / sum(weights.values()):.1%}" for name, weight in weights.items())


def _shares(certificate: Certificate) -> str:
    """Return how much of the evaluated records each site has, as far as that is published."""
    sites = certificate.sites or {}
    counts = [*sites.items(), ("others", certificate.n - sum(sites.values()))]
    return ", ".join(f"{name} {count / certificate.n:.1%}" for name, count in counts if count or name in sites)


def _worse_than(certificate: Certificate) -> list[str]:
    """Return what the evaluated people fare worse by."""
    verdict, clauses = certificate.verdict, []
    if verdict is None:
        return []
    worse = {"guessing": verdict.above_uniform_guess, "the best constant prediction": verdict.above_best_constant}
    if any(worse.values()):
        references = " and ".join(words for words, found in worse.items() if found)
        size = share(main_statement(certificate).group_size)
        clauses.append(f"the worst-off {size} of the evaluated people fare worse than by {references}")
    if verdict.below_majority:
        clauses.append("fewer predictions are right than by always naming the most frequent class")
    return clauses


def confidence(certificate: Certificate) -> str:
    """Return the confidence of the population statements in percent."""
    return "no" if certificate.population is None else f"{100 - _percent(certificate.population.delta):f}%"
