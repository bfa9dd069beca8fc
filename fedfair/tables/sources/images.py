"""A folder of images with a table of attributes, as CelebA has it.

Decides how images become features (resized, one byte a value, channels first) and attributes labels (-1 or 0 is
class 0, 1 is class 1). The table is CelebA's own text (a count, a header, then one line per image, separated by
blanks) or a CSV with one row per image, whose first column is the file's name. Where `list_eval_partition` lies
beside the table, it decides which image is for training (0), validation (1) and test (2), as Liu et al. 2015 cut
CelebA.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedfair.errors import DataError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.sources import ImageData
from fedfair.plan.task import TaskSection
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.feature_storage import FeatureStorage, forget
from fedfair.tables.file_kinds import READ_ERRORS, open_binary
from fedfair.tables.source_modules import DataPaths, FileRecords
from fedfair.tables.text_file import find_file, read_table
from fedfair.tables.text_table import Faults, TextTable, require_columns

ATTRIBUTES = ("list_attr_celeba.txt", "list_attr_celeba.csv", "attributes.csv")
PARTITION = ("list_eval_partition.txt", "list_eval_partition.csv")
PARTS = ("0", "1", "2")
IMAGE_FOLDERS = ("img_align_celeba/img_align_celeba", "img_align_celeba", "")

FORGOTTEN_AFTER = 1000
"""After so many images, those that are in a file need no memory any more."""

MAX_PIXELS = 1 << 26
"""An image with more pixels than this (64 million) is refused before it is unpacked."""


def image_schema(spec: ImageData) -> FeatureSchema:
    """Return what the plan's images amount to."""
    return FeatureSchema((spec.channels, spec.height, spec.width), 2)


def planned_schema(stated: ImageData, task: TaskSection) -> FeatureSchema:
    """Return what the plan's images amount to."""
    return image_schema(stated)


def read(stated: ImageData, task: TaskSection, paths: DataPaths, extra: tuple[str, ...]) -> FileRecords:
    """Return the images of a folder."""
    return FileRecords(load_images(paths.folder, paths.train, stated, extra, paths.storage))


def load_images(
    folder: Path,
    attributes: Path | None,
    spec: ImageData,
    extra: Collection[str],
    storage: FeatureStorage | None = None,
) -> Splits:
    """Return the labelled images, cut as the folder's own partition says, or all for training.

    Args:
        folder: the images, or the folder that holds `img_align_celeba`.
        attributes: the table; by default list_attr_celeba or attributes.csv in the folder.
        spec: the plan's description.
        extra: attributes to keep raw beside those that the plan keeps.
        storage: where the images are held; None for memory, whatever there is of them.

    Raises:
        DataError: a file is missing or damaged, an attribute is unknown, or a label is not -1, 0 or 1.
    """
    table_path = attributes or find_file(folder, *ATTRIBUTES)
    table = _read_rows(table_path)
    kept = tuple(dict.fromkeys((*spec.keep, *extra)))
    require_columns(table_path, list(table.columns), (spec.label, *kept))
    labels = _labels(table, spec.label)
    names = next(iter(table.columns.values()))
    place = _image_folder(folder, str(names[0]))
    parts = _parts(table_path.parent, names)

    def images(part: str) -> Dataset:
        chosen = np.flatnonzero(parts == part)
        shape = (len(chosen), spec.channels, spec.height, spec.width)
        features = np.empty(shape, np.uint8) if storage is None else storage.empty(shape, np.uint8)
        for index, name in enumerate(names[chosen]):
            features[index] = image_pixels(place / str(name), spec)
            if index % FORGOTTEN_AFTER == 0:
                forget(features)
        columns = {name: table.columns[name][chosen] for name in kept}
        return Dataset(features, labels[chosen], image_schema(spec), columns)

    train, validation, test = map(images, PARTS)
    if not train:
        raise DataError(
            f"{table_path} leaves no image for training", "check list_eval_partition: 0 is for training"
        )
    return Splits(train, validation or None, test or None)


def _read_rows(path: Path, header: Sequence[str] | None = None) -> TextTable:
    return read_words(path, header) if path.suffix == ".txt" else read_table(path)


def _labels(table: TextTable, label: str) -> NDArray[np.int64]:
    texts = table.columns[label]
    faults = Faults(table)
    faults.add(label, "not -1, 0 or 1", ~np.isin(texts, ("-1", "0", "1")), "choose a binary attribute")
    faults.refuse()
    return np.where(texts == "1", 1, 0).astype(np.int64)


def _parts(folder: Path, names: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return 0, 1 or 2 for every image; 0 for all where the folder has no partition."""
    paths = [folder / name for name in PARTITION if (folder / name).is_file()]
    if not paths:
        return np.full(len(names), PARTS[0])
    table = _read_rows(paths[0], ("image", "part"))
    images, stated = list(table.columns.values())[:2]
    faults = Faults(table)
    faults.add(list(table.columns)[1], "not 0, 1 or 2", ~np.isin(stated, PARTS), "0 trains, 1 validates, 2 tests")
    faults.refuse()
    part_of = dict(zip(images.tolist(), stated.tolist(), strict=True))
    missing = [name for name in names.tolist() if name not in part_of]
    if missing:
        raise DataError(f"{paths[0]} has no line for {len(missing)} images, such as {missing[0]}")
    return np.array([part_of[name] for name in names.tolist()])


def _image_folder(folder: Path, first: str) -> Path:
    for inner in IMAGE_FOLDERS:
        if (folder / inner / first).is_file():
            return folder / inner
    raise DataError(
        f"{folder} does not hold {first}, the first image of the table", "name the folder of the images"
    )


def image_pixels(path: Path, spec: ImageData) -> NDArray[np.uint8]:
    """Return one image as (channels, height, width), resized without keeping its proportions."""
    try:
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise DataError(f"{path} has {image.width} x {image.height} pixels, more than {MAX_PIXELS} in all")
            mode = "RGB" if spec.channels == 3 else "L"
            resized = image.convert(mode).resize((spec.width, spec.height), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} is not an image that can be read: {error}", "copy the image again") from error
    pixels = np.asarray(resized)
    return pixels[np.newaxis] if spec.channels == 1 else pixels.transpose(2, 0, 1)


def read_words(path: Path, header: Sequence[str] | None = None) -> TextTable:
    """Return the rows of a text whose fields are separated by blanks, as CelebA writes its tables.

    Args:
        path: the file, plain or gzip.
        header: names of all columns, in a file of rows only. None: the first line counts the rows and the second
            names every column but the first, which is called `image`.

    Raises:
        DataError: the file is missing, damaged, empty or ragged.
    """
    try:
        with io.TextIOWrapper(open_binary(path), encoding="utf-8-sig") as file:
            lines = [line.split() for line in file]
    except (*READ_ERRORS, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a text of fields separated by blanks: {error}") from error
    skipped = 0 if header is not None else 2
    names = list(header) if header is not None else ["image", *(lines[1] if len(lines) > 1 else [])]
    rows = [(number, fields) for number, fields in enumerate(lines[skipped:], start=skipped + 1) if fields]
    ragged = [number for number, fields in rows if len(fields) != len(names)]
    if ragged or not rows:
        place = f"line {ragged[0]} has another number of fields than the header's" if ragged else "has no records:"
        raise DataError(f"{path} {place} {len(names)}", "copy the file again; it may have been cut")
    columns = zip(*(fields for _, fields in rows), strict=True)
    texts = {name: np.array(column, np.str_) for name, column in zip(names, columns, strict=True)}
    return TextTable(path, texts, np.array([number for number, _ in rows]))
