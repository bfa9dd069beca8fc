"""What is proven about every sizeable group of people: the fairness certificate, checked anew."""

from __future__ import annotations

from fedfair.certificate.check import check_figures, check_model, check_plan
from fedfair.certificate.document import Certificate
from fedfair.certificate.excerpt import check_result
from fedfair.certificate.seal import verify_seal
from fedfair.certificate.sentences import in_words
from fedfair.errors import PassportError
from fedfair.fairness.population_bounds import LossHistogram, join_small_bins
from fedfair.identity.signing import parse_signing_key
from fedfair.passport.document import Figure
from fedfair.passport.evidence import CERTIFICATE, EVALUATION, MODEL, PLAN, RESULT, ModelEvidence
from fedfair.passport.statement import Said, StatementRoom, told


def _made(evidence: ModelEvidence) -> Said | None:
    found = evidence.certificate
    if found is None:
        return None
    place = evidence.of(CERTIFICATE)[0].file
    check_figures(found)
    check_plan(found, evidence.agreed.plan, evidence.agreed.digest)
    check_model(found, evidence.model_digest)
    check_result(found, evidence.result, place)
    _check_histogram(found, evidence)
    if found.issuer is not None:
        # The plan pins the keys of sites; any other key is the verifier's question, as that of the passport is.
        pinned = evidence.agreed.plan.federation.roster.get(found.issuer.name, found.issuer.key)
        verify_seal(found, parse_signing_key(pinned))
    words = in_words(found)
    figures: dict[str, Figure] = {f"at most, {one.group_size:g}": one.sample[1] for one in found.statements}
    figures |= {f"at most in the population, {one.group_size:g}": one.population for one in found.statements}
    return Said(told("certificate", words=words, certificate=found), figures)


def _check_histogram(certificate: Certificate, evidence: ModelEvidence) -> None:
    """Refuse a histogram that holds other losses than the opened sums."""
    record = evidence.evaluation
    if record is None:
        return
    sums, told = record.splits.get(certificate.split), certificate.loss_histogram()
    if sums is not None:
        planned = LossHistogram.planned(record.bins, record.loss_range, sums.counts, sums.sums)
        if join_small_bins(planned, told.fewest) == told:
            return
    raise PassportError(
        f"the certificate is not of the {certificate.split} records of the evaluation beside it",
        "run `fedfair certificate` with this evaluation",
    )


ROOM = StatementRoom(
    "certificate",
    "What is proven about every group",
    (CERTIFICATE, EVALUATION, RESULT, MODEL, PLAN),
    _made,
    "There is no fairness certificate: the issuer runs `fedfair certificate`.",
)
