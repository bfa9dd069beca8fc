"""A passport as a file: the JSON contract `fedfair/passport/1`, which is JSON-LD, and its one spelling.

    passport/passport.json     what is said, about which model, by which files; signed
    passport/passport.html     the same for people
    passport/evidence/         the files

Decides which facts a passport states, in which form, and that a file has no byte outside them. Whether they follow
from the evidence is `check.py`'s business, who signed them `seal.py`'s. The context maps the names to schema.org,
Dublin Core and PROV, and stands in the file itself, so that nothing is fetched to read it. A digest in an `ni:`
name is that of RFC 6920. Source of the form: JSON-LD 1.1, W3C Recommendation of 2020.
"""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedfair.aggregation.evaluation_file import Digest
from fedfair.errors import PassportError
from fedfair.file_formats import REMEDY, other_version

FORMAT: Final = "fedfair/passport/1"
MAX_BYTES = 4 << 20
MAX_FILES = 1000
PASSPORT_FILE = "passport.json"
PAGE_FILE = "passport.html"
EVIDENCE_FOLDER = "evidence"

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}$")]
Words = Annotated[str, Field(min_length=1, max_length=1 << 16)]
FileId = Annotated[str, Field(pattern=rf"^{EVIDENCE_FOLDER}/[a-z0-9][a-z0-9.-]{{0,99}}$")]
State: TypeAlias = Literal["shown", "declared", "absent"]
Figure: TypeAlias = bool | int | float | str | None

_AGAIN = "ask its issuer for the file as `fedfair passport create` made it"

CONTEXT: Final[dict[str, Any]] = {
    "@version": 1.1,
    "@vocab": "urn:fedfair:passport:1:",
    "id": "@id",
    "type": "@type",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "schema": "https://schema.org/",
    "Passport": "prov:Entity",
    "Model": "prov:Entity",
    "EvidenceFile": "schema:MediaObject",
    "about": "schema:about",
    "issuedAt": {"@id": "prov:generatedAtTime", "@type": "http://www.w3.org/2001/XMLSchema#dateTime"},
    "issuer": "dct:publisher",
    "name": "schema:name",
    "title": "dct:title",
    "sentences": {"@id": "schema:text", "@container": "@list"},
    "figures": {"@id": "urn:fedfair:passport:1:figures", "@type": "@json"},
    "evidence": {"@id": "prov:wasDerivedFrom", "@type": "@id", "@container": "@set"},
    "files": {"@id": "dct:hasPart", "@container": "@set"},
    "statements": {"@id": "urn:fedfair:passport:1:statements", "@container": "@list"},
    "requirements": {"@id": "urn:fedfair:passport:1:requirements", "@container": "@list"},
    "answeredBy": {"@id": "dct:isReferencedBy", "@type": "@id", "@container": "@set"},
    "bytes": "schema:contentSize",
    "mediaType": "schema:encodingFormat",
    "sha256": "schema:sha256",
}
"""The meaning of every name of the file."""


class _Part(BaseModel):
    """Everything that a passport is made of is fixed, complete, and of exactly the type it says."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)


class PassportIssuer(_Part):
    """The issuer of the passport.

    Attributes:
        name: the participant, usually `aggregator`.
        key: its public signing key, "ed25519:" and base64.
    """

    name: Name
    key: Words


class AboutModel(_Part):
    """The model that all of it is about.

    Attributes:
        id: its digest as an `ni:` name.
        type: Model.
        name: of the federation that trained it.
        digest: SHA-256 of the model's flat vector, as in `fedfair/evaluation/1`.
        plan_digest: of the plan that it was trained by.
    """

    id: Words
    type: Literal["Model"] = "Model"
    name: Name
    digest: Digest
    plan_digest: Digest


class ListedFile(_Part):
    """One file of evidence.

    Attributes:
        id: its path from the passport.
        type: EvidenceFile.
        kind: what it is, one of `evidence.KINDS`.
        sha256: 64 hex digits.
        bytes: its length.
        media_type: of its content.
        confidential: whether it may stay with the issuer; an auditor who has it puts it where `id` says.
    """

    id: FileId
    type: Literal["EvidenceFile"] = "EvidenceFile"
    kind: Name
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0)]
    media_type: Annotated[Words, Field(alias="mediaType")]
    confidential: bool


class MadeStatement(_Part):
    """One statement.

    Attributes:
        id: "#" and its name.
        title: of it.
        state: shown, where it follows from evidence; declared, where people say it and nothing shows it; absent.
        sentences: what is said; of an absent one, what would show it.
        figures: the numbers in it, by name.
        evidence: the files that it follows from.
    """

    id: Annotated[str, Field(pattern=r"^#[a-z]{1,40}$")]
    title: Words
    state: State
    sentences: Annotated[tuple[Words, ...], Field(min_length=1, max_length=1000)]
    figures: dict[str, Figure]
    evidence: tuple[FileId, ...]


class MappedRequirement(_Part):
    """What somebody asks to be told of a model, and which statements answer.

    Attributes:
        id: "#" and a name.
        source: the law or form, with the article or section.
        title: what it asks.
        answered_by: the statements that answer, absent ones too.
        state: shown, where all of these are; declared, where one is and none is absent; absent, where one is.
    """

    id: Annotated[str, Field(pattern=r"^#[a-z0-9-]{1,60}$")]
    source: Words
    title: Words
    answered_by: Annotated[tuple[str, ...], Field(alias="answeredBy")]
    state: State


class Passport(_Part):
    """A passport.

    Attributes:
        context: `CONTEXT`.
        format: the name of this format.
        type: Passport.
        made_with: the version of fedfair that chose the words.
        issued_at: when, in ISO 8601; for people, not compared.
        issuer: who signed it; null for an unsigned one.
        about: the model.
        statements: in the order of the table.
        requirements: in the order of their list.
        files: of the evidence, by name.
        signature: base64, over everything else; null for an unsigned one.
    """

    context: Annotated[dict[str, Any], Field(alias="@context")]
    format: Literal["fedfair/passport/1"]
    type: Literal["Passport"] = "Passport"
    made_with: Annotated[Words, Field(alias="madeWith")]
    issued_at: Annotated[str, Field(alias="issuedAt", pattern=r"^[0-9T:+.Z-]{1,64}$")]
    issuer: PassportIssuer | None
    about: AboutModel
    statements: Annotated[tuple[MadeStatement, ...], Field(min_length=1, max_length=100)]
    requirements: tuple[MappedRequirement, ...]
    files: Annotated[tuple[ListedFile, ...], Field(min_length=1, max_length=MAX_FILES)]
    signature: Words | None

    def facts(self) -> dict[str, Any]:
        """Return everything but the signature, by the names of the file."""
        return self.model_dump(mode="json", by_alias=True, exclude={"signature"})


def named_information(digest: str) -> str:
    """Return a digest as an `ni:` name (RFC 6920, section 3).

    Args:
        digest: "sha256:" and 64 hex digits.
    """
    raw = bytes.fromhex(digest.removeprefix("sha256:"))
    return "ni:///sha-256;" + base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def to_text(passport: Passport) -> str:
    """Return the file's text; every number is spelt so that it reads back as the same number."""
    dumped = passport.model_dump(mode="json", by_alias=True)
    return json.dumps(dumped, indent=1, ensure_ascii=True) + "\n"


def parse_passport(raw: bytes, place: str) -> Passport:
    """Return the passport that a file holds; nothing it says has been checked yet.

    Args:
        raw: the file's content.
        place: the file's name, for the message.

    Raises:
        PassportError: the content is not a passport of this format, in its one spelling.
    """
    if len(raw) > MAX_BYTES:
        raise PassportError(f"{place} has {len(raw)} bytes, more than a passport can have", _AGAIN)
    if fault := other_version(raw, FORMAT, place):
        raise PassportError(fault, REMEDY)
    try:
        passport = Passport.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise PassportError(f"{place} is no passport: {where}: {first['msg']}", _AGAIN) from error
    if to_text(passport).encode("ascii") != raw:
        raise PassportError(f"{place} is not spelt as fedfair spells a passport, so it was edited", _AGAIN)
    if passport.context != CONTEXT:
        raise PassportError(f"{place} gives its names another meaning than fedfair does", _AGAIN)
    return passport
