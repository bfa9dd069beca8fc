"""The events that an engine reports while it runs points, and the engine's interface."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fedfair.results.document import ResultDocument
from fedfair.studies.sweep.grid import Point


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a point has no result.

    Attributes:
        message: what is wrong.
        remedy: what to do about it; may be empty.
    """

    message: str
    remedy: str = ""


Said: TypeAlias = int | ResultDocument | Failure
"""What is said of a point: how many rounds it has done, its result (`fedfair/result/1`), or why it has none."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something is said of a point; an engine may never say how far one is.

    Attributes:
        point: the point.
        said: what is said of it.
    """

    point: Point
    said: Said

    @property
    def ends(self) -> bool:
        """Whether the point is not running any more."""
        return not isinstance(self.said, int)


Engine: TypeAlias = Callable[[Sequence[Point]], Generator[Event, None, None]]
"""Runs points and reports exactly one end of each, in any order. Closing the iterator ends its
workers and loses only what they were running."""
