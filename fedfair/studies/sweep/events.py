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


@dataclass(frozen=True, slots=True)
class PointAdvanced:
    """A point that is running has done so many rounds; an engine may never say so."""

    point: Point
    rounds: int


@dataclass(frozen=True, slots=True)
class PointFinished:
    """A point has its result (`fedfair/result/1`)."""

    point: Point
    result: ResultDocument


@dataclass(frozen=True, slots=True)
class PointFailed:
    """A point will have no result in this run."""

    point: Point
    failure: Failure


Event: TypeAlias = PointAdvanced | PointFinished | PointFailed

Engine: TypeAlias = Callable[[Sequence[Point]], Generator[Event, None, None]]
"""Runs points and reports exactly one Finished or Failed for each, in any order. Closing the iterator ends its
workers and loses only what they were running."""
