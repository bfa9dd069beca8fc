"""Shared parts of the plan's sections: strictness, field types, and how a rule reports its faults.

A section takes exactly the keys it declares and exactly the types it declares: a boolean is no number, a number
in quotes is no number, an infinity is no number; an integer is a good float and a YAML list is a good tuple. Under
every field stands what it means, with its unit and range, which is also the remedy that a person is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from fedfair.errors import FedfairError
from fedfair.ids import parse_federation_name, parse_participant_id

RULE = "fedfair_rule"
"""The pydantic error type of our own rules; its context holds `fault` and `remedy`."""

MASKED_NUMBERS = 65_536
"""A masked sum has room for so many numbers in its header: a count is one, a real number two."""

MAX_AUDITED_SLICES = 8
"""So many slices a release audit may look at by themselves."""

MAX_PLANNED_NUMBERS = 60_000
"""So many numbers the slices of a plan may add to the header of a sum."""

Item = TypeVar("Item")


class Section(BaseModel):
    """A part of a file that people write: strict, frozen, without unknown keys."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=False,
        protected_namespaces=(),
        hide_input_in_errors=True,  # what a traceback shows may be a password
        defer_build=True,  # the plan builds the validators of its sections; each builds its own where it is used
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(self, self.faults())
        return self

    def faults(self) -> Iterable[Fault]:
        """Return every rule of its own that the section breaks; none where it is a section that was validated."""
        return ()


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule.

    Attributes:
        place: keys and indices from the section that states the rule down to the value at fault.
        message: what is wrong, with the value.
        remedy: what to do about it.
    """

    place: tuple[str | int, ...]
    message: str
    remedy: str


def refuse(section: object, faults: Iterable[Fault]) -> None:
    """Raise all faults of one section at once, each at its own place; return where there is none.

    Raises:
        ValidationError: at least one rule is broken. pydantic joins it with the faults of other sections.
    """
    details = [
        InitErrorDetails(type=rule_error(fault.message, fault.remedy), loc=fault.place, input=None)
        for fault in faults
    ]
    if details:
        raise ValidationError.from_exception_data(type(section).__name__, details)


def rule_error(message: str, remedy: str) -> PydanticCustomError:
    """Return a broken rule in the form that a field's own validator may raise."""
    return PydanticCustomError(RULE, "{fault}", {"fault": message, "remedy": remedy})


def repeated(items: Sequence[Hashable]) -> Iterator[tuple[int, Hashable]]:
    """Yield the index and value of every item that occurred before; True and 1 are different."""
    seen: set[tuple[type, Hashable]] = set()
    for index, item in enumerate(items):
        key = (type(item), item)
        if key in seen:
            yield index, item
        seen.add(key)


def parsed_by(parse: Callable[[str], str]) -> AfterValidator:
    """Return the check of a field whose text has a parser of its own; what that raises becomes a broken rule."""

    def check(text: str) -> str:
        try:
            return parse(text)
        except FedfairError as error:
            raise rule_error(error.message, error.remedy) from error

    return AfterValidator(check)


def _must(holds: Callable[[str], object], fault: str, remedy: str, shown: int | None = None) -> AfterValidator:
    """Return the check of a field whose text has a form; a fault shows so many characters of it."""

    def check(text: str) -> str:
        if not holds(text):
            raise rule_error(f"{text[:shown]!r} {fault}", remedy)
        return text

    return AfterValidator(check)


_REFERENCE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9](?:[A-Za-z0-9.:-]*[A-Za-z0-9])?")


def is_reference(text: str) -> bool:
    """Return whether a text has the form "module:function"."""
    return _REFERENCE.fullmatch(text) is not None


NUMBER = "<number>"
WORD = "<word>"
"""Branches of a field that takes a number or a word; angle brackets mark them as no keys."""

LIST = "<list>"
LIST_WORD = "<list word>"
"""Branches of a field that takes a list or a word."""


def number_or_word(value: object) -> str:
    """Return the branch that a value takes, so that its fault is reported once and not for every branch."""
    return WORD if isinstance(value, str) else NUMBER


def list_or_word(value: object) -> str:
    """Return the branch that a value takes, as `number_or_word` does."""
    return LIST_WORD if isinstance(value, str) else LIST


Items = Annotated[tuple[Item, ...], Field(strict=False)]
"""A list in YAML; a tuple in Python."""

ParticipantName = Annotated[str, parsed_by(parse_participant_id)]
NameOfFederation = Annotated[str, parsed_by(parse_federation_name)]
Reference = Annotated[
    str, _must(is_reference, "is not of the form module:function", "write it like src.model:build")
]
Host = Annotated[
    str,
    _must(
        _HOST.fullmatch, "is not a host name or IP address", "give the name alone, without scheme, port or path"
    ),
]
Text = Annotated[str, Field(min_length=1, max_length=1000)]
Scalar = Annotated[
    Annotated[str, Tag("<str>")]
    | Annotated[bool, Tag("<bool>")]
    | Annotated[int, Tag("<int>")]
    | Annotated[float, Tag("<float>")],
    Discriminator(
        lambda value: f"<{type(value).__name__}>",
        custom_error_type="scalar",
        custom_error_message="must be a text, a number, true or false",
    ),
]
Digest = Annotated[str, _must(_DIGEST.fullmatch, "is not a digest", "it is 'sha256:' and 64 hex digits", 80)]
SEED = "seed"
OWN_RUN = "own-run"
WeightsOrigin = Annotated[
    str,
    _must(
        re.compile(f"{SEED}|{OWN_RUN}|{_DIGEST.pattern}").fullmatch,
        "is no origin of weights",
        "it is seed, own-run, or 'sha256:' and 64 hex digits",
        80,
    ),
]
"""Where weights come from: the plan's seed, a run of which a site has its own copy, or a digest that it names."""

PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
GroupSize = Annotated[float, Field(gt=0, le=1)]
Device = Literal["auto", "cpu", "cuda", "mps"]
Disclosure: TypeAlias = str
"""A kind of what a plan makes known, such as loss-sums; `policy.disclosures` says what each means."""

BatchSize = Annotated[
    Annotated[PositiveInt, Tag(NUMBER)] | Annotated[Literal["full"], Tag(WORD)], Discriminator(number_or_word)
]
ThresholdInit = Annotated[
    Annotated[NonNegativeFloat, Tag(NUMBER)] | Annotated[Literal["bound", "quantile"], Tag(WORD)],
    Discriminator(number_or_word),
]
Clip = Annotated[
    Annotated[PositiveFloat, Tag(NUMBER)] | Annotated[Literal["auto"], Tag(WORD)], Discriminator(number_or_word)
]
