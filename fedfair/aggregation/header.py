"""The header of a sum as named fields: a table of what its numbers are, from which everything else follows.

A statistic declares its header once, as fields with a name, a shape and a kind. The length of the vector, which of
its numbers are counts, and a view of it by name are derived. So nobody knows a place in a vector by its index, and
a further number is a further field. A vector with names is a structured array of numpy.

A sum may be over a single record, by chance or because somebody has chosen what is asked. So each field also says
how much its numbers tell of a record that is alone in them: few bits, or as much as there is, and then what a site
relies on instead. Tests measure the bits.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import LocalProtocolError

NO_RECORDS = "no site takes part with as many records as its own policy.min_records says"
"""Why a sum over all sites may be over no record."""


class Number(enum.Enum):
    """The kind of a field's numbers.

    A weight is a count that secure aggregation carries by itself, beside the header. A public count stays a whole
    number where noise protects single records. A count does so only without that noise; with it, it is a real.
    """

    WEIGHT = "weight"
    PUBLIC_COUNT = "public count"
    COUNT = "count"
    REAL = "real"


@dataclass(frozen=True, slots=True)
class Bits:
    """The numbers of a field tell at most so much of a record that made them alone.

    Attributes:
        most: log2 of the number of values that they may have then.
        each: whether each of the numbers tells so much, and not all of them together.
    """

    most: float
    each: bool = False


def one_of(values: int) -> Bits:
    """Return what the numbers disclose of a field that have one of so many values, all of them together."""
    return Bits(math.log2(values))


@dataclass(frozen=True, slots=True)
class Everything:
    """The numbers tell of a lone record whatever can be computed from it.

    Attributes:
        guard: why a site can live with that, and which term of its policy or key of the plan forbids it.
    """

    guard: str


@dataclass(frozen=True, slots=True)
class Field:
    """A number, or an array of numbers of one kind.

    Attributes:
        name: a word.
        number: what its numbers are.
        shape: lengths of its axes; () for one number. An axis of length 0 leaves the field without a value.
        lone: what its numbers tell of a record that is alone in them.
    """

    name: str
    number: Number
    shape: tuple[int, ...] = ()
    lone: Bits | Everything = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Group:
    """The same fields again and again, such as once for each split.

    Attributes:
        name: a word.
        fields: of each repetition.
        shape: how often, along each axis.
    """

    name: str
    fields: tuple[Field, ...]
    shape: tuple[int, ...]


class Header:
    """The layout of a header: its fields, one after the other.

    Args:
        fields: in the order of the vector.

    Attributes:
        fields: the same.
        length: number of float64 values.
    """

    def __init__(self, *fields: Field | Group) -> None:
        self.fields = fields
        self._dtype = _dtype(fields)
        self.length = self._dtype.itemsize // np.dtype(np.float64).itemsize

    def zeros(self) -> NDArray[np.float64]:
        """Return a header of zeros: float64 array (length,)."""
        return np.zeros(self.length)

    def read(self, values: NDArray[np.float64]) -> NDArray[Any]:
        """Return a view of a header by name: `read(values)["splits"]["records"]`, an array of the field's shape.

        What is written to the view is written to `values`.

        Args:
            values: float64 array (length,), contiguous.

        Raises:
            LocalProtocolError: the array has another shape or width.
        """
        if values.shape != (self.length,) or values.dtype != np.float64:
            raise LocalProtocolError(
                f"a header of {self.length} float64 values was expected, not {values.shape} of {values.dtype}"
            )
        if not self.length:
            return np.zeros((), self._dtype)
        return values.view(self._dtype).reshape(())

    def built(self, **values: object) -> NDArray[np.float64]:
        """Return a header with these values.

        Args:
            **values: for each field or group; what is left out stays 0.

        Returns:
            float64 array (length,).
        """
        header = self.zeros()
        view = self.read(header)
        for name, value in values.items():
            view[name] = value
        return header

    def counts(self, *, noised: bool) -> NDArray[np.bool_]:
        """Return which values are whole numbers: bool array (length,), read-only. The others are real numbers.

        Args:
            noised: whether every site adds noise to what its records add.
        """
        return self._whole_under_noise if noised else self._whole

    def weights(self) -> NDArray[np.bool_]:
        """Return which values secure aggregation carries by itself: bool array (length,), read-only."""
        return self._weights

    @cached_property
    def _weights(self) -> NDArray[np.bool_]:
        return self._chosen({Number.WEIGHT})

    @cached_property
    def _whole_under_noise(self) -> NDArray[np.bool_]:
        return self._chosen({Number.WEIGHT, Number.PUBLIC_COUNT})

    @cached_property
    def _whole(self) -> NDArray[np.bool_]:
        return self._chosen({Number.WEIGHT, Number.PUBLIC_COUNT, Number.COUNT})

    def _chosen(self, numbers: Collection[Number]) -> NDArray[np.bool_]:
        header = self.zeros()
        view = self.read(header)
        for path, leaf in self.leaves():
            part = view
            for name in path[:-1]:
                part = part[name]
            part[path[-1]] = float(leaf.number in numbers)
        chosen: NDArray[np.bool_] = header == 1.0
        chosen.flags.writeable = False
        return chosen

    def leaves(self) -> Iterator[tuple[tuple[str, ...], Field]]:
        """Yield each field with its name, before which the name of its group stands, if it is in one."""
        for part in self.fields:
            if isinstance(part, Group):
                yield from (((part.name, leaf.name), leaf) for leaf in part.fields)
            else:
                yield (part.name,), part


def _dtype(fields: tuple[Field | Group, ...]) -> np.dtype[Any]:
    return np.dtype(
        [
            (part.name, _dtype(part.fields) if isinstance(part, Group) else np.float64, part.shape)
            for part in fields
        ]
    )
