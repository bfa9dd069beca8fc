"""The check of a certificate as a value: what `fedfair certificate verify` prints, for a program.

Puts the checks of `fedfair.certificate` together, and finds the issuer's key, the plan and the model.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fedfair.aggregation import model_file
from fedfair.aggregation.requests import vector_sha256
from fedfair.certificate.check import check_figures, check_model, check_plan
from fedfair.certificate.document import MAX_BYTES, Certificate, parse_certificate
from fedfair.certificate.seal import SEAL, verify_seal
from fedfair.certificate.sentences import in_words, population_bound
from fedfair.errors import CertificateError
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import load_plan
from fedfair.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class VerifiedCertificate:
    """A certificate whose figures all follow from its histogram; losses in nats.

    Attributes:
        certificate: everything that the file says.
        signed_by: whose signature was checked; None where the signature was not checked, or there is none.
        checked: what was checked, and what was not, in words.
        sentences: what is proven, about the evaluated people and about the population, in words.
        limits: what this does not mean, in words.
    """

    certificate: Certificate
    signed_by: str | None
    checked: tuple[str, ...]
    sentences: tuple[str, ...]
    limits: tuple[str, ...]

    @property
    def at_most(self) -> dict[float, tuple[float, float | None]]:
        """The bounds by group size: of the evaluated people, and of the population; None where none is proven."""
        found = self.certificate
        return {each.group_size: (each.sample[1], population_bound(found, each)) for each in found.statements}

    def __str__(self) -> str:
        """Return the sentences, and what was checked."""
        return "\n".join((*self.sentences, f"checked: {'; '.join(self.checked)}"))


def verify_certificate(
    path: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    plan: Plan | str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    cert_folder: str | os.PathLike[str] = "cert",
    unsigned: bool = False,
) -> VerifiedCertificate:
    """Verify a certificate offline: its figures, its signature, and that it is about this plan and this model.

    A fault raises an error; nothing is returned for a certificate that is wrong in any way.

    Args:
        path: the certificate, `certificate.json`.
        key: the issuer's public key (`ed25519:...`), or a file that holds it; None takes it from the plan's
            roster, or from `NAME/signing.pub` in `cert_folder`. The key never comes from the certificate itself.
        plan: a plan or its path; checks that a run of exactly this plan is certified.
        model: a model's file; checks that exactly this model is certified.
        cert_folder: folder of the workspace's keys.
        unsigned: check the figures only. Anybody could have made such a certificate.

    Returns:
        What the command prints, as a value.

    Raises:
        CertificateError: the file is no certificate, was changed, claims too much, or is about something else.
        IdentityError: the key is malformed.
        PlanError: the plan cannot be read.
        OSError: there is no such file, or it cannot be read.
    """
    file = Path(path)
    certificate = parse_certificate(_content(file), str(file))
    check_figures(certificate)
    found = plan if plan is None or isinstance(plan, Plan) else load_plan(plan)
    if not unsigned:
        given = None if key is None else os.fspath(key)
        verify_seal(certificate, SEAL.issuer_key(certificate.issuer, given, found, Path(cert_folder)))
    if found is not None:
        check_plan(certificate, found, _plan_digest(found))
    if model is not None:
        check_model(certificate, format_digest(vector_sha256(model_file.load(Path(model))[1])))
    signer = None if unsigned or certificate.issuer is None else certificate.issuer.name
    words = in_words(certificate)
    return VerifiedCertificate(
        certificate,
        signer,
        _checked(certificate, signed=not unsigned, plan=found is not None, model=model is not None),
        (words.sample, words.population, *words.mixture, words.verdict),
        words.limits,
    )


def _content(path: Path) -> bytes:
    with path.open("rb") as source:
        content = source.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise CertificateError(f"{path} has more than {MAX_BYTES} bytes, so it is not a certificate")
    return content


def _plan_digest(plan: Plan) -> str:
    from fedfair.training.known_digest import digest_of

    return format_digest(digest_of(plan, (plan.workspace or Path.cwd()) / "plan" / "plan.yaml"))


def _checked(certificate: Certificate, *, signed: bool, plan: bool, model: bool) -> tuple[str, ...]:
    issuer = certificate.issuer.name if certificate.issuer is not None else "nobody"
    return (
        "every figure follows from the histogram",
        f"signed by {issuer}" if signed else "the signature was NOT checked",
        "the plan is this one" if plan else f"plan {certificate.plan_digest} not compared (--plan)",
        "the model is this one" if model else f"model {certificate.model_digest} not compared (--model)",
    )
