"""The columns of the table of statements: what a passport has to know of each.

A room of `fedfair.passport.statements` fills them in as `ROOM`. Its `made` is a function of the evidence alone,
the same when a passport is issued and when it is checked, so nothing that the issuer says has to be believed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fedfair.passport.document import Figure
from fedfair.passport.evidence import EvidenceKind, ModelEvidence
from fedfair.templates import sentences


@dataclass(frozen=True, slots=True)
class Said:
    """What a statement says.

    Attributes:
        sentences: at least one.
        figures: the numbers in them, by name.
        declared: whether the issuer says it and nothing here shows it.
    """

    sentences: tuple[str, ...]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    declared: bool = False


@dataclass(frozen=True, slots=True)
class StatementRoom:
    """One statement.

    Attributes:
        name: its word, letters alone.
        title: of it, on the page.
        kinds: the evidence that it follows from.
        made: from the evidence to what is said; None where the evidence for it is not there. Raises a FedfairError
            where the evidence contradicts itself.
        absent: the sentence in its place: what would show it.
        declared: whether people say it and nothing shows it.
    """

    name: str
    title: str
    kinds: tuple[EvidenceKind, ...]
    made: Callable[[ModelEvidence], Said | None]
    absent: str = ""
    declared: bool = False


def told(part: str, **values: object) -> tuple[str, ...]:
    """Return the sentences of one part of the template of statements."""
    return sentences("fedfair.passport", "statements.txt.jinja", part=part, **values)
