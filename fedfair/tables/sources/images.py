"""A folder of images with a table of attributes, as CelebA has it.

Decides how images become features (resized, one byte a value, channels first) and attributes labels (-1 or 0 is
class 0, 1 is class 1). The table is CelebA's own text (a count, a header, then one line per image, separated by
blanks) or a CSV with one row per image, whose first column is the file's name. Where `list_eval_partition` lies
beside the table, it decides which image is for training (0), validation (1) and test (2), as Liu et al. 2015 cut
CelebA.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedfair.errors import DataError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.sources import ImageData
from fedfair.plan.task import TaskSection
from fedfair.tables.blank_separated import read_words
from fedfair.tables.dataset import Columns, Dataset, Splits
from fedfair.tables.feature_storage import FeatureStorage, forget
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
    files = [_image_folder(folder, str(names[0])) / str(name) for name in names]
    columns = {name: table.columns[name] for name in kept}
    parts = _parts(table_path.parent, names)
    read = [_dataset(files, labels, columns, spec, np.flatnonzero(parts == part), storage) for part in PARTS]
    if not read[0]:
        raise DataError(
            f"{table_path} leaves no image for training", "check list_eval_partition: 0 is for training"
        )
    return Splits(read[0], read[1] or None, read[2] or None)


def _read_rows(path: Path) -> TextTable:
    return read_words(path) if path.suffix == ".txt" else read_table(path)


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
    table = read_words(paths[0], header=("image", "part")) if paths[0].suffix == ".txt" else read_table(paths[0])
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


def _dataset(
    files: list[Path],
    labels: NDArray[np.int64],
    columns: Columns,
    spec: ImageData,
    chosen: NDArray[np.int64],
    storage: FeatureStorage | None,
) -> Dataset:
    shape = (len(chosen), spec.channels, spec.height, spec.width)
    features = np.empty(shape, np.uint8) if storage is None else storage.empty(shape, np.uint8)
    for place, index in enumerate(chosen):
        features[place] = image_pixels(files[index], spec)
        if place % FORGOTTEN_AFTER == 0:
            forget(features)
    kept = {name: values[chosen] for name, values in columns.items()}
    return Dataset(features, labels[chosen], image_schema(spec), kept)


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
