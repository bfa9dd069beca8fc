"""The example of volumes: what its loader makes of NIfTI files, and its README's commands with real processes."""

import csv
import gzip
import importlib.util
import json
import math
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from by_the_readme import run
from fedfair.errors import DataError
from fedfair.extras import is_installed
from fedfair.plan.loading import load_plan
from fedfair.tables.source_modules import DataPaths, read_files
from tests.conftest import REPOSITORY
from tests.fork_server import commands

EXAMPLE = REPOSITORY / "examples" / "volumes"
HOSPITALS = ("north", "south", "east")
SHAPE = (16, 16, 12)
TO_RAS = np.diag([10.0, 10.0, 12.0, 1.0])

# By name alone: nibabel takes a second to import, and only the process that runs this file needs it.
pytestmark = pytest.mark.skipif(not is_installed("nibabel"), reason="nibabel is not installed")


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
    return module(EXAMPLE / "src" / "volume_records.py", monkeypatch)


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module(EXAMPLE / "make_volumes.py", monkeypatch)


def test_what_every_scanner_has_seen_becomes_the_same_volume(
    loader: ModuleType, maker: ModuleType, tmp_path: Path
) -> None:
    seen = maker.brightness(True, 0.0, 0.02, np.random.default_rng(0))
    expected = loader.scaled(seen).astype(int)
    # Neither axis can be mistaken for another, nor its two ends.
    for axis in range(3):
        assert np.abs(np.flip(expected, axis) - expected).max() > 100
    for hospital in HOSPITALS:
        path = tmp_path / f"{hospital}.nii.gz"
        maker.write(path, seen, maker.SCANNERS[hospital], gain=1.3)
        assert np.abs(loader.volume_of(path) - expected).max() <= 2, hospital


def test_the_files_differ_as_the_scanners_do(maker: ModuleType, tmp_path: Path) -> None:
    import nibabel

    found = {}
    for hospital in HOSPITALS:
        maker.make(hospital, tmp_path / hospital, 2, 0)
        image = nibabel.load(tmp_path / hospital / "0001.nii.gz")
        found[hospital] = "".join(nibabel.aff2axcodes(image.affine)), image.get_data_dtype().str
    assert found == {"north": ("RAS", "<i2"), "south": ("LPS", "|u1"), "east": ("PIR", ">f4")}


def task_paths(folder: Path) -> DataPaths:
    return DataPaths(EXAMPLE / "src", folder, None, None)


def test_the_plan_reads_the_files_and_holds_bytes(maker: ModuleType, tmp_path: Path) -> None:
    maker.make("east", tmp_path, 6, 0)
    # As a spreadsheet saves it: with the mark of UTF-8 in front.
    table = tmp_path / "labels.csv"
    table.write_text(table.read_text(), encoding="utf-8-sig")
    task = load_plan(EXAMPLE / "plan.yaml").task
    train = read_files(task, task_paths(tmp_path), ()).splits.train
    assert train.features.dtype == np.uint8
    assert train.schema.input_shape == task.input_shape == (1, *SHAPE)
    assert train.labels.tolist() == [0, 1] * 3


def volume(
    shape: tuple[int, ...] = SHAPE, kind: str = "<f4", affine: np.ndarray | None = TO_RAS
) -> tuple[np.ndarray, np.ndarray | None]:
    values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape).astype(kind)
    return values, affine


def written(values: np.ndarray, affine: np.ndarray | None) -> bytes:
    import nibabel

    whole: bytes = nibabel.Nifti1Image(values, affine).to_bytes()
    return whole


def spoilt(place: tuple[int, int, int], value: float) -> bytes:
    values, affine = volume()
    values[place] = value
    return written(values, affine)


def with_second_row(*row: float) -> bytes:
    whole = bytearray(written(*volume()))
    whole[296:312] = struct.pack("<4f", *row)
    return bytes(whole)


def header_of_a_pair() -> bytes:
    whole = bytearray(written(*volume()))
    whole[344:348] = b"ni1\x00"
    return bytes(whole[:348])


WRONG: dict[str, tuple[Callable[[], bytes], str]] = {
    "another shape": (
        lambda: written(*volume((16, 16, 10))),
        r"the shape \(16, 16, 10\) in the order RAS; resample",
    ),
    "axes in another order": (
        lambda: written(*volume(affine=TO_RAS[[2, 0, 1, 3]])),
        r"the shape \(12, 16, 16\) in the order RAS; resample it to \(16, 16, 12\)",
    ),
    "several volumes": (lambda: written(*volume((*SHAPE, 2))), r"the shape \(16, 16, 12, 2\); save one volume"),
    "other distances": (
        lambda: written(*volume(affine=np.diag([1.0, 1, 1, 1]))),
        r"voxels of \[1\.0, 1\.0, 1\.0\] mm in the order RAS",
    ),
    "no orientation": (lambda: written(*volume(affine=None)), r"states no orientation"),
    "an affine without axes": (lambda: with_second_row(0, 0, 0, 0), r"an affine that names no axes"),
    "an affine of NaN": (lambda: with_second_row(0, math.nan, 0, 0), r"an affine that names no axes"),
    "a NaN": (lambda: spoilt((3, 4, 5), np.nan), r"has nan as a voxel, 1 such in all; fill them in"),
    "an infinity": (lambda: spoilt((3, 4, 5), -np.inf), r"has -inf as a voxel, 1 such in all"),
    "one value alone": (lambda: written(np.full(SHAPE, 7.0, np.float32), TO_RAS), r"shows nothing: most .* are 7"),
    "complex numbers": (lambda: written(*volume(kind="<c8")), r"has voxels of complex64"),
    "colours": (
        lambda: written(np.zeros(SHAPE, [("R", "u1"), ("G", "u1"), ("B", "u1")]), TO_RAS),
        r"has voxels of \[\('R', 'u1'\)",
    ),
    "cut off": (lambda: gzip.compress(written(*volume()))[:-2000], r"is no NIfTI file that can be read: .*ended"),
    "cut off in its checksum": (lambda: gzip.compress(written(*volume()))[:-6], r"can be read: .*ended"),
    "cut off before it was compressed": (
        lambda: gzip.compress(written(*volume())[:-500]),
        r"is no NIfTI file that can be read",
    ),
    "cut off in its header": (
        lambda: gzip.compress(written(*volume())[:100]),
        r"is no NIfTI file that can be read",
    ),
    "a pair's header": (header_of_a_pair, r"is no NIfTI file that can be read"),
    "a text": (lambda: b"file,label\n", r"is no NIfTI file that can be read"),
    "nothing": (lambda: b"", r"is no NIfTI file that can be read"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_a_volume_that_is_unlike_the_others_is_refused_with_its_file(tmp_path: Path, what: str) -> None:
    make, message = WRONG[what]
    (tmp_path / "x.nii.gz").write_bytes(make())
    (tmp_path / "labels.csv").write_text("file,label\nx.nii.gz,1\n")
    task = load_plan(EXAMPLE / "plan.yaml").task
    with pytest.raises(DataError, match=rf"x\.nii\.gz .*{message}"):
        read_files(task, task_paths(tmp_path), ())


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("file,label\nx,2\n", r"labels\.csv line 2: file is 'x' and label '2'; name a file, and 0 or 1"),
        ("file,label\nx,1\nx,0\n", r"names 1 files in 2 rows"),
        ("file,label\n", r"names 0 files in 0 rows"),
        ("file,label\nnowhere.nii.gz,1\n", r"nowhere\.nii\.gz is not there; correct its name in labels\.csv"),
        ("file,label\n.,1\n", r"is not there"),
    ],
)
def test_a_table_that_names_no_volumes_is_refused(tmp_path: Path, table: str, message: str) -> None:
    (tmp_path / "labels.csv").write_text(table)
    task = load_plan(EXAMPLE / "plan.yaml").task
    with pytest.raises(DataError, match=message):
        read_files(task, task_paths(tmp_path), ())


@pytest.mark.slow
def test_three_hospitals_train_a_head_by_the_commands_of_the_readme(
    loader: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosts = run(EXAMPLE / "README.md", tmp_path, {"FEDFAIR": str(REPOSITORY), **commands(tmp_path)})
    lead, north = hosts["lead"], hosts["north"]
    result = json.loads((lead / "result.json").read_text())
    assert (result["train"]["n"], result["test"]["n"]) == (180, 60)
    assert result["test"]["accuracy"] > 0.75
    # The encoder is the lead's to the bit, its running statistics among it, and the model's file holds the head.
    made, frozen = (
        load_file(lead / "pretrained.safetensors"),
        load_file(north / "plan" / "plan.frozen.safetensors"),
    )
    assert sum("running" in name for name in frozen) == 6
    assert all(torch.equal(values, made[name]) for name, values in frozen.items())
    head = load_file(lead / "save" / "last.safetensors")
    assert {name: values.numel() for name, values in head.items()} == {"head.bias": 2, "head.weight": 128}
    # A round's contribution has room for the head, and far too little for the encoder.
    entries = [json.loads(line) for line in (north / "egress" / "north.jsonl").read_text().splitlines()]
    vectors = [
        one["bytes"] for one in entries if (one.get("purpose"), one.get("what")) == ("training", "masked vector")
    ]
    assert len(vectors) == 30
    assert 4 * 130 <= max(vectors) < 1000 < 4 * sum(values.numel() for values in frozen.values()) / 50
    # What the run states of its model is true of the model that anyone can put together from the two files.
    model = module(EXAMPLE / "src" / "volume_model.py", monkeypatch).VolumeClassifier(classes=2)
    missing, _ = model.load_state_dict({**frozen, **head}, strict=False)
    assert all(name.endswith("num_batches_tracked") for name in missing)
    own = [loader.records(hosts[hospital] / "volumes") for hospital in HOSPITALS]
    volumes, true = (torch.from_numpy(np.concatenate(parts)) for parts in zip(*own, strict=True))
    with torch.no_grad():
        logits = model.eval()(volumes.float() / 255)
    right = (logits.argmax(1) == true).sum().item()
    assert 180 * result["train"]["accuracy"] + 60 * result["test"]["accuracy"] == pytest.approx(right)
    loss = torch.nn.functional.cross_entropy(logits, true, reduction="sum").item()
    assert 180 * result["train"]["mean"] + 60 * result["test"]["mean"] == pytest.approx(loss, rel=0.01)
    # Other patients are told apart too.
    with (north / "predictions.csv").open(newline="") as file:
        predicted = [int(row["predicted"]) for row in csv.DictReader(file)]
    with (north / "new" / "labels.csv").open(newline="") as file:
        labels = [int(row["label"]) for row in csv.DictReader(file)]
    assert np.mean(np.equal(predicted, labels)) > 0.75
