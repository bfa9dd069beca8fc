from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedfair.aggregation.model_file import load, save
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.errors import DataError, LocalProtocolError
from fedfair.training.flat_model import FlatModel

FLOAT32 = np.dtype(np.float32)
LAYOUT = Layout((LayoutEntry("w", (2, 3)), LayoutEntry("norm.mean", (2,), trainable=False)), FLOAT32)
VECTOR = np.arange(8, dtype=FLOAT32)
METADATA = {"threshold": (0.1).hex(), "round": "7", "plan_digest": "sha256:00"}


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "last.safetensors"
    save(path, LAYOUT, VECTOR, METADATA)
    return path


def test_what_is_saved_is_loaded_by_us_and_by_the_library(model_file: Path, tmp_path: Path) -> None:
    layout, vector, metadata = load(model_file)
    assert layout == LAYOUT
    assert layout.digest == LAYOUT.digest
    assert np.array_equal(vector, VECTOR)
    assert metadata == METADATA
    assert float.fromhex(metadata["threshold"]) == 0.1
    tensors = safetensors.numpy.load_file(model_file)
    assert tensors["norm.mean"].tolist() == [0, 1]
    assert tensors["w"].tolist() == [[2, 3, 4], [5, 6, 7]]
    model = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)), torch.float32)
    path = tmp_path / "theirs.safetensors"
    safetensors.numpy.save_file(model.layout.unflatten(model.vector()), path)
    layout, vector, metadata = load(path)
    assert layout.digest == model.layout.digest
    assert np.array_equal(vector, model.vector())
    assert metadata == {}
    save(model_file, LAYOUT, VECTOR + 1, {"round": "8"})
    assert load(model_file)[1].tolist() == (VECTOR + 1).tolist()
    assert {*model_file.parent.iterdir()} == {model_file, path}


def test_cut_files_and_failed_saves_leave_nothing_behind(model_file: Path, tmp_path: Path) -> None:
    before = model_file.read_bytes()
    with pytest.raises(LocalProtocolError):
        save(model_file, LAYOUT, VECTOR[:-1], {})
    folder = model_file.parent / "folder"
    folder.mkdir()
    with pytest.raises(DataError, match="cannot write the model"):
        save(folder, LAYOUT, VECTOR, {})
    assert model_file.read_bytes() == before
    assert sorted(model_file.parent.iterdir()) == [folder, model_file]
    whole, cut = model_file.read_bytes(), tmp_path / "cut"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(DataError, match="cut is not a model that can be read"):
            load(cut)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_flipped_bits_are_refused_or_none(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.safetensors"
    save(path, LAYOUT, VECTOR, METADATA)
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    try:
        _, vector, _ = load(path)
    except DataError:
        return
    assert np.array_equal(vector, VECTOR)  # the flip was in a name, a space or the caller's strings


@pytest.mark.parametrize(
    "tensors", [{"w": np.zeros(2, np.int64)}, {"a": np.zeros(1, FLOAT32), "b": np.zeros(1)}, {}]
)
def test_tensors_not_all_of_one_float_width_are_refused(tmp_path: Path, tensors: dict[str, np.ndarray]) -> None:
    safetensors.numpy.save_file(tensors, tmp_path / "m")
    with pytest.raises(DataError, match="expected only F32 or only F64"):
        load(tmp_path / "m")


def test_scalars_survive_and_pickles_and_missing_files_are_told(tmp_path: Path) -> None:
    layout = Layout((LayoutEntry("scalar", ()), LayoutEntry("none", (0, 3))), np.dtype(np.float64))
    save(tmp_path / "m", layout, np.array([np.pi]), {})
    assert load(tmp_path / "m")[0] == layout
    assert load(tmp_path / "m")[1].tolist() == [np.pi]
    (tmp_path / "m").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DataError, match="not a model"):
        load(tmp_path / "m")
    with pytest.raises(DataError, match=r"none\.safetensors"):
        load(tmp_path / "none.safetensors")
    with pytest.raises(DataError, match="cannot write the model"):
        save(tmp_path / "no" / "m", LAYOUT, VECTOR, {})
