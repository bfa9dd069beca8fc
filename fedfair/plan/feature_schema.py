"""The schema of a model's data: the shape, the columns and the classes that all sites share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter, ValidationError

from fedfair.errors import DataError


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """The features that a model must accept and the classes that it must return.

    Attributes:
        input_shape: shape of one record's features: (columns,), or (channels, height, width).
        classes: number of classes, at least 2.
        numeric: indices of the feature columns that standardisation applies to; empty for images.
        names: one name per feature column; empty for images.
        units: for each numeric column the power of two that its sums are counted in; empty where all are 1.
        ranges: for each numeric column the least and the greatest value that it is declared to have, in its own
            unit, the second greater; empty where they are not known of all.
    """

    input_shape: tuple[int, ...]
    classes: int
    numeric: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    units: tuple[float, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()

    def name_of(self, place: tuple[int, ...]) -> str:
        """Return what to call the feature at `place` in a message."""
        return f"'{self.names[place[0]]}'" if self.names else f"feature {place}"

    def to_json(self) -> str:
        """Return the schema as text, for the metadata of a file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> FeatureSchema:
        """Return the schema that `to_json` wrote.

        Raises:
            DataError: the text is something else.
        """
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            raise DataError(f"{text[:80]!r} is not the schema of a model's data") from error
