"""A certificate in sentences that a policy maker reads, and never in more than its figures prove.

Numbers are rounded upwards, because every sentence says "at most". Which sentences belong together on a page or on
a terminal is decided there.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal

from fedfair.certificate.document import Certificate, Statement
from fedfair.certificate.proof import nearest_statement
from fedfair.plan.losses import CROSS_ENTROPY, loss_in_words
from fedfair.results.loss_text import decimals_for, loss_text
from fedfair.run.which_model import UNTRAINED

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


def sample_sentence(certificate: Certificate, statement: Statement) -> str:
    """Return what holds for the evaluated people."""
    return (
        f"No group making up at least {share(statement.group_size)} of the {certificate.n} evaluated people, "
        f"{PEOPLE[certificate.split]}, has a mean {loss_title(certificate)} above "
        f"{at_most(statement.sample[1])}{unit_words(certificate)}."
    )


def population_sentence(certificate: Certificate, statement: Statement) -> str:
    """Return what holds for the population, or why nothing is said about it."""
    size = share(statement.group_size)
    if certificate.population is None:
        return "Nothing is proven about people who were not evaluated: the model depends on those who were."
    bound = population_bound(certificate, statement)
    if bound is None:
        return (
            f"About groups of {size} of the population nothing is proven: {certificate.n} evaluated people are "
            f"too few for that at {confidence(certificate)} confidence."
        )
    whom = "the population that those people represent"
    if certificate.population.weights is not None:
        whom = "the population that the plan's site weights make up"
    return (
        f"With {confidence(certificate)} confidence, no group making up at least {size} of {whom} has a mean "
        f"{loss_title(certificate)} above {at_most(bound)}{unit_words(certificate)}, "
        f"where {range_words(certificate)}."
    )


def mixture_sentences(certificate: Certificate) -> Iterator[str]:
    """Yield whom the population consists of, and how much of the evaluated records each site has."""
    population = certificate.population
    if population is not None and population.weights is None:
        yield (
            "That population mixes the sites' people in the proportions of the evaluated records, one record a "
            "person."
        )
    if population is not None and population.weights is not None:
        whole = sum(population.weights.values())
        stated = ", ".join(f"{name} {weight / whole:.1%}" for name, weight in population.weights.items())
        yield f"That population mixes the sites' people by the weights that the plan declares: {stated}."
    yield _shares_sentence(certificate)


def _shares_sentence(certificate: Certificate) -> str:
    sites, n = certificate.sites, certificate.n
    if not sites:
        return "The shares of the sites in the evaluated records are not published."
    shares = [f"{name} {count / n:.1%}" for name, count in sites.items()]
    others = n - sum(sites.values())
    if others:
        shares.append(f"others {others / n:.1%}")
    return f"The evaluated records are from: {', '.join(shares)}."


def guess_words(certificate: Certificate) -> str:
    """Return what guessing costs in a caption; nothing where guessing has no meaning."""
    return "" if certificate.uniform_floor is None else loss_text(certificate.uniform_floor)


def guess_sentence(certificate: Certificate) -> str:
    """Return what to compare a loss with."""
    worst = main_statement(certificate)
    floor = certificate.uniform_floor
    if floor is None:
        mean = f"{loss_text(certificate.mean)}{unit_words(certificate)}"
        return f"Everybody's mean {loss_title(certificate)} is {mean}."
    among = "" if certificate.classes is None else f" among the {certificate.classes} outcomes"
    against = f"Guessing{among} costs everybody {loss_text(floor)}"
    if worst.sample[1] <= floor:
        return f"{against}: each of those groups of evaluated people is served better than that."
    if worst.sample[0] > floor:
        return f"{against}: the worst-off of those groups of evaluated people is served worse than that."
    return f"{against}, about as much as the worst-off of those groups of evaluated people."


def trained_for(certificate: Certificate) -> str:
    """Return how many rounds of training are in the model."""
    return f"{certificate.round} rounds" if certificate.round else f"0 rounds: it is {UNTRAINED}"


def verdict_sentence(certificate: Certificate) -> str:
    """Return whether the evaluated people are served worse than without a model; older files do not say.

    Of the untrained model it says first that it is one.
    """
    first = f"This is {UNTRAINED}: no round of training is in it. " if certificate.round == 0 else ""
    return f"{first}{_verdict_sentence(certificate)}"


def _verdict_sentence(certificate: Certificate) -> str:
    verdict = certificate.verdict
    if verdict is None and certificate.uniform_floor is None:
        return "This certificate carries no verdict: there is no guess to compare with, only a bound to judge."
    if verdict is None:
        return "This certificate carries no verdict: an older version made it."
    clauses = []
    worse = {"guessing": verdict.above_uniform_guess, "the best constant prediction": verdict.above_best_constant}
    if any(worse.values()):
        references = " and ".join(words for words, found in worse.items() if found)
        size = share(main_statement(certificate).group_size)
        clauses.append(f"the worst-off {size} of the evaluated people fare worse than by {references}")
    if verdict.below_majority:
        clauses.append("fewer predictions are right than by always naming the most frequent class")
    if clauses:
        return f"Do not use this model as it is: {', and '.join(clauses)}."
    compared = "guessing"
    if verdict.above_best_constant is not None:
        compared = "guessing, the best constant prediction and the most frequent class"
    if certificate.round == 0:
        return f"No figure here shows it worse than {compared}."
    return f"No figure here shows the model worse than {compared}; the model before training was not compared."


def confidence(certificate: Certificate) -> str:
    """Return the confidence of the population statements in percent."""
    return "no" if certificate.population is None else f"{100 - _percent(certificate.population.delta):f}%"


def range_words(certificate: Certificate) -> str:
    """Return how large losses count in the population statements."""
    return f"a loss above {loss_text(certificate.loss_range)} counts as {loss_text(certificate.loss_range)}"


def limits(certificate: Certificate) -> Iterator[str]:
    """Yield what the certificate does not mean."""
    yield _about_the_loss(certificate)
    yield (
        "It names no group, and holds for all of the stated size at once. A smaller group can fare worse than any "
        "bound here."
    )
    yield _split_limit(certificate)
    if certificate.population is not None:
        yield from _population_limits(certificate, certificate.population.delta)
    yield (
        "It trusts the sites to have reported their own losses as they are. Whoever sends wrong sums makes a "
        "wrong certificate."
    )
    if certificate.privacy == "none":
        held = [count for count in certificate.histogram.counts if count]
        yield (
            f"Its figures carry no differential privacy. It tells how many losses lie in each of {len(held)} "
            f"ranges and what they add up to; each range holds at least {min(held)}."
        )


def _about_the_loss(certificate: Certificate) -> str:
    floor = certificate.uniform_floor
    if certificate.loss != _USUAL or floor is None:
        guess = "" if floor is None else f"; guessing costs {loss_text(floor)}"
        return f"It is about a loss and not about harm. The loss is the {certificate.loss}: 0 is best{guess}."
    return (
        "It is about a loss, not about accuracy and not about harm. The loss is the cross-entropy in nats: 0 for "
        f"a sure and right answer, {loss_text(floor)} for a guess, without limit for a sure and wrong one."
    )


def _split_limit(certificate: Certificate) -> str:
    match certificate.split:
        case "test":
            return (
                "The evaluated people had no part in training. Were the model or its settings chosen by looking "
                "at how it does on them, the statements about the population would not hold."
            )
        case "validation":
            return (
                "The evaluated people are the validation records, by which the run chose among its models: this "
                "proves nothing about new people."
            )
        case "train":
            return "The model was trained on the evaluated people: this proves nothing about new people."


def _population_limits(certificate: Certificate, delta: float) -> Iterator[str]:
    yield (
        "The evaluated people were drawn from the people of their sites, each independently of the others, and "
        "everybody has one record. If they do not represent those whom the model will be used for, or the sites "
        "have other shares there, nothing is proven about these."
    )
    beyond = certificate.histogram.counts[-1]
    found = f"at most {beyond}" if beyond else "none"
    yield (
        f"About the population, {range_words(certificate)}: how much larger the largest losses are, no sample can "
        f"tell. Above it: {found} of the {certificate.n} evaluated losses."
    )
    yield (
        f"The statements about the population are all right together, for every group size, unless the draw of "
        f"the evaluated people was one of the unlucky {share(delta)}."
    )
