"""Checks that a certificate's figures follow from its histogram, and that it is about this plan and this model.

Everything is recomputed; nothing here trusts the signature, so that a signer cannot claim more than is proven.
Whether the signature is right is `seal.py`'s business. Works on files alone, without a network.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fedfair.certificate.document import Certificate
from fedfair.certificate.issue import privacy_statement, speaks_for_others
from fedfair.certificate.proof import mean_loss, nearest_statement, statements
from fedfair.certificate.verdict import certified_verdict, few_people, guess_of
from fedfair.errors import CertificateError, FedfairError
from fedfair.plan.derived import (
    given_references,
    guess_loss,
    is_masked,
    measure_of,
    planned_loss_range,
    predicts_classes,
    published_sites,
)
from fedfair.plan.losses import loss_in_words
from fedfair.plan.schema import Plan

RELATIVE = 1e-9
"""Two machines may differ by this much in the same computation, far below the last digit that people see."""


def check_figures(certificate: Certificate) -> None:
    """Recompute every figure of a certificate.

    Raises:
        CertificateError: figures do not follow from the histogram; names all of them.
    """
    try:
        faults = list(_faults(certificate))
    except FedfairError as error:
        raise CertificateError(f"the certificate's histogram proves nothing: {error.message}") from error
    if faults:
        raise CertificateError(
            "the certificate claims what its own histogram does not prove: " + "; ".join(faults),
            "do not rely on it; ask the issuer for the file again",
        )


def check_plan(certificate: Certificate, plan: Plan, plan_digest: str) -> None:
    """Check that a certificate is about a run of exactly this plan, and claims no more than the plan allows.

    Args:
        certificate: any.
        plan: the plan.
        plan_digest: its digest, "sha256:" and 64 hex digits.

    Raises:
        CertificateError: it is about another plan; names what differs.
    """
    if certificate.plan_digest != plan_digest:
        raise CertificateError(
            f"the certificate is about the plan {certificate.plan_digest}, this plan is {plan_digest}"
        )
    stated, objective = certificate.training, plan.objective
    _check_loss(certificate, plan)
    classes = certificate.classes or plan.task.classes or 0
    expected = {
        "federation": (certificate.federation, plan.federation.name),
        "algorithm": (stated.algorithm, plan.training.algorithm),
        "worst_group_size": (stated.worst_group_size, objective.worst_group_size),
        "tradeoff": (stated.tradeoff, objective.tradeoff),
        "measure": (stated.measure or "loss", measure_of(plan)),
        "references": (stated.references, given_references(plan)),
        "bins": (certificate.histogram.bins, plan.evaluation.bins),
        "loss_range": (certificate.loss_range, planned_loss_range(plan, classes)),
        "uniform_floor": (certificate.uniform_floor, guess_loss(plan, classes)),
        "privacy": (certificate.privacy, privacy_statement(plan)),
    }
    for name, (found, planned) in expected.items():
        if found != planned:
            raise CertificateError(f"the certificate says {name} {found}, the plan says {planned}")
    for fault in _plan_faults(certificate, plan):
        raise CertificateError(fault)


def _plan_faults(certificate: Certificate, plan: Plan) -> Iterator[str]:
    """Yield what a certificate says beyond what a run of the plan can tell."""
    sites, fewest, told = plan.federation.collaborators, plan.evaluation.min_group, certificate.sites or {}
    if certificate.participants > len(sites):
        yield f"the certificate says {certificate.participants} sites, the plan names {len(sites)}"
    if certificate.round > plan.training.rounds:
        yield f"the certificate is about round {certificate.round}, the plan trains {plan.training.rounds}"
    least = certificate.histogram.fewest
    if least < fewest:
        yield f"the certificate tells of as few as {least} people, the plan allows {fewest} at least"
    if certificate.masked and not is_masked(plan):
        yield "the certificate says that sums were masked, the plan says they were not"
    strangers = [name for name in told if name not in published_sites(plan)]
    if strangers:
        named = ", ".join(strangers)
        yield f"the certificate tells how many records {named} has, which the plan does not publish"
    for name, count in told.items():
        if count < fewest:
            yield f"the certificate tells of {count} records of {name}, the plan allows {fewest} at least"
    population, planned = certificate.population, plan.evaluation.site_weights or None
    if population is not None and population.weights != planned:
        yield f"the certificate weighs the sites by {population.weights}, the plan by {planned}"
    if population is not None and not speaks_for_others(certificate.split):
        yield (
            f"the certificate speaks of the population, but the run chose the model by the {certificate.split} "
            "records themselves"
        )


def _check_loss(certificate: Certificate, plan: Plan) -> None:
    words = loss_in_words(plan.task.loss)
    if certificate.loss != words:
        raise CertificateError(f"the certificate is about the {certificate.loss}, the plan's loss is the {words}")
    if predicts_classes(plan) != (certificate.classes is not None):
        raise CertificateError(
            f"the certificate says that there are {certificate.classes or 'no'} classes, and the plan's model "
            f"{'tells classes apart' if predicts_classes(plan) else 'has none'}"
        )


def check_model(certificate: Certificate, model_digest: str) -> None:
    """Check that a certificate is about exactly this model.

    Args:
        certificate: any.
        model_digest: of the model at hand, "sha256:" and 64 hex digits.

    Raises:
        CertificateError: it is about another one.
    """
    if certificate.model_digest != model_digest:
        raise CertificateError(
            f"the certificate is about the model {certificate.model_digest}, this model is {model_digest}",
            "give the model that was evaluated, byte for byte",
        )


def _faults(certificate: Certificate) -> Iterator[str]:
    histogram, published = certificate.loss_histogram(), certificate.histogram
    if certificate.n != histogram.records:
        yield f"n is {certificate.n}, the histogram holds {histogram.records} losses"
    if not _same(certificate.mean, mean_loss(histogram)):
        yield f"mean is {certificate.mean}, the histogram gives {mean_loss(histogram)}"
    told, floor = certificate.uniform_floor, guess_of(certificate.classes, certificate.uniform_floor)
    if (floor is None) != (told is None) or not _same(told or 0.0, floor or 0.0):
        yield f"uniform_floor is {certificate.uniform_floor}, guessing among {certificate.classes} costs {floor}"
    enough = min(published.fewest, certificate.n)
    if any(0 < count < enough for count in published.counts):
        yield f"a bin holds fewer than {enough} losses"
    if certificate.population is not None and certificate.split == "train":
        yield "population bounds were drawn from training records, which prove nothing about new people"
    told = sum((certificate.sites or {}).values())
    if told > certificate.n:
        yield f"the sites have {told} records, which are more than all {certificate.n}"
    population = certificate.population
    if population is not None and (population.weights is None) != (population.mixture == "evaluated records"):
        yield f"the population mixes by {population.mixture}, the weights are {population.weights}"
    if population is not None and population.weights is not None and population.method != "binomial":
        yield f"{population.method} proves nothing about weighted sites"
    sizes = [statement.group_size for statement in certificate.statements]
    if sizes != sorted(set(sizes)):
        yield "the group sizes do not increase"
    yield from _statement_faults(certificate)
    yield from _verdict_faults(certificate)


def _statement_faults(certificate: Certificate) -> Iterator[str]:
    sizes = [statement.group_size for statement in certificate.statements]
    proven = statements(certificate.loss_histogram(), sizes, certificate.population, certificate.sites)
    for stated, true in zip(certificate.statements, proven, strict=True):
        place = f"at group size {stated.group_size}"
        if not all(map(_same, stated.sample, true.sample)):
            yield f"{place} the sample interval is {stated.sample}, the histogram gives {true.sample}"
        if (stated.population is None) != (true.population is None) or not _same(
            stated.population or 0.0, true.population or 0.0
        ):
            yield f"{place} the population bound is {stated.population}, the histogram gives {true.population}"


def _verdict_faults(certificate: Certificate) -> Iterator[str]:
    outcomes, verdict, fewest = certificate.outcomes, certificate.verdict, certificate.histogram.fewest
    if outcomes is not None:
        told = len(outcomes.counts), sum(outcomes.counts)
        if told != (certificate.classes, certificate.n) or outcomes.correct > certificate.n:
            yield f"{told[1]} records of {told[0]} classes, {outcomes.correct} of them correct, are no outcomes"
            return
        if few_people(outcomes, fewest):
            yield f"the outcomes tell of fewer than {fewest} people"
    if verdict is None:
        compared = certificate.uniform_floor is not None
        if compared and {"verdict", "outcomes"} & certificate.model_fields_set:
            yield "the verdict was left out"
        return
    proven = nearest_statement(certificate.statements, certificate.training.worst_group_size)
    true = certified_verdict(proven, certificate.uniform_floor, outcomes)
    if verdict != true:
        proved = "none" if true is None else true.state
        yield f"the verdict is {verdict.state}, its figures give {proved}, or other faults"


def _same(left: float, right: float) -> bool:
    return math.isclose(left, right, rel_tol=RELATIVE, abs_tol=RELATIVE)
