"""The difference of two plans, key by key, and what each key is about for a site.

Decides which keys differ: the values in force are compared, defaults filled in, as their canonical form spells
them. So a comment, the order of keys and a default that is written out are no difference, exactly as for the
digest; the order of `categorical` columns is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from fedfair.plan.digest import canonical_json, canonical_plan
from fedfair.plan.schema import Plan


class Concern(Enum):
    """The question that a key of a plan answers for a site."""

    MEMBERSHIP = "who takes part"
    SECRECY = "secrecy"
    PRIVACY = "privacy"
    COMPUTATION = "what is computed"


class Absent(Enum):
    """A key that one of two plans does not have."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT

_CONCERNS: Mapping[str, Concern] = {
    "federation": Concern.MEMBERSHIP,
    "secure_aggregation": Concern.SECRECY,
    "privacy": Concern.PRIVACY,
    "evaluation.site_means": Concern.PRIVACY,
    "evaluation.min_group": Concern.PRIVACY,
    "evaluation.scores": Concern.PRIVACY,
    "evaluation.method": Concern.PRIVACY,
    "evaluation.slices": Concern.PRIVACY,
    "evaluation.release_audit": Concern.PRIVACY,
}
"""By the beginning of a key; every other key says what is computed."""


@dataclass(frozen=True, slots=True)
class ChangedKey:
    """One key that differs.

    Attributes:
        key: its path, such as "training.rounds".
        old: its plain value before; ABSENT where there was no such key.
        new: its plain value now; ABSENT where there is none.
        concern: what it is about.
    """

    key: str
    old: object
    new: object
    concern: Concern


def is_same_plan(old: Plan, new: Plan) -> bool:
    """Return whether two plans state the same, as their digests tell it; their code is another matter."""
    return canonical_plan(old) == canonical_plan(new)


def changed_keys(old: Plan, new: Plan) -> tuple[ChangedKey, ...]:
    """Return every key that differs, in the order of the plan."""
    found = _changes((), old.model_dump(mode="json"), new.model_dump(mode="json"))
    return tuple(
        ChangedKey(".".join(place), before, after, concern_of(".".join(place))) for place, before, after in found
    )


def concern_of(key: str) -> Concern:
    """Return what a key is about for a site."""
    return next((found for start, found in _CONCERNS.items() if _begins(key, start)), Concern.COMPUTATION)


def _begins(key: str, start: str) -> bool:
    return key == start or key.startswith(f"{start}.")


def _changes(place: tuple[str, ...], old: object, new: object) -> Iterator[tuple[tuple[str, ...], object, object]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from _changes((*place, str(key)), old.get(key, ABSENT), new.get(key, ABSENT))
        if place[-1:] == ("categorical",) and set(old) == set(new) and list(old) != list(new):
            # Features are in the order of these columns, so it is part of the digest.
            yield place, list(old), list(new)
    elif old is ABSENT or new is ABSENT or _spelling(old) != _spelling(new):
        yield place, old, new


def _spelling(value: object) -> bytes:
    # To Python 1 equals True and 1.0; the digest tells the first two apart, and reads a number by its key's type.
    return canonical_json({"": value})
