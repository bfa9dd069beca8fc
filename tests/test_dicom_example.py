"""The example of DICOM files: what its loader makes of them, and its README's commands with real processes."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from by_the_readme import run
from fedfair.errors import DataError
from fedfair.plan.loading import load_plan
from fedfair.tables.source_modules import DataPaths, read_files
from fedfair.training.device import SplitRecords
from tests.conftest import REPOSITORY
from tests.fork_server import commands

pydicom = pytest.importorskip("pydicom")
EXAMPLE = REPOSITORY / "examples" / "dicom"
HOSPITALS = ("north", "south", "east")


def module(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    # Where its dataclasses look for their own module.
    monkeypatch.setitem(sys.modules, path.stem, found)
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module(EXAMPLE / "src" / "dicom_records.py", monkeypatch)


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module(EXAMPLE / "make_files.py", monkeypatch)


@pytest.mark.parametrize("hospital", HOSPITALS)
def test_every_device_shows_the_spot_bright_and_the_rest_dark(
    loader: ModuleType, maker: ModuleType, tmp_path: Path, hospital: str
) -> None:
    maker.make(hospital, tmp_path, 10)
    images, labels = loader.records(tmp_path)
    assert images.dtype == np.uint8
    assert images.shape == (10, 1, 32, 32)
    assert labels.tolist() == [0, 1] * 5
    middle, corner = images[:, 0, 14:18, 14:18].mean(axis=(1, 2)), images[:, 0, :4, :4].mean(axis=(1, 2))
    assert (middle[labels == 1] > corner[labels == 1] + 60).all()
    assert (np.abs(middle - corner)[labels == 0] < 40).all()


def test_an_image_is_what_pydicom_itself_shows_of_it(
    loader: ModuleType, maker: ModuleType, tmp_path: Path
) -> None:
    from pydicom.pixels import apply_rescale, apply_windowing

    path = tmp_path / "one.dcm"
    seen = maker.brightness((64, 64), True, np.random.default_rng(0))
    maker.write(path, seen, maker.DEVICES["north"])
    stored = pydicom.dcmread(path)
    shown = apply_windowing(apply_rescale(stored.pixel_array, stored), stored)
    # pydicom stretches the window over all values that 16 bits, rescaled, could have.
    least, greatest = -32768.0 - 1024.0, 32767.0 - 1024.0
    expected = (shown - least) / (greatest - least)
    values = stored.pixel_array.astype(np.float32) - 1024.0
    found = loader.windowed(values, loader.window_of(stored))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_monochrome1_is_turned_over(loader: ModuleType, maker: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "one.dcm"
    maker.write(path, maker.brightness((48, 80), True, np.random.default_rng(0)), maker.DEVICES["south"])
    found = loader.image_of(path)
    stored = pydicom.dcmread(path)
    stored.PhotometricInterpretation = "MONOCHROME2"
    stored.save_as(path)
    assert np.abs(found.astype(int) + loader.image_of(path) - 255).max() <= 1


def test_the_windows_border_follows_the_standard(loader: ModuleType) -> None:
    values = np.array([-1000.0, 39.5 - 99.5, 39.5, 39.5 + 99.5, 1000.0], np.float32)
    assert loader.windowed(values, (40.0, 200.0)).tolist() == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.0])
    assert loader.windowed(np.array([4.0, 5.0], np.float32), (5.0, 1.0)).tolist() == [0.0, 1.0]
    assert loader.windowed(np.full(3, 7.0, np.float32), None).tolist() == [0.0, 0.0, 0.0]


def task_paths(folder: Path) -> DataPaths:
    return DataPaths(EXAMPLE / "src", folder, None, None)


def test_the_plan_reads_the_files_and_holds_bytes(maker: ModuleType, tmp_path: Path) -> None:
    maker.make("north", tmp_path, 6)
    task = load_plan(EXAMPLE / "plan.yaml").task
    train = read_files(task, task_paths(tmp_path), ()).splits.train
    assert train.features.dtype == np.uint8
    assert train.schema.input_shape == task.input_shape
    held = SplitRecords.place(train.features, train.labels, torch.float32, torch.device("cpu"))
    assert held.everything()[0].max() <= 1.0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("file,label\nx.dcm,2\n", r"labels\.csv line 2: file is 'x\.dcm' and label '2'; name a file, and 0 or 1"),
        ("file,label\nx.dcm,1\nx.dcm,0\n", r"names 1 files in 2 rows"),
        ("file,label\nnowhere.dcm,1\n", r"nowhere\.dcm is no DICOM file that can be read"),
        ("file,label\nlabels.csv,1\n", r"labels\.csv is no DICOM file that can be read"),
        ("file,label\ncolour.dcm,1\n", r"colour\.dcm is not one grey image: RGB, 1 frames"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_file(
    maker: ModuleType, tmp_path: Path, table: str, message: str
) -> None:
    maker.make("east", tmp_path, 1)
    stored = pydicom.dcmread(tmp_path / "0000.dcm")
    stored.PhotometricInterpretation = "RGB"
    stored.save_as(tmp_path / "colour.dcm")
    (tmp_path / "labels.csv").write_text(table)
    task = load_plan(EXAMPLE / "plan.yaml").task
    with pytest.raises(DataError, match=message):
        read_files(task, task_paths(tmp_path), ())


@pytest.mark.slow
def test_three_hospitals_train_by_the_commands_of_the_readme(tmp_path: Path) -> None:
    lead = run(EXAMPLE / "README.md", tmp_path, {"FEDFAIR": str(REPOSITORY), **commands(tmp_path)})["lead"]
    result = json.loads((lead / "result.json").read_text())
    assert (result["train"]["n"], result["test"]["n"]) == (180, 60)
    assert result["test"]["accuracy"] > 0.9
    assert "FedSRCVaR" in (lead / "report.txt").read_text()
