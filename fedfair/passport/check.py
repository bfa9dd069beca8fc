"""Checks a passport: every file by its digest, and every statement computed again from the files.

Nothing here trusts the signature, so that an issuer cannot state more than the evidence shows. Whose signature it
is, is `seal.py`'s business. Works on files alone, without a network.
"""

from __future__ import annotations

from pathlib import Path

from fedfair.errors import PassportError
from fedfair.passport.document import EVIDENCE_FOLDER, MadeStatement, Passport, named_information
from fedfair.passport.evidence import ModelEvidence, evidence_in
from fedfair.passport.issue import made_statements, mapped
from fedfair.version import __version__

_REMEDY = "do not rely on it; ask its issuer for the whole folder again"


def check_passport(passport: Passport, folder: Path) -> ModelEvidence:
    """Check that a passport states what its evidence shows, and nothing else.

    Where another version of fedfair chose the words, states and figures are compared and the words are not.

    Args:
        passport: any.
        folder: that it lies in, with the evidence.

    Returns:
        The evidence.

    Raises:
        PassportError: a file is missing, is another one or is not listed; or a statement does not follow.
        FedfairError: a file of evidence is no such file, or contradicts another.
    """
    kept = [one for one in passport.files if one.confidential]
    evidence = ModelEvidence(evidence_in(folder / EVIDENCE_FOLDER), kept)
    _check_files(passport, evidence)
    about = (passport.about.digest, passport.about.plan_digest, passport.about.id, passport.about.name)
    digest, plan = evidence.model_digest, evidence.agreed
    true = (digest, plan.digest, named_information(digest), plan.plan.federation.name)
    if about != true:
        raise PassportError(
            f"the passport is about {about[0]} of {about[3]}, its evidence about {true[0]} of {true[3]}", _REMEDY
        )
    made = made_statements(evidence)
    for stated, found in zip(passport.statements, made, strict=False):
        _check_statement(stated, found, worded=passport.made_with == __version__)
    if len(passport.statements) != len(made) or passport.requirements != mapped(made):
        raise PassportError("the passport has other statements or requirements than its evidence gives", _REMEDY)
    return evidence


def _check_files(passport: Passport, evidence: ModelEvidence) -> None:
    stated = {one.id: one for one in passport.files}
    found = {one.id: one for one in evidence.listed()}
    for name in sorted(stated.keys() | found.keys()):
        if name not in found:
            raise PassportError(f"{name} is missing, which the passport lists", _REMEDY)
        if name not in stated:
            raise PassportError(f"{name} is not in the passport's list", "move it away")
        if stated[name] != found[name]:
            raise PassportError(
                f"{name} has SHA-256 {found[name].sha256}, the passport lists {stated[name].sha256}", _REMEDY
            )
    if len(stated) != len(passport.files):
        raise PassportError("the passport lists a file twice", _REMEDY)


def _check_statement(stated: MadeStatement, found: MadeStatement, *, worded: bool) -> None:
    def facts(one: MadeStatement) -> MadeStatement:
        return one if worded else one.model_copy(update={"title": "-", "sentences": ("-",)})

    if facts(stated) != facts(found):
        raise PassportError(
            f"the passport states of {found.id[1:]} what its evidence does not show: {_difference(stated, found)}",
            _REMEDY,
        )


def _difference(stated: MadeStatement, found: MadeStatement) -> str:
    """Return the first thing that differs, in words."""
    for name in ("id", "state", "evidence", "title"):
        if getattr(stated, name) != getattr(found, name):
            return f"{name} {getattr(stated, name)}, not {getattr(found, name)}"
    for name in sorted(stated.figures.keys() | found.figures.keys()):
        if stated.figures.get(name) != found.figures.get(name):
            return f"{name} {stated.figures.get(name)}, not {found.figures.get(name)}"
    said = next((one for one in stated.sentences if one not in found.sentences), "a sentence was left out")
    return repr(said)
