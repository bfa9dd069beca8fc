"""Models in files: safetensors, never a pickle, so that opening a file from somebody else runs no code.

Decides what is written beside the tensors (which are not trained, two digests, the caller's own strings) and that
a file appears whole or not at all. A vector in its layout's order is already the data segment of the format, so it
is written as it lies in memory; reading goes through the safetensors library, which checks every offset. No
torch: the aggregator imports this module. Source: the format's description in huggingface/safetensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.errors import DataError
from fedfair.store.atomic_file import OWNER_ONLY, replace_file

BUFFERS_KEY = "fedfair.buffers"
FROZEN_KEY = "fedfair.frozen"
SHA256_KEY = "fedfair.sha256"
WORDS_KEY = "fedfair.words_sha256"
RESERVED_PREFIX = "fedfair."

FORMAT_WIDTHS: dict[str, np.dtype[np.floating]] = {"F32": np.dtype(np.float32), "F64": np.dtype(np.float64)}
HEADER_ALIGNMENT = 8


def save(path: Path, layout: Layout, vector: NDArray[np.floating], metadata: Mapping[str, str]) -> None:
    """Write a model, replacing the file in one step: a reader sees the old file or the new one.

    Args:
        path: the file; its folder must exist.
        layout: where the tensors lie.
        vector: array (layout.dimension,) of the layout's width.
        metadata: strings to keep with it; keys must not begin with "fedfair.".

    Raises:
        LocalProtocolError: the vector does not fit the layout.
        DataError: the file cannot be written.
    """
    layout.unflatten(vector)
    data = np.ascontiguousarray(vector, layout.dtype.newbyteorder("<"))
    header = _header(layout, {**metadata, **_own_metadata(layout, data, metadata)})
    try:
        replace_file(path, [header, data.data], OWNER_ONLY)
    except OSError as error:
        raise DataError(f"cannot write the model to {path}: {error}", "check the folder and free space") from error


def load(path: Path) -> tuple[Layout, NDArray[np.floating], dict[str, str]]:
    """Read a model.

    Returns:
        The layout, the vector (layout.dimension,) and the caller's metadata.

    Raises:
        DataError: the file is missing, truncated, corrupt, or holds other than float32 or float64 tensors.
    """
    try:
        layout, vector, metadata = _read(path)
    except (OSError, SafetensorError, ValueError) as error:
        raise DataError(
            f"{path} is not a model that can be read: {error}", "copy the file again from where it was made"
        ) from error
    return layout, vector, _callers(metadata)


def _read(path: Path) -> tuple[Layout, NDArray[np.floating], dict[str, str]]:
    """Return the content of a file with all its metadata; ValueError where it is not a model of ours."""
    with safe_open(path, framework="numpy") as file:
        metadata: dict[str, str] = file.metadata() or {}
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        layout = _layout(
            {name: (piece.get_dtype(), tuple(piece.get_shape())) for name, piece in slices.items()},
            metadata,
        )
        vector = np.empty(layout.dimension, layout.dtype)
        for entry, place in layout.slices():
            vector[place] = file.get_tensor(entry.name).reshape(-1)
    if metadata.get(SHA256_KEY, written := _sha256(vector)) != written:
        raise ValueError("its values are not those that were written")
    own = _callers(metadata)
    if metadata.get(WORDS_KEY, written := _words_sha256(own)) != written:
        raise ValueError(f"its words ({', '.join(sorted(own))}) are not those that were written")
    return layout, vector, metadata


def _callers(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return what the caller of `save` said, without what this module adds."""
    return {key: value for key, value in metadata.items() if not key.startswith(RESERVED_PREFIX)}


def _own_metadata(layout: Layout, data: NDArray[np.floating], metadata: Mapping[str, str]) -> dict[str, str]:
    buffers = [entry.name for entry in layout.entries if not entry.trainable]
    written = {SHA256_KEY: _sha256(data), WORDS_KEY: _words_sha256(metadata)}
    frozen = {FROZEN_KEY: layout.frozen.hex()} if layout.frozen else {}
    return {BUFFERS_KEY: json.dumps(buffers), **frozen, **written}


def _words_sha256(metadata: Mapping[str, str]) -> str:
    """Return the SHA-256 of the caller's strings; it finds damage, not somebody who writes both again."""
    return hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode()).hexdigest()


def _sha256(data: NDArray[np.floating]) -> str:
    return hashlib.sha256(data.data).hexdigest()


def _header(layout: Layout, metadata: Mapping[str, str]) -> bytes:
    """Return the format's length prefix and JSON header, padded with spaces as the format asks."""
    names = {width: name for name, width in FORMAT_WIDTHS.items()}
    size = layout.dtype.itemsize
    fields: dict[str, object] = {"__metadata__": dict(metadata)}
    for entry, place in layout.slices():
        fields[entry.name] = {
            "dtype": names[layout.dtype],
            "shape": list(entry.shape),
            "data_offsets": [place.start * size, place.stop * size],
        }
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % HEADER_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _layout(tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: Mapping[str, str]) -> Layout:
    """Return the layout of the tensors that a file declares."""
    widths = {dtype for dtype, _ in tensors.values()}
    if len(widths) != 1 or not widths <= FORMAT_WIDTHS.keys():
        raise ValueError(f"it holds tensors of {sorted(widths)}, expected only F32 or only F64")
    buffers, frozen = json.loads(metadata.get(BUFFERS_KEY, "[]")), bytes.fromhex(metadata.get(FROZEN_KEY, ""))
    if not isinstance(buffers, list) or not all(name in tensors for name in buffers):
        raise ValueError(f"its {BUFFERS_KEY} name tensors that are not there")
    if len(frozen) not in {0, hashlib.sha256().digest_size}:
        raise ValueError(f"its {FROZEN_KEY} is no digest")
    entries = tuple(LayoutEntry(name, shape, name not in buffers) for name, (_, shape) in tensors.items())
    return Layout(entries, FORMAT_WIDTHS[widths.pop()], frozen)
