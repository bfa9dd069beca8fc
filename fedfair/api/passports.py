"""The check of a passport as a value: what `fedfair passport verify` prints, for a program."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fedfair.aggregation import model_file
from fedfair.aggregation.requests import vector_sha256
from fedfair.errors import PassportError
from fedfair.passport.check import check_passport
from fedfair.passport.document import MAX_BYTES, PAGE_FILE, PASSPORT_FILE, Passport, parse_passport
from fedfair.passport.evidence import CERTIFICATE, ModelEvidence
from fedfair.passport.page import passport_page
from fedfair.passport.seal import SEAL, verify_passport_seal
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import load_plan
from fedfair.version import __version__


@dataclass(frozen=True, slots=True)
class VerifiedPassport:
    """A passport whose statements all follow from its evidence.

    Attributes:
        passport: everything that it states.
        signed_by: whose signature was checked; None where it was not, or there is none.
        checked: what was checked, and what was not, in words.
    """

    passport: Passport
    signed_by: str | None
    checked: tuple[str, ...]


def verify_passport(
    folder: str | os.PathLike[str],
    *,
    key: str | os.PathLike[str] | None = None,
    plan: str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    cert_folder: str | os.PathLike[str] = "cert",
    unsigned: bool = False,
) -> VerifiedPassport:
    """Verify a passport offline: its files, every statement, its signature, and that it is about plan and model.

    A fault raises an error; nothing is returned for a passport that is wrong in any way.

    Args:
        folder: with `passport.json` and its evidence; or that file.
        key: the issuer's public key (`ed25519:...`), or a file that holds it; None takes `NAME/signing.pub` of
            `cert_folder`. The key never comes from the passport.
        plan: a plan's path. It must have the same sites with the same keys, as the verifier knows them.
        model: a model's file; checks that the passport is about exactly this model.
        cert_folder: folder of the workspace's keys.
        unsigned: check what the evidence shows alone. Anybody could have made such a passport.

    Returns:
        What the command prints, as a value.

    Raises:
        PassportError: it is no passport, was changed, states too much, or is about something else.
        IdentityError: the key is malformed.
        FedfairError: a file of evidence is damaged.
        OSError: a file cannot be read.
    """
    folder = Path(folder).parent if Path(folder).is_file() else Path(folder)
    place = folder / PASSPORT_FILE
    if not place.is_file():
        raise PassportError(
            f"{place} does not exist", "name the folder that `fedfair passport create` has written"
        )
    with place.open("rb") as source:
        passport = parse_passport(source.read(MAX_BYTES + 1), str(place))
    if not unsigned:
        given = None if key is None else os.fspath(key)
        verify_passport_seal(passport, SEAL.issuer_key(passport.issuer, given, None, Path(cert_folder)))
    if model is not None:
        _check_model(passport, Path(model))
    evidence = check_passport(passport, folder)
    _check_certifier(passport, evidence)
    _check_page(passport, folder / PAGE_FILE)
    if plan is not None:
        _check_plan(evidence, Path(plan))
    signer = None if unsigned or passport.issuer is None else passport.issuer.name
    return VerifiedPassport(passport, signer, tuple(_checked(passport, evidence, signer, plan, model)))


def _check_model(passport: Passport, path: Path) -> None:
    digest = format_digest(vector_sha256(model_file.load(path)[1]))
    if digest != passport.about.digest:
        raise PassportError(
            f"the passport is about the model {passport.about.digest}, {path} is {digest}",
            "give the model that it travelled with",
        )


def _check_certifier(passport: Passport, evidence: ModelEvidence) -> None:
    """Refuse a certificate that the passport's issuer should have signed and another has."""
    found, issuer = evidence.certificate, passport.issuer
    if found is None or found.issuer is None or issuer is None or found.issuer.name != issuer.name:
        return
    if found.issuer.key != issuer.key:
        raise PassportError(
            f"{evidence.of(CERTIFICATE)[0].file} is signed with the key {found.issuer.key} of {issuer.name}, "
            f"the passport with {issuer.key}",
            f"ask {issuer.name} which key is theirs",
        )


def _check_page(passport: Passport, page: Path) -> None:
    """Refuse a page for people that says something else than the file; one of another version is not compared."""
    if passport.made_with != __version__ or not page.exists():
        return
    if page.read_text(encoding="utf-8", errors="replace") != passport_page(passport):
        raise PassportError(
            f"{page} is not the page of this passport", "read passport.json, or ask for the page again"
        )


def _check_plan(evidence: ModelEvidence, path: Path) -> None:
    mine, told = load_plan(path).federation, evidence.agreed.plan.federation
    if mine.roster != told.roster:
        differing = sorted(
            name for name in {*mine.roster, *told.roster} if mine.roster.get(name) != told.roster.get(name)
        )
        raise PassportError(
            f"the plan of the passport pins another key than {path} for {', '.join(differing)}",
            "do not rely on what these sites are said to have signed",
        )


def _checked(
    passport: Passport, evidence: ModelEvidence, signer: str | None, plan: object, model: object
) -> list[str]:
    kept = [one.id.rpartition("/")[2] for one in evidence.kept]
    count = len(passport.statements)
    absent = [one.id[1:] for one in passport.statements if one.state == "absent"]
    declared = [one.id[1:] for one in passport.statements if one.state == "declared"]
    words = (
        "their words too"
        if passport.made_with == __version__
        else f"not the words, chosen by {passport.made_with}"
    )
    found = [
        f"{len(passport.files) - len(kept)} files by their digests",
        f"{count} statements, computed again from these files ({words})",
        f"signed by {signer}" if signer else "the signature was NOT checked",
        "the sites' keys are those of your plan"
        if plan is not None
        else "the sites' keys are those of the passport's own plan, not compared with yours (--plan)",
        "the model is this one"
        if model is not None
        else "the model is the one in the folder, not compared with yours (--model)",
    ]
    if kept:
        found.append(f"kept by the issuer, and not looked at: {', '.join(kept)}")
    if declared:
        found.append(f"declared by people, and shown by nothing: {', '.join(declared)}")
    if absent:
        found.append(f"not there: {', '.join(absent)}")
    return found
