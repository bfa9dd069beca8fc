"""Makes a passport of evidence: what it states, and which requirements that answers."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from fedfair.errors import PassportError
from fedfair.passport.document import (
    CONTEXT,
    FORMAT,
    AboutModel,
    MadeStatement,
    MappedRequirement,
    Passport,
    State,
    named_information,
)
from fedfair.passport.evidence import ModelEvidence
from fedfair.passport.requirements import REQUIREMENTS
from fedfair.passport.statement import Said, StatementRoom
from fedfair.passport.table import STATEMENTS
from fedfair.version import __version__

_WORST: tuple[State, ...] = ("absent", "declared", "shown")


def drafted(evidence: ModelEvidence, issued_at: str) -> Passport:
    """Return an unsigned passport of everything that evidence shows.

    Args:
        evidence: the files.
        issued_at: the time in ISO 8601.

    Raises:
        FedfairError: a file is damaged, about another plan or model, or contradicts another.
    """
    model, said = evidence.model, made_statements(evidence)
    return Passport(
        context=CONTEXT,
        format=FORMAT,
        made_with=__version__,
        issued_at=issued_at,
        issuer=None,
        about=AboutModel(
            id=named_information(evidence.model_digest),
            name=model.origin.federation,
            digest=evidence.model_digest,
            plan_digest=evidence.agreed.digest,
        ),
        statements=said,
        requirements=mapped(said),
        files=evidence.listed(),
        signature=None,
    )


def made_statements(evidence: ModelEvidence) -> tuple[MadeStatement, ...]:
    """Return every statement of the table about this evidence."""
    made = []
    for room in STATEMENTS:
        said = room.made(evidence)
        state: State = "absent" if said is None else "declared" if room.declared or said.declared else "shown"
        told = Said((room.absent,)) if said is None else said
        shown_by = () if said is None else evidence.ids(*room.kinds)
        made.append(_statement(room, state, told, shown_by))
    return tuple(made)


def _statement(room: StatementRoom, state: State, told: Said, shown_by: tuple[str, ...]) -> MadeStatement:
    try:
        return MadeStatement(
            id=f"#{room.name}",
            title=room.title,
            state=state,
            sentences=told.sentences,
            figures=dict(told.figures),
            evidence=shown_by,
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise PassportError(
            f"the statement {room.name} has no form in a passport: {place}: {first['msg']}",
            "look at the evidence that it is made of",
        ) from error


def mapped(statements: Sequence[MadeStatement]) -> tuple[MappedRequirement, ...]:
    """Return what each requirement is answered by; one that no statement can answer is absent."""
    states = {one.id: one.state for one in statements}
    found = []
    for asked in REQUIREMENTS:
        answers = tuple(f"#{name}" for name in asked.statements)
        state: State = min((states[one] for one in answers), key=_WORST.index, default="absent")
        found.append(
            MappedRequirement(
                id=f"#{asked.name}", source=asked.source, title=asked.title, answered_by=answers, state=state
            )
        )
    return tuple(found)
