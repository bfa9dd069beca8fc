"""Reads one hospital's volumes (NIfTI): the loader that the plan of this example names.

A hospital's folder has `labels.csv` (file,label) and the volumes that it lists. Each volume is turned to one
orientation by its own affine, and its brightness is scaled: air becomes 0, tissue two thirds of white. It is held
in bytes, and fedfair takes a byte x for x / 255.

`python src/volume_records.py FOLDER FILE.npy` writes these bytes for `fedfair predict`, in the order of the table.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import nibabel
import numpy as np
from nibabel.affines import voxel_sizes
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError
from nibabel.wrapstruct import WrapStructError

SHAPE = (16, 16, 12)
"""Voxels from left to right, from back to front and from feet to head: the order that nibabel calls RAS."""

MILLIMETRES, TOLERANCE = (10.0, 10.0, 12.0), 0.1
"""Size of a voxel along each axis, and the share of it by which a file may differ."""

AIR, TISSUE = 5, 95
"""Percentiles of a volume's values that stand for the two."""

MOST = 1e30
"""A greater value is no measurement."""

WHITE = 255
GZIP = b"\x1f\x8b"

UNREADABLE = (OSError, EOFError, ValueError, zlib.error, ImageFileError, HeaderDataError, WrapStructError)
"""What is raised of a file that is cut off, damaged or of another kind."""


def records(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return volumes, uint8 (records, 1, *SHAPE), and labels, int64 (records,)."""
    rows = labels_of(folder / "labels.csv")
    volumes = np.empty((len(rows), 1, *SHAPE), np.uint8)
    for place, name in enumerate(rows):
        volumes[place, 0] = volume_of(folder / name)
    return volumes, np.array(list(rows.values()), np.int64)


def labels_of(path: Path) -> dict[str, int]:
    """Return the label, 0 or 1, by the name of the file."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for line, row in enumerate(rows, 2):
        name, label = row.get("file"), row.get("label")
        if not name or label not in {"0", "1"}:
            raise ValueError(f"{path} line {line}: file is {name!r} and label {label!r}; name a file, and 0 or 1")
        found[name] = int(label)
    if len(found) != len(rows) or not found:
        raise ValueError(f"{path} names {len(found)} files in {len(rows)} rows; name each volume once")
    return found


def volume_of(path: Path) -> np.ndarray:
    """Return one volume in the common orientation and brightness: uint8 (*SHAPE)."""
    if not path.is_file():
        raise ValueError(f"{path} is not there; correct its name in labels.csv")
    fault = None
    try:
        # Whole, so that the checksum at the end of a compressed file is compared.
        stored = path.read_bytes()
        image = nibabel.Nifti1Image.from_bytes(gzip.decompress(stored) if stored.startswith(GZIP) else stored)
        fault = next(faults_of(image), None)
        values = np.zeros(0) if fault else np.asarray(nibabel.as_closest_canonical(image).dataobj, np.float64)
    except UNREADABLE as error:
        raise ValueError(f"{path} is no NIfTI file that can be read: {error}") from error
    if fault:
        raise ValueError(f"{path} {fault}")
    unusable = values[~(np.abs(values) < MOST)]
    if unusable.size:
        raise ValueError(f"{path} has {unusable[0]:g} as a voxel, {unusable.size} such in all; fill them in")
    if np.ptp(np.percentile(values, (AIR, TISSUE))) == 0:
        raise ValueError(f"{path} shows nothing: most of its voxels are {np.median(values):g}")
    return scaled(values)


def faults_of(image: nibabel.Nifti1Image) -> Iterator[str]:
    """Yield in what a volume is unlike the others, by its header; a tilted one counts by the nearest axes."""
    if image.get_data_dtype().kind not in "fiu":
        yield f"has voxels of {image.get_data_dtype()}; save one real number for each"
    if image.ndim != len(SHAPE):
        yield f"has the shape {image.shape}; save one volume of {SHAPE}"
    if not (image.header["sform_code"] or image.header["qform_code"]):
        yield "states no orientation (sform_code and qform_code are 0); set its affine"
    if not np.isfinite(image.affine).all() or None in nibabel.aff2axcodes(image.affine):
        yield "has an affine that names no axes; set its affine"
    # The stored axes that lead to the right, to the front and to the head.
    order = np.argsort(nibabel.io_orientation(image.affine)[:, 0])
    shape, sizes = tuple(image.shape[axis] for axis in order), voxel_sizes(image.affine)[order]
    if shape != SHAPE:
        yield f"has the shape {shape} in the order RAS; resample it to {SHAPE}"
    if np.abs(sizes / MILLIMETRES - 1).max() > TOLERANCE:
        yield f"has voxels of {sizes.round(2).tolist()} mm in the order RAS; resample it to {list(MILLIMETRES)}"


def scaled(values: np.ndarray) -> np.ndarray:
    """Return the bytes of a volume that is not of one value alone: air is 0, tissue two thirds of white."""
    air, tissue = np.percentile(values, (AIR, TISSUE))
    return np.rint(np.clip((values - air) / (tissue - air) * 2 / 3, 0.0, 1.0) * WHITE).astype(np.uint8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Volumes of a hospital as the model takes them.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    asked = parser.parse_args()
    try:
        np.save(asked.file, records(asked.folder)[0])
    except (OSError, ValueError) as error:
        sys.exit(str(error))
