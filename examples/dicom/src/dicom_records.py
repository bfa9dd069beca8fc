"""Reads one hospital's DICOM images: the loader that the plan of this example names.

A hospital's folder has `labels.csv` (file,label) and the images that it lists. An image is what a viewer shows:
stored values with rescale slope and intercept, then the window, then MONOCHROME1 turned over, then one size for
all. It is held in bytes, and fedfair takes a byte x for x / 255.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pydicom
from PIL import Image
from pydicom.errors import InvalidDicomError

SIDE = 32
WHITE = 255


def records(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return images, uint8 (records, 1, SIDE, SIDE), and labels, int64 (records,)."""
    rows = labels_of(folder / "labels.csv")
    images = np.empty((len(rows), 1, SIDE, SIDE), np.uint8)
    for place, name in enumerate(rows):
        images[place, 0] = image_of(folder / name)
    return images, np.array(list(rows.values()), np.int64)


def labels_of(path: Path) -> dict[str, int]:
    """Return the label, 0 or 1, by the name of the file."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for line, row in enumerate(rows, 2):
        name, label = row.get("file"), row.get("label")
        if not name or label not in {"0", "1"}:
            raise ValueError(f"{path} line {line}: file is {name!r} and label {label!r}; name a file, and 0 or 1")
        found[name] = int(label)
    if len(found) != len(rows) or not found:
        raise ValueError(f"{path} names {len(found)} files in {len(rows)} rows; name each image once")
    return found


def image_of(path: Path) -> np.ndarray:
    """Return one image as a viewer shows it: uint8 (SIDE, SIDE)."""
    try:
        stored = pydicom.dcmread(path)
    except (OSError, InvalidDicomError) as error:
        raise ValueError(f"{path} is no DICOM file that can be read: {error}") from error
    kind = stored.get("PhotometricInterpretation", "")
    if kind not in {"MONOCHROME1", "MONOCHROME2"} or int(stored.get("NumberOfFrames", 1)) != 1:
        raise ValueError(f"{path} is not one grey image: {kind}, {stored.get('NumberOfFrames', 1)} frames")
    slope, intercept = float(stored.get("RescaleSlope", 1)), float(stored.get("RescaleIntercept", 0))
    grey = windowed(stored.pixel_array.astype(np.float32) * slope + intercept, window_of(stored))
    if kind == "MONOCHROME1":
        grey = 1.0 - grey
    picture = Image.fromarray(np.rint(grey * WHITE).astype(np.uint8))
    return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def window_of(stored: pydicom.Dataset) -> tuple[float, float] | None:
    """Return centre and width of the first window; None where the file has none."""
    centre, width = stored.get("WindowCenter"), stored.get("WindowWidth")
    if centre is None or width is None:
        return None
    return float(np.ravel(centre)[0]), float(np.ravel(width)[0])


def windowed(values: np.ndarray, window: tuple[float, float] | None) -> np.ndarray:
    """Return values from 0 to 1: by the window (DICOM PS3.3 C.11.2.1.2), or from the least to the greatest."""
    if window is None:
        least, span = float(values.min()), float(np.ptp(values))
        return np.zeros_like(values) if span == 0 else (values - least) / span
    centre, width = window
    if width <= 1:
        return (values > centre - 0.5).astype(np.float32)
    return np.clip((values - (centre - 0.5)) / (width - 1) + 0.5, 0.0, 1.0)
