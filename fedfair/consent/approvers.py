"""`approvers.yaml`: the people of a site who decide about studies, their keys, and how many must approve.

    needed: 2
    people:
      amina: {key: "ed25519:...", words: head of cardiology}
      jonas: {key: "ed25519:...", words: data protection}

The file is the site's own and nobody else's: no hub and no plan can change it. It is read again for every count,
so that the decisions of somebody who is no longer in it count nothing from then on. One key is one person: two
people with one key would be one who approves twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import Field

from fedfair.errors import ApprovalError, FedfairError, PlanError
from fedfair.plan import fields
from fedfair.plan.public_keys import parse_public_key
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import read_document

APPROVERS_FILE = "approvers.yaml"
"""Its name, in the folder of `collaborator.yaml`."""
MAX_PEOPLE = 100

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")


def parse_person(text: str) -> str:
    """Return a text as the name of a person.

    Raises:
        ApprovalError: it is not 1 to 40 of a-z, 0-9 and inner hyphens, so it can name no file.
    """
    if not _NAME.fullmatch(text):
        raise ApprovalError(
            f"{text[:80]!r} cannot name a person",
            "use 1 to 40 of a-z, 0-9 and '-', beginning and ending with a letter or digit, such as amina-k",
        )
    return text


def _parse_key(text: str) -> str:
    try:
        parse_public_key(text)
    except ValueError as error:
        raise FedfairError(str(error), "copy the line that `fedfair inbox person NAME` has printed") from error
    return text


class PersonSection(fields.Section):
    """One person who decides."""

    key: Annotated[str, fields.parsed_by(_parse_key)]
    """the person's public key, as `fedfair inbox person NAME` prints it"""
    words: str = Field(default="", max_length=200)
    """who that is, for the others, such as head of cardiology"""


class ApproversSection(fields.Section):
    """The people of one site."""

    needed: int = Field(ge=1, le=MAX_PEOPLE)
    """how many of the people must approve a study, at least 1"""
    people: dict[Annotated[str, fields.parsed_by(parse_person)], PersonSection] = Field(
        min_length=1, max_length=MAX_PEOPLE
    )
    """who decides: {NAME: {key: "ed25519:...", words: ...}}"""

    def faults(self) -> Iterator[fields.Fault]:
        """Yield every rule that the file breaks."""
        if self.needed > len(self.people):
            yield fields.Fault(
                ("needed",),
                f"is {self.needed}, of {len(self.people)} people",
                "no study could ever be approved: name more people, or need fewer",
            )
        keys = [person.key for person in self.people.values()]
        for index, key in fields.repeated(keys):
            name, first = list(self.people)[index], list(self.people)[keys.index(str(key))]
            yield fields.Fault(
                ("people", name, "key"), f"is the key of {first} too", "each person makes a key of their own"
            )


@dataclass(frozen=True, slots=True)
class Person:
    """One person who decides.

    Attributes:
        name: in file names and decisions.
        key: the public key that a decision is verified with.
        words: who that is; may be empty.
    """

    name: str
    key: Ed25519PublicKey = field(repr=False)
    words: str


@dataclass(frozen=True, slots=True)
class Approvers:
    """Everybody who decides at one site.

    Attributes:
        needed: how many must approve, from 1 to the number of people.
        people: by name.
    """

    needed: int
    people: Mapping[str, Person]

    def person(self, name: str) -> Person:
        """Return one of the people.

        Raises:
            ApprovalError: nobody has this name.
        """
        if name not in self.people:
            raise ApprovalError(
                f"{name[:80]!r} is none of the people of {APPROVERS_FILE}",
                f"they are {', '.join(self.people)}; add somebody with the line of `fedfair inbox person NAME`",
            )
        return self.people[name]


def load_approvers(path: Path) -> Approvers:
    """Return the people of a site.

    Args:
        path: of `approvers.yaml`.

    Raises:
        PlanError: the file cannot be read or breaks the schema; the message tells all faults with their lines.
    """
    if not path.exists():
        raise PlanError(
            f"{path} is missing: it names who decides about studies here, and how many must approve",
            "write needed: and people: into it; `fedfair inbox person NAME` makes a key and prints its line",
        )
    section = validated(ApproversSection, read_document(path))
    people = {
        name: Person(name, Ed25519PublicKey.from_public_bytes(parse_public_key(person.key)), person.words)
        for name, person in section.people.items()
    }
    return Approvers(section.needed, people)
