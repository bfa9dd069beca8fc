"""The base of everything that a result is made of, and how a figure that there is not is left out of it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class FrozenPart(BaseModel):
    """A part of a result: built with the types that it states; `reading.py` reads more kindly."""

    model_config = ConfigDict(frozen=True, strict=True)


def given(**figures: object) -> dict[str, Any]:
    """Return the figures that are not None by their names: a field that was never set is not in the file."""
    return {name: value for name, value in figures.items() if value is not None}
