"""Messages between a service and its computing process as bytes: typed, bounded, and never code.

A message is a dataclass of a closed table. Its bytes are

    length of the text (4 bytes) | text: name, line end, fields as JSON | the arrays that it names, in its order

An array in the text is its width, its shape and nothing else; the bytes must be exactly those of all arrays.
Decoding makes nothing but these dataclasses, numbers, texts and arrays of the widths below: it cannot run what a
peer sends. A number that may be infinite is written in hexadecimal, as C does, so that every bit arrives.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializationInfo,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)

from fedfair.errors import FedfairError, RemoteProtocolError

MAX_TEXT_BYTES = 16 << 20
"""The JSON of one message: a profile of very many columns, or the names of very many tensors."""

MAX_WORDS = 4000
"""Characters of a text for people."""

MAX_NAME = 64
MAX_AXES = 8

WIDTHS = {name: np.dtype(name) for name in ("<f4", "<f8", "<i8", "|u1", "|b1")}
"""Every kind of number that an array may have."""

_LENGTH = struct.Struct("<I")


@dataclass
class _Arrays:
    """The arrays of one message, in the order in which its text names them."""

    parts: list[NDArray[Any]] = field(default_factory=list)


@dataclass
class _Left:
    """The bytes of the arrays that the text has not named yet."""

    raw: memoryview


def _stated(values: NDArray[Any], info: SerializationInfo) -> list[object]:
    array = np.ascontiguousarray(values)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(np.shape(values))
    if array.dtype.str not in WIDTHS or not isinstance(info.context, _Arrays):
        raise ValueError(f"no message has an array of {array.dtype}")
    info.context.parts.append(array)
    return [array.dtype.str, *map(int, array.shape)]


def _taken(stated: object, info: ValidationInfo) -> NDArray[Any]:
    left = info.context
    if not (isinstance(stated, list) and stated and stated[0] in WIDTHS and isinstance(left, _Left)):
        raise ValueError("no array")
    width, shape = WIDTHS[stated[0]], stated[1:]
    if len(shape) > MAX_AXES or not all(type(axis) is int and 0 <= axis < 1 << 48 for axis in shape):
        raise ValueError("no shape of an array")
    size = math.prod(shape) * width.itemsize
    if size > len(left.raw):
        raise ValueError("an array is longer than its message")
    values = np.frombuffer(left.raw[:size], width).reshape(shape).copy()
    left.raw = left.raw[size:]
    if width.kind == "b" and values.size and values.view(np.uint8).max() > 1:
        raise ValueError("a truth value that is neither true nor false")
    return values


def _real(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("a number is written in hexadecimal")  # noqa: TRY004 - pydantic takes this one
    return float.fromhex(value)


Array: TypeAlias = Annotated[NDArray[Any], PlainValidator(_taken), PlainSerializer(_stated)]
"""An array of one of the widths."""

Real: TypeAlias = Annotated[float, PlainSerializer(float.hex), BeforeValidator(_real)]
"""A number of which every bit counts."""

Words: TypeAlias = Annotated[str, Field(max_length=MAX_WORDS)]
"""A text for people."""

Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{0,64}$")]
"""Bytes of a digest as hex digits; none for no digest."""

Count: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 53)]
"""A number of things."""

STRICT = ConfigDict(strict=True, extra="forbid")
"""Of every message: the types that it states and no others."""


@functools.cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    message: Any = kind
    message.__pydantic_config__ = STRICT
    return TypeAdapter(message)


def encode(message: object) -> list[bytes | memoryview]:
    """Return the bytes of a message in pieces, to be written one after the other."""
    kind: Any = type(message)
    arrays = _Arrays()
    text = b"\n".join([kind.__name__.encode(), _adapter(kind).dump_json(message, context=arrays)])
    return [_LENGTH.pack(len(text)), text, *(array.reshape(-1).view(np.uint8).data for array in arrays.parts)]


def decode(raw: bytes | bytearray | memoryview, table: Mapping[str, type[Any]]) -> object:
    """Return a message.

    Args:
        raw: its bytes; arrays are copied out of them.
        table: the dataclasses that it may be, by name.

    Raises:
        RemoteProtocolError: it is none of them; the words repeat nothing of what was sent.
    """
    whole = memoryview(raw)
    if len(whole) < _LENGTH.size:
        raise RemoteProtocolError("a message that is too short to be one")
    (length,) = _LENGTH.unpack_from(whole)
    if length > min(MAX_TEXT_BYTES, len(whole) - _LENGTH.size):
        raise RemoteProtocolError("a message whose text is longer than the message")
    text, left = whole[_LENGTH.size :][:length], _Left(whole[_LENGTH.size + length :])
    name, _, fields = bytes(text).partition(b"\n")
    kind: Any = table.get(name[:MAX_NAME].decode("ascii", "replace"))
    if kind is None:
        raise RemoteProtocolError(f"a message that is none of {', '.join(sorted(table))}")
    try:
        found: object = _adapter(kind).validate_json(fields, strict=True, context=left)
    except (ValueError, RecursionError, OverflowError, MemoryError, FedfairError) as fault:
        raise RemoteProtocolError(f"a message {kind.__name__} that is none: {_words(fault)}") from None
    if left.raw:
        raise RemoteProtocolError(f"a message {kind.__name__} with bytes that it does not name")
    return found


def _words(fault: Exception) -> str:
    """Return what kind of fault it is: the place is one of our own fields, the kind one of pydantic's words."""
    if not isinstance(fault, ValidationError):
        return type(fault).__name__
    first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{first['loc'][:1]} {first['type']}"
