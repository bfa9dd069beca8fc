from pathlib import Path

import numpy as np
import pytest

from fedfair.errors import DataError, PlanError
from fedfair.tables.sources.module import load_module


def write(folder: Path, name: str, body: str) -> str:
    source = f"import numpy as np\nfrom fedfair.tables.dataset import *\n\ndef load(root):\n    {body}\n"
    (folder / f"{name}.py").write_text(source)
    return f"{name}:load"


def test_a_function_s_arrays_images_and_splits_become_data_sets(tmp_path: Path) -> None:
    reference = write(tmp_path, "data_arrays", "return np.ones((3, 2), np.int32), np.array([0, 2, 1])")
    train = load_module(reference, tmp_path, tmp_path, None).train
    assert train.features.dtype == np.float64
    assert train.labels.dtype == np.int64
    assert train.schema.classes == 3
    assert train.schema.numeric == (0, 1)
    np.save(tmp_path / "images.npy", np.zeros((2, 1, 4, 4), np.float32))
    reference = write(tmp_path, "data_images", "return np.load(root / 'images.npy'), np.array([0, 1])")
    train = load_module(reference, tmp_path, tmp_path, 5).train
    assert train.features.dtype == np.float32
    assert (train.schema.input_shape, train.schema.classes, train.schema.numeric) == ((1, 4, 4), 5, ())
    one = "Dataset(np.ones((2, 1)), np.array([0, 1]), FeatureSchema((1,), 2))"
    assert load_module(write(tmp_path, "data_one", f"return {one}"), tmp_path, tmp_path, None).test is None
    reference = write(tmp_path, "data_splits", f"return Splits({one}, test={one})")
    assert load_module(reference, tmp_path, tmp_path, None).test is not None


@pytest.mark.parametrize(
    ("number", "body", "message"),
    [
        (1, "return 7", "returned int"),
        (2, "return np.ones((2, 1)), np.array([0.0, 1.0])", "labels of float64"),
        (3, "return np.array([['a']]), np.array([0])", "features of <U1"),
        (4, "return np.ones(2), np.array([0, 1])", r"features of shape \(2,\)"),
        (5, "return np.ones((2, 1)), np.array([0, -1])", "labels run from -1"),
        (6, "return np.ones((2, 1)), np.array([0])", "do not match"),
        (7, "raise KeyError('died')", "data_wrong7:load fails: KeyError: 'died'"),
        (8, "return Dataset(np.ones((1, 2)), np.array([0]), FeatureSchema((3,), 2))", r"^features of shape"),
        (9, "import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_what_is_no_data_set_is_refused(tmp_path: Path, number: int, body: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_module(write(tmp_path, f"data_wrong{number}", body), tmp_path, tmp_path, None)


def test_a_module_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="there is no module 'nowhere'"):
        load_module("nowhere:load", tmp_path, tmp_path, None)
