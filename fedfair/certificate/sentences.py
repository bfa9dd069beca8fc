"""A certificate in sentences that a policy maker reads, and never in more than its figures prove.

Numbers are rounded upwards, because every sentence says "at most". Which sentences belong together on a page or on
a terminal is decided there.
"""

from __future__ import annotations

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


def loss_title(certificate: Certificate) -> str:
    """Return what the loss is called in a sentence: just that for cross-entropy, which the limits explain."""
    return "loss" if certificate.loss == _USUAL else certificate.loss.rpartition(" in ")[0]


def loss_unit(certificate: Certificate) -> str:
    """Return the unit of every loss of a certificate."""
    return certificate.loss.rpartition(" in ")[2]


def unit_words(certificate: Certificate) -> str:
    """Return the unit behind a number; nothing for cross-entropy, whose unit the limits explain."""
    return "" if certificate.loss == _USUAL else f" {loss_unit(certificate)}"


def _said(part: str, certificate: Certificate, statement: Statement | None = None) -> tuple[str, ...]:
    """Return the sentences of one part; the statement is the main one unless another is given."""
    about = main_statement(certificate) if statement is None else statement
    return sentences(
        "fedfair.certificate",
        "sentences.txt.jinja",
        part=part,
        certificate=certificate,
        statement=about,
        bound=population_bound(certificate, about),
        people=PEOPLE[certificate.split],
        usual=certificate.loss == _USUAL,
        title=loss_title(certificate),
        unit=unit_words(certificate),
        confidence=confidence(certificate),
        range=range_words(certificate),
        mixed=_mixed(certificate),
        shares=_shares(certificate),
        clauses=_worse_than(certificate),
        untrained=UNTRAINED,
        share=share,
        at_most=at_most,
        loss=loss_text,
    )


def sample_sentence(certificate: Certificate, statement: Statement) -> str:
    """Return what holds for the evaluated people."""
    return _said("sample", certificate, statement)[0]


def population_sentence(certificate: Certificate, statement: Statement) -> str:
    """Return what holds for the population, or why nothing is said about it."""
    return _said("population", certificate, statement)[0]


def mixture_sentences(certificate: Certificate) -> tuple[str, ...]:
    """Return whom the population consists of, and how much of the evaluated records each site has."""
    return _said("mixture", certificate)


def guess_words(certificate: Certificate) -> str:
    """Return what guessing costs in a caption; nothing where guessing has no meaning."""
    return "" if certificate.uniform_floor is None else loss_text(certificate.uniform_floor)


def guess_sentence(certificate: Certificate) -> str:
    """Return what to compare a loss with."""
    return _said("guess", certificate)[0]


def verdict_sentence(certificate: Certificate) -> str:
    """Return whether the evaluated people are served worse than without a model; older files do not say.

    Of the untrained model it says first that it is one.
    """
    return _said("verdict", certificate)[0]


def limits(certificate: Certificate) -> tuple[str, ...]:
    """Return what the certificate does not mean."""
    return _said("limits", certificate)


def trained_for(certificate: Certificate) -> str:
    """Return how many rounds of training are in the model."""
    return f"{certificate.round} rounds" if certificate.round else f"0 rounds: it is {UNTRAINED}"


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


def range_words(certificate: Certificate) -> str:
    """Return how large losses count in the population statements."""
    return f"a loss above {loss_text(certificate.loss_range)} counts as {loss_text(certificate.loss_range)}"
