"""A state of a run as bytes: in a site's own folder, and on its way to a site that is not in step.

An 8-byte length, a JSON header (the words of the snapshot, and name, type and length of each vector), then the
vectors, little-endian. Whoever reads it compares the digest of the state with one that it has reason to believe;
the bytes themselves prove nothing. No torch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.requests import vector_sha256
from fedfair.errors import LocalProtocolError
from fedfair.run.snapshot import (
    FIRST_MOMENTS,
    SECOND_MOMENTS,
    RunSnapshot,
    known_sha256,
    state_of,
    vectors_of,
    words_of,
)
from fedfair.run.state import RunState

FORMAT = "fedfair/packed-run-state/1"
MAX_HEADER_BYTES = 1 << 26
"""A history of ten thousand evaluations has a tenth of it."""

_WIDTHS: dict[object, np.dtype[np.floating]] = {"<f4": np.dtype("<f4"), "<f8": np.dtype("<f8")}
_Bytes = bytes | bytearray | memoryview


def greatest_state_bytes(dimension: int) -> int:
    """Return the greatest length of a packed state: seven vectors of the model's length in float64 and a header.

    Args:
        dimension: of the model.
    """
    return 7 * 8 * dimension + 2 * MAX_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class PackedParts:
    """A packed state in its parts.

    Attributes:
        words: all that comes before the vectors.
        vectors: their bytes, in order; those of this machine's order are not copied.
        digests: the SHA-256 (32 bytes) of each.
    """

    words: bytes
    vectors: list[memoryview]
    digests: list[bytes]


class StatePacker:
    """Packs states that follow one another: what one of them has from the one before is put into words once."""

    def __init__(self) -> None:
        self._told = dict[str, tuple[object, str]]()

    def parts(self, state: RunState) -> PackedParts:
        """Return a packed state in its parts; a digest that the state knows already is not computed again."""
        facts = state.facts
        taken, known = vectors_of(facts), known_sha256(facts)
        # Facts are values, so the very same one has the same words; those of the state before are held no longer.
        self._told = {name: self._words(name, fact) for name, fact in facts.items()}
        words, vectors = _packed({name: text for name, (_, text) in self._told.items()}, taken)
        digests = [known.get(name) or vector_sha256(vector) for name, vector in taken.items()]
        return PackedParts(words, vectors, digests)

    def _words(self, name: str, fact: object) -> tuple[object, str]:
        told = self._told.get(name)
        return told if told is not None and told[0] is fact else (fact, _text(name, fact))


def pack_state(state: RunState) -> list[bytes | memoryview]:
    """Return the bytes of a state in parts; vectors of this machine's order are not copied."""
    facts = state.facts
    words, vectors = _packed({name: _text(name, fact) for name, fact in facts.items()}, vectors_of(facts))
    return [words, *vectors]


def _text(name: str, fact: object) -> str:
    return json.dumps(words_of(name, fact))


def _packed(state: Mapping[str, str], taken: Mapping[str, NDArray[np.floating]]) -> tuple[bytes, list[memoryview]]:
    """Return the packed form of a state whose facts are in JSON already, by name."""
    vectors = {name: np.ascontiguousarray(vector, _little(vector)) for name, vector in taken.items()}
    table = json.dumps([[name, vector.dtype.str, vector.size] for name, vector in vectors.items()])
    words = ", ".join([f'"{name}": {text}' for name, text in state.items()])
    header = f'{{"format": "{FORMAT}", "state": {{{words}}}, "vectors": {table}}}'.encode()
    return struct.pack("<Q", len(header)) + header, [vector.data.cast("B") for vector in vectors.values()]


def unpack_state(raw: _Bytes, initial: RunState) -> RunState:
    """Return the state of `pack_state`.

    Args:
        raw: the bytes; anything that somebody has sent.
        initial: the state before the first sum of the same plan.

    Raises:
        LocalProtocolError: they are cut, damaged, of another version or of another plan.
    """
    view = memoryview(raw).cast("B")
    try:
        (length,) = struct.unpack_from("<Q", view)
        if not 0 < length <= min(MAX_HEADER_BYTES, len(view) - 8):
            raise _unreadable(f"a header of {length} bytes in {len(view)}")
        header = json.loads(bytes(view[8 : 8 + length]))
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise _unreadable("it is of another form")
        vectors = _vectors(view[8 + length :], header["vectors"])
        words = header["state"]
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(str(error)) from error
    if not isinstance(words, dict):
        raise _unreadable("its words are no table")
    return state_of(RunSnapshot(words, vectors), initial)


def _vectors(view: memoryview, table: Sequence[Sequence[object]]) -> dict[str, NDArray[np.floating]]:
    found, at = dict[str, NDArray[np.floating]](), 0
    for name, width, size in table:
        if not isinstance(name, str) or width not in _WIDTHS or not isinstance(size, int) or size < 0:
            raise _unreadable(f"a vector {name!r} of {size!r} values of {width!r}")
        stop = at + size * _WIDTHS[width].itemsize
        if stop > len(view):
            raise _unreadable(f"the vector {name!r} is cut off")
        read = np.frombuffer(view[at:stop], _WIDTHS[width])
        # Moments go where their owner has room; of the rest nothing must hold on to all of these bytes.
        found[name] = read if name in {FIRST_MOMENTS, SECOND_MOMENTS} else read.copy()
        at = stop
    if at != len(view):
        raise _unreadable(f"{len(view) - at} bytes too many")
    return found


def _little(vector: NDArray[np.floating]) -> np.dtype[np.floating]:
    return vector.dtype.newbyteorder("<")


def _unreadable(why: str) -> LocalProtocolError:
    return LocalProtocolError(f"a state of the run cannot be read: {why}")
