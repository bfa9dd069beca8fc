"""Images in idx files: MNIST, and sets of the same form such as Fashion-MNIST.

Decides that a file is what its header says before anything of that size is allocated. Plain and gzip files are
taken, under the names that LeCun gave them. Format: http://yann.lecun.com/exdb/mnist (magic number, one big-endian
32-bit length for each dimension, then the bytes).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.sources import MnistData
from fedfair.plan.task import TaskSection
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.file_kinds import READ_ERRORS, open_binary
from fedfair.tables.source_modules import DataPaths, FileRecords
from fedfair.tables.text_file import find_file

SCHEMA = FeatureSchema((1, 28, 28), 10)

CHUNK = 1 << 20
REMEDY = "copy the files again; one may have been cut or renamed"


@dataclass(frozen=True, slots=True)
class IdxForm:
    """One kind of idx file: its magic number, what it holds, and the shape of one record."""

    magic: int
    what: str
    record_shape: tuple[int, ...]

    @property
    def header(self) -> struct.Struct:
        """The magic number and one length for each dimension, big-endian."""
        return struct.Struct(f">{2 + len(self.record_shape)}I")


IMAGES = IdxForm(2051, "images", SCHEMA.input_shape[1:])
LABELS = IdxForm(2049, "labels", ())


def planned_schema(stated: MnistData, task: TaskSection) -> FeatureSchema:
    """Return the schema of the pictures."""
    return SCHEMA


def read(stated: MnistData, task: TaskSection, paths: DataPaths, extra: tuple[str, ...]) -> FileRecords:
    """Return the records of a folder."""
    return FileRecords(load_mnist(paths.folder))


def load_mnist(folder: Path) -> Splits:
    """Return the training and test records, bytes with shape (1, 28, 28).

    Args:
        folder: holds train-images-idx3-ubyte, train-labels-idx1-ubyte and the same for t10k, plain or .gz.

    Raises:
        DataError: a file is missing, damaged or not of this form.
    """
    return Splits(_part(folder, "train"), test=_part(folder, "t10k"))


def read_idx(path: Path, form: IdxForm) -> NDArray[np.uint8]:
    """Return the array of one idx file of unsigned bytes.

    Args:
        path: the file, plain or gzip.
        form: IMAGES or LABELS.

    Raises:
        DataError: the file has another magic number or shape, or is shorter or longer than its header says.
    """
    try:
        with open_binary(path) as file:
            shape = _shape(path, form, file.read(form.header.size))
            # Read by the chunk: a header that lies about the length must not make this machine allocate it.
            content = bytearray()
            while len(content) <= math.prod(shape) and (chunk := file.read(CHUNK)):
                content += chunk
    except READ_ERRORS as error:
        raise DataError(f"{path} cannot be read: {error}", REMEDY) from error
    if len(content) != math.prod(shape):
        length = f"{len(content)} bytes" + (" or more" if len(content) > math.prod(shape) else "")
        raise DataError(f"{path} holds {length} of {form.what}, its header declares {math.prod(shape)}", REMEDY)
    return np.frombuffer(content, np.uint8).reshape(shape)


def _shape(path: Path, form: IdxForm, start: bytes) -> tuple[int, ...]:
    if len(start) < form.header.size:
        raise DataError(f"{path} ends within its header", REMEDY)
    magic, *shape = form.header.unpack(start)
    if magic != form.magic:
        raise DataError(f"{path} is not an idx file of {form.what}: its magic number is {magic}, not {form.magic}")
    if tuple(shape[1:]) != form.record_shape:
        raise DataError(f"{path} declares {form.what} of shape {tuple(shape[1:])}, expected {form.record_shape}")
    return tuple(shape)


def _part(folder: Path, name: str) -> Dataset:
    images_path = find_file(folder, f"{name}-images-idx3-ubyte", f"{name}-images.idx3-ubyte")
    labels_path = find_file(folder, f"{name}-labels-idx1-ubyte", f"{name}-labels.idx1-ubyte")
    images, labels = read_idx(images_path, IMAGES), read_idx(labels_path, LABELS)
    if len(images) != len(labels):
        raise DataError(f"{images_path} holds {len(images)} images, {labels_path} {len(labels)} labels", REMEDY)
    return Dataset(images[:, np.newaxis], labels.astype(np.int64), SCHEMA)
