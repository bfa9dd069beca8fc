"""Writes small made-up volumes (NIfTI) for one hospital of this example; no patient is behind them.

Usage: python examples/volumes/make_volumes.py HOSPITAL FOLDER [--volumes N] [--seed S]

A volume is a head in dark air, crossed by a bright vessel. Half of them have a lesion (label 1), a ball that is as
bright as the vessel or fainter. The hospitals write them as three scanners might: axes in other orders and
directions, integers, scaled bytes or floating-point numbers, units and noise of their own.
"""

from __future__ import annotations

import argparse
import csv
import zlib
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
from nibabel.orientations import axcodes2ornt, ornt_transform

SHAPE = (16, 16, 12)
"""Voxels from left to right, from back to front and from feet to head."""

MILLIMETRES = (10.0, 10.0, 12.0)
"""Between the voxels of each axis."""

TISSUE, VESSEL = 0.4, 0.8
"""Brightness; air has 0."""


@dataclass(frozen=True)
class Scanner:
    """How a hospital's scanner writes a volume: `axes` says where the stored axes lead, such as R for right."""

    axes: str
    stored: str
    air: float
    white: float
    noise: float
    faint: float


SCANNERS = {
    "north": Scanner("RAS", "<i2", 0.0, 1200.0, 0.04, 0.1),
    "south": Scanner("LPS", "u1", 12.0, 400.0, 0.05, 0.1),
    "east": Scanner("PIR", ">f4", -0.5, 2.0, 0.06, 0.4),
}
"""`faint` is the share of lesions that are hard to see."""


def distance(point: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return how far each voxel is from a point, in units of `scale`: (*SHAPE)."""
    places = np.moveaxis(np.indices(SHAPE), 0, -1)
    return np.linalg.norm((places - point) / scale, axis=-1)


def brightness(lesion: bool, faint: float, noise: float, draws: np.random.Generator) -> np.ndarray:
    """Return what is to be seen, about 0 (air) to 1: (*SHAPE)."""
    centre, half = (np.array(SHAPE) - 1) / 2, np.array(SHAPE) / 2
    head = distance(centre, half * draws.uniform(0.8, 0.95, 3)) < 1
    seen = TISSUE * head
    across = np.delete(np.arange(3), draws.integers(3))
    line = centre + draws.uniform(-0.35, 0.35, 3) * half
    near = np.abs(np.moveaxis(np.indices(SHAPE), 0, -1) - np.rint(line))[..., across].max(-1) < 0.5
    seen[near & head] = VESSEL
    if lesion:
        bright = draws.uniform(0.5, 0.6) if draws.random() < faint else draws.uniform(0.7, 0.85)
        ball = distance(centre + draws.uniform(-0.45, 0.45, 3) * half, np.full(3, draws.uniform(1.4, 2.0))) < 1
        seen[ball] = np.maximum(seen[ball], bright)
    return seen + noise * draws.normal(size=SHAPE)


def write(path: Path, seen: np.ndarray, scanner: Scanner, gain: float = 1.0) -> None:
    """Write one volume as the scanner does; the gain differs from patient to patient."""
    affine = np.diag([*MILLIMETRES, 1.0])
    affine[:3, 3] = -affine[:3, :3] @ (np.array(SHAPE) - 1) / 2
    meant = scanner.air + gain * seen * (scanner.white - scanner.air)
    kind = np.dtype(scanner.stored)
    if kind.kind == "i":
        meant = np.rint(meant).astype(kind)
    header = nibabel.Nifti1Header(endianness=kind.byteorder.replace("|", "<"))
    header.set_data_dtype(kind)
    image = nibabel.Nifti1Image(meant, affine, header)
    order = ornt_transform(axcodes2ornt("RAS"), axcodes2ornt(scanner.axes))
    nibabel.save(image.as_reoriented(order), path)


def make(hospital: str, folder: Path, volumes: int, seed: int) -> None:
    """Write a hospital's volumes and their labels."""
    folder.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng((zlib.crc32(hospital.encode()), seed))
    scanner = SCANNERS[hospital]
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["file", "label"])
        for place in range(volumes):
            seen = brightness(place % 2 == 1, scanner.faint, scanner.noise, draws)
            write(folder / f"{place:04d}.nii.gz", seen, scanner, draws.uniform(0.7, 1.4))
            table.writerow([f"{place:04d}.nii.gz", place % 2])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Made-up volumes for one hospital.")
    parser.add_argument("hospital", choices=sorted(SCANNERS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--volumes", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0, help="another one for other patients")
    asked = parser.parse_args()
    make(asked.hospital, asked.folder, asked.volumes, asked.seed)
