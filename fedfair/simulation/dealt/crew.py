"""The contract between who adds partial sums and the workers who make them, and what is said when one is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Call:
    """One question to a worker: a method of `Share` and what it is given."""

    method: str
    given: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Lost:
    """The loss of a worker before it answered; what it knew is gone.

    Attributes:
        reason: in words, on one line.
    """

    reason: str


class Crew(Protocol):
    """Workers, numbered from 0; each has a `Share` and answers by it."""

    @property
    def workers(self) -> int:
        """Return how many there are."""

    def ask(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Return the answer of each worker that is asked, or `Lost` where it was lost."""

    def keep(self, worker: int) -> Any:  # noqa: ANN401 - a value, or a place where it lies
        """Return what `Share.restore` takes, of a worker as it is now, which outlives that worker; or `Lost`."""

    def replace(self, worker: int) -> None:
        """Put a new worker with an empty share in the place of one that was lost."""
