"""One fact of a run's state in all its forms: digest, JSON, vectors, and the way back.

A term brings the slot of what it keeps in the state; `run.state_slots` has those of every run, and the order in
which a digest covers them all. Digest, snapshot, packed bytes, journal and a site's file iterate over slots. No
torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from fedfair.aggregation.reference import References
from fedfair.aggregation.requests import GlobalModel

_Fact = TypeVar("_Fact")
_Fields = TypeVar("_Fields")
_Held = TypeVar("_Held")

Vectors = Mapping[str, NDArray[np.floating]]
"""Vectors of one slot by their names in it; the only vector of a slot is called ""."""

Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class FirstState(Protocol):
    """The part of the state before the first sum that slots read: how long vectors are, and which are kept."""

    @property
    def model(self) -> GlobalModel:
        """The model."""

    @property
    def terms(self) -> Mapping[str, Any]:
        """The states of the plan's terms, by slot."""

    @property
    def references(self) -> References | None:
        """The references; None where the plan has none."""


def _no_vectors(_: object) -> Vectors:
    return {}


def _none_known(_: object) -> Mapping[str, bytes]:
    return {}


@dataclass(frozen=True, slots=True)
class Slot(Generic[_Fact, _Fields]):
    """One fact of a state in all its forms.

    Attributes:
        digested: the bytes that stand for the fact in the digest of the state.
        fields: what of it goes into JSON, valid for `form`.
        form: checks such fields, and names their types.
        made: makes the fact of its fields and vectors again, given the state before the first sum of its plan;
            raises KeyError or ValueError where they do not fit that state.
        vectors: its vectors, not copied.
        known_sha256: the SHA-256 (32 bytes) of those vectors whose digest is computed once and kept.
        absent: the bytes that stand for no such fact.
        planned: whether the plan alone decides if there is such a fact, from the first state to the last.
    """

    digested: Callable[[_Fact], bytes]
    fields: Callable[[_Fact], _Fields]
    form: TypeAdapter[_Fields]
    made: Callable[[_Fields, Vectors, FirstState], _Fact]
    vectors: Callable[[_Fact], Vectors] = _no_vectors
    known_sha256: Callable[[_Fact], Mapping[str, bytes]] = _none_known
    absent: bytes = b""
    planned: bool = False


def same(value: Any, *_: object) -> Any:  # noqa: ANN401 - of any type
    """Return a fact that is its own fields."""
    return value


def fitting(vector: NDArray[np.floating], like: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return a vector that is as long as another; raises ValueError where it is not."""
    if vector.shape != like.shape:
        raise ValueError(f"a vector of {vector.size} numbers in place of {like.size}")
    return vector


def first_of(initial: FirstState, name: str, kind: type[_Held]) -> _Held:
    """Return what a term keeps before the first sum; raises ValueError where the plan has no such term."""
    held = initial.terms.get(name)
    if isinstance(held, kind):
        return held
    raise ValueError(f"{name} in a run without any")
