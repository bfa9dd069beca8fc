"""Writes small synthetic DICOM images for one hospital of this example; no patient is behind them.

Usage: python examples/dicom/make_files.py HOSPITAL FOLDER [--images N]

Each image is noise, and half of them have a bright round spot (label 1). The hospitals write them as three devices
might: Hounsfield units with a window (north), MONOCHROME1 of 12 bits without a window (south), 8 bits with a slope
(east), in different sizes.
"""

from __future__ import annotations

import argparse
import csv
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

SPOT, NOISE = 0.6, 0.08


@dataclass(frozen=True)
class Device:
    """How a hospital's device writes an image."""

    shape: tuple[int, int]
    bits: int
    signed: bool
    inverted: bool
    slope: float
    intercept: float
    window: tuple[float, float] | None
    darkest: float
    brightest: float


DEVICES = {
    "north": Device((64, 64), 16, True, False, 1.0, -1024.0, (40.0, 400.0), -160.0, 240.0),
    "south": Device((48, 80), 12, False, True, 1.0, 0.0, None, 0.0, 4095.0),
    "east": Device((32, 32), 8, False, False, 2.0, 10.0, (260.0, 500.0), 10.0, 520.0),
}


def brightness(shape: tuple[int, int], spotted: bool, draws: np.random.Generator) -> np.ndarray:
    """Return what is to be seen, from 0 (dark) to 1 (bright)."""
    rows, columns = np.mgrid[0 : 1 : complex(shape[0]), 0 : 1 : complex(shape[1])]
    seen = 0.2 + NOISE * draws.normal(size=shape)
    if spotted:
        row, column = draws.uniform(0.35, 0.65, 2)
        seen += SPOT * (np.hypot(rows - row, columns - column) < 0.2)
    return np.clip(seen, 0.0, 1.0)


def write(path: Path, seen: np.ndarray, device: Device) -> None:
    """Write one image as the device does."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    image = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    image.SOPClassUID, image.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    image.Modality, image.PatientID = "OT", "synthetic"
    image.Rows, image.Columns = device.shape
    image.SamplesPerPixel = 1
    image.PhotometricInterpretation = "MONOCHROME1" if device.inverted else "MONOCHROME2"
    image.BitsAllocated = 8 if device.bits <= 8 else 16
    image.BitsStored, image.HighBit = device.bits, device.bits - 1
    image.PixelRepresentation = int(device.signed)
    if (device.slope, device.intercept) != (1.0, 0.0):
        image.RescaleSlope, image.RescaleIntercept = device.slope, device.intercept
    if device.window is not None:
        image.WindowCenter, image.WindowWidth = device.window
    shown = 1.0 - seen if device.inverted else seen
    meant = device.darkest + shown * (device.brightest - device.darkest)
    width = {8: np.uint8, 16: np.int16 if device.signed else np.uint16}[image.BitsAllocated]
    image.PixelData = np.rint((meant - device.intercept) / device.slope).astype(width).tobytes()
    image.save_as(path, enforce_file_format=True)


def make(hospital: str, folder: Path, images: int) -> None:
    """Write a hospital's images and their labels."""
    folder.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(zlib.crc32(hospital.encode()))
    device = DEVICES[hospital]
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["file", "label"])
        for place in range(images):
            write(folder / f"{place:04d}.dcm", brightness(device.shape, place % 2 == 1, draws), device)
            table.writerow([f"{place:04d}.dcm", place % 2])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Synthetic DICOM images for one hospital.")
    parser.add_argument("hospital", choices=sorted(DEVICES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=80)
    asked = parser.parse_args()
    make(asked.hospital, asked.folder, asked.images)
