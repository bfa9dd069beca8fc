"""The schema of a model's data: the shape, the columns, and the classes or other answers that all sites share."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError

from fedfair.errors import DataError

_LATER = frozenset({"outputs", "targets", "ordered"})
"""Fields that older files lack."""


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """The features that a model must accept and what it must return.

    Attributes:
        input_shape: shape of one record's features: (columns,), or (channels, height, width).
        classes: number of classes, at least 2; 0 where a record's answer is no class.
        numeric: indices of the feature columns that standardisation applies to; empty for images.
        names: one name per feature column; empty for images.
        units: for each numeric column the power of two that its sums are counted in; empty where all are 1.
        ranges: for each numeric column the least and the greatest value that it is declared to have, in its own
            unit, the second greater; empty where they are not known of all.
        outputs: shape of what a model returns for one record; () for one logit for each class.
        targets: shape of one record's answer; () for one class or one number.
        ordered: whether the classes are in order, so that the outputs are cumulative logits, which must fall.
    """

    input_shape: tuple[int, ...]
    classes: int
    numeric: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    units: tuple[float, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()
    outputs: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()
    ordered: bool = False

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of what a model returns for one record."""
        return self.outputs or (self.classes,)

    def name_of(self, place: tuple[int, ...]) -> str:
        """Return what to call the feature at `place` in a message."""
        return f"'{self.names[place[0]]}'" if self.names else f"feature {place}"

    def to_json(self) -> str:
        """Return the schema as text, for the metadata of a file."""
        # A schema of plain classes is written as it was before there were others.
        values = asdict(self)
        return json.dumps({name: value for name, value in values.items() if value or name not in _LATER})

    @classmethod
    def from_json(cls, text: str) -> FeatureSchema:
        """Return the schema that `to_json` wrote.

        Raises:
            DataError: the text is something else.
        """
        try:
            return _form().validate_json(text)
        except ValidationError as error:
            raise DataError(f"{text[:80]!r} is not the schema of a model's data") from error


@functools.cache
def _form() -> TypeAdapter[FeatureSchema]:
    return TypeAdapter(FeatureSchema)
