"""A site's own description of its records, signed: `fedfair/data-description/1`.

The words are the site's and nothing is counted: no figure of a record leaves by this file unless the site's people
write it. It is bound to one plan, and signed by the key that the plan's roster pins. Source of the questions:
Gebru et al. 2021, "Datasheets for datasets".
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Annotated, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedfair.aggregation.evaluation_file import Digest
from fedfair.errors import PassportError
from fedfair.file_formats import REMEDY, other_version
from fedfair.identity.signing import decode_base64, parse_signing_key
from fedfair.plan import fields
from fedfair.plan.digest import canonical_json
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import read_document
from fedfair.signed_message import labelled_message

FORMAT: Final = "fedfair/data-description/1"
LABEL: Final = "fedfair/data-description/v1"
MAX_BYTES = 64 << 10
_AGAIN = "the site makes a new one with `fedfair data describe`"

Line = Annotated[str, Field(min_length=1, max_length=1000)]

DRAFT = """\
# What this site says of its records, in a passport that travels with the model. Nothing is filled in by itself:
# write no number that you would not publish.
title: NAME OF THE RECORDS
collected: WHEN, WHERE AND HOW
people: WHO IS AMONG THEM, AND WHO IS NOT
label: HOW THE OUTCOME WAS FOUND, AND BY WHOM
gaps: WHAT IS MISSING OR KNOWN TO BE WRONG
basis: LEGAL BASIS AND APPROVAL OF THE USE
contact: WHOM TO ASK
"""
"""A file to begin with."""


class SiteWords(fields.Section):
    """The words of a site about its records; each a line of at most 1000 characters."""

    title: Line
    """name of the records"""
    collected: Line
    """when, where and how they were collected"""
    people: Line
    """the people among them, and those who are not"""
    label: Line
    """how the outcome was found, and by whom"""
    gaps: Line
    """what is missing or known to be wrong"""
    basis: Line
    """legal basis and approval of the use"""
    contact: Line
    """whom to ask"""

    def faults(self) -> list[fields.Fault]:
        """Return a fault for every line of the draft that was left as it was."""
        drafted = dict(line.split(": ", 1) for line in DRAFT.splitlines() if not line.startswith("#"))
        told = {name: getattr(self, name) for name in drafted}
        left = [name for name, words in told.items() if words == drafted[name]]
        return [
            fields.Fault((name,), f"still says {told[name]!r}", "write what is true of this site") for name in left
        ]


class SiteDescription(BaseModel):
    """A signed description.

    Attributes:
        format: the name of this format.
        federation: whose plan it is about.
        site: whose records are described.
        plan_digest: of the plan, "sha256:" and 64 hex digits.
        words: what the site says, by the names of `SiteWords`.
        signature: base64, by the site's long-lived key over everything else.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Annotated[str, Field(pattern=f"^{FORMAT}$")]
    federation: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]
    site: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]
    plan_digest: Digest
    words: dict[str, Line]
    signature: Annotated[str, Field(max_length=100)]

    def verify(self, plan: Plan, plan_digest: str, place: str) -> None:
        """Check that a site of the plan has signed exactly this about exactly this plan.

        Args:
            plan: the plan, whose roster pins the keys.
            plan_digest: its digest.
            place: the file, for the message.

        Raises:
            PassportError: it is about another plan, of no site, has other words than a description, or its
                signature does not verify.
        """
        if self.plan_digest != plan_digest:
            raise PassportError(f"{place} is about the plan {self.plan_digest}, not {plan_digest}", _AGAIN)
        if set(self.words) != set(SiteWords.model_fields):
            raise PassportError(f"{place} has not exactly the words {', '.join(SiteWords.model_fields)}", _AGAIN)
        key = plan.federation.roster.get(self.site)
        if key is None:
            raise PassportError(f"{place} is of {self.site}, whose key the plan does not pin", _AGAIN)
        try:
            parse_signing_key(key).verify(
                decode_base64(self.signature, f"the signature of {place}"), _message(self)
            )
        except InvalidSignature as error:
            raise PassportError(
                f"{place} was changed after {self.site} signed it, or another signed it", _AGAIN
            ) from error


def read_words(path: Path) -> SiteWords:
    """Return what a site has written about its records.

    Raises:
        PlanError: the file cannot be read, or breaks the form; the message tells all faults.
    """
    return validated(SiteWords, read_document(path))


def described(
    words: SiteWords, plan: Plan, plan_digest: str, site: str, key: Ed25519PrivateKey
) -> SiteDescription:
    """Return a site's signed description.

    Args:
        words: of the site.
        plan: the plan that uses the records.
        plan_digest: its digest, "sha256:" and 64 hex digits.
        site: whose records they are.
        key: the site's long-lived key.
    """
    unsigned = SiteDescription(
        format=FORMAT,
        federation=plan.federation.name,
        site=site,
        plan_digest=plan_digest,
        words=words.model_dump(),
        signature="",
    )
    signature = base64.b64encode(key.sign(_message(unsigned))).decode("ascii")
    return unsigned.model_copy(update={"signature": signature})


def to_text(description: SiteDescription) -> str:
    """Return the file's text, its one spelling."""
    return json.dumps(description.model_dump(mode="json"), indent=1) + "\n"


def parse_description(raw: bytes, place: str) -> SiteDescription:
    """Return the description that a file holds; its signature has not been checked yet.

    Args:
        raw: the file's content.
        place: the file's name, for the message.

    Raises:
        PassportError: the content is no description, in its one spelling.
    """
    if fault := other_version(raw, FORMAT, place):
        raise PassportError(fault, REMEDY)
    try:
        found = SiteDescription.model_validate_json(raw[: MAX_BYTES + 1])
    except ValidationError as error:
        raise PassportError(f"{place} is no description of a site's records", _AGAIN) from error
    if to_text(found).encode("ascii") != raw:
        raise PassportError(f"{place} is not spelt as fedfair spells a description, so it was edited", _AGAIN)
    return found


def _message(description: SiteDescription) -> bytes:
    return labelled_message(LABEL, [canonical_json(description.model_dump(mode="json", exclude={"signature"}))])
