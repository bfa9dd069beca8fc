"""Reads `--track KIND:PLACE`, and checks that the library which a kind needs is installed.

Decides which kinds there are. A place is not looked at: a store that is away must not keep a run from
starting.
"""

from __future__ import annotations

import enum
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

import typer

from fedfair.errors import DataError
from fedfair.extras import install_command


class TrackerKind(enum.Enum):
    """A kind of tracker; the value is the word before the colon."""

    MLFLOW = "mlflow"
    TENSORBOARD = "tensorboard"
    JSONL = "jsonl"


LIBRARY = {TrackerKind.MLFLOW: "mlflow", TrackerKind.TENSORBOARD: "tensorboard"}
"""The module that a kind imports; its extra has the kind's name. A kind without one needs no more than Python."""

FORMS = "mlflow:URI, tensorboard:DIR or jsonl:FILE"

Track = Annotated[
    list[str] | None,
    typer.Option("--track", help=f"Track the run in a store: {FORMS}. May be given several times."),
]


@dataclass(frozen=True, slots=True)
class TrackTarget:
    """One tracker that the operator asked for.

    Attributes:
        kind: which one.
        place: a URI, a folder or a file.
    """

    kind: TrackerKind
    place: str

    @property
    def shown(self) -> str:
        """The target as it is shown, without the name and password that a URI may hold."""
        if self.kind is not TrackerKind.MLFLOW or "@" not in self.place:
            return f"{self.kind.value}:{self.place}"
        parts = urlsplit(self.place)
        return f"{self.kind.value}:{parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()}"


def track_targets(words: Iterable[str] | None) -> tuple[TrackTarget, ...]:
    """Return the targets of all `--track` options, in order.

    Args:
        words: the texts behind the options.

    Raises:
        BadParameter: a text is no target, or stands there twice.
        DataError: the library that a target needs is not installed.
    """
    targets = tuple(_target(text) for text in words or ())
    for target in targets:
        if targets.count(target) > 1:
            raise typer.BadParameter(f"{target.shown} is named twice", param_hint="--track")
        library = LIBRARY.get(target.kind)
        if library is not None and importlib.util.find_spec(library) is None:
            fault = f"--track {target.shown} needs {library}, which is not installed"
            raise DataError(fault, install_command(target.kind.value))
    return targets


def _target(text: str) -> TrackTarget:
    kind, _, place = text.partition(":")
    if not place or kind not in {known.value for known in TrackerKind}:
        raise typer.BadParameter(f"{text!r} is not {FORMS}", param_hint="--track")
    return TrackTarget(TrackerKind(kind), place)
