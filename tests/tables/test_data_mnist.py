import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from fedfair.errors import DataError
from fedfair.tables.sources.mnist import IMAGES, LABELS, load_mnist, read_idx

PIXELS = 28 * 28


def images(count: int, declared: int | None = None, side: int = 28) -> bytes:
    header = struct.pack(">4I", 2051, count if declared is None else declared, side, 28)
    return header + bytes(i % 256 for i in range(count * PIXELS))


def labels(values: list[int], declared: int | None = None) -> bytes:
    return struct.pack(">2I", 2049, len(values) if declared is None else declared) + bytes(values)


def write_set(folder: Path, packed: bool = False) -> None:
    for name, content in (
        ("train-images-idx3-ubyte", images(2)),
        ("train-labels-idx1-ubyte", labels([3, 9])),
        ("t10k-images-idx3-ubyte", images(1)),
        ("t10k-labels-idx1-ubyte", labels([0])),
    ):
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)


@pytest.mark.parametrize("packed", [False, True])
def test_training_and_test_records_are_read_plain_or_packed(tmp_path: Path, packed: bool) -> None:
    write_set(tmp_path, packed)
    splits = load_mnist(tmp_path)
    assert splits.train.features.shape == (2, 1, 28, 28)
    assert splits.train.features.dtype == np.uint8
    assert splits.train.features[0, 0, 0, :3].tolist() == [0, 1, 2]
    assert splits.train.features.max() == 255
    assert splits.train.labels.tolist() == [3, 9]
    assert splits.test is not None
    assert splits.test.labels.tolist() == [0]
    assert splits.validation is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "ends within its header"),
        (images(1)[:15], "ends within its header"),
        (labels([1]) + bytes(8), "its magic number is 2049, not 2051"),
        (images(2)[:-1], "holds 1567 bytes of images, its header declares 1568"),
        (images(2) + b"\0", "holds 1569 bytes or more of images"),
        (images(1, declared=2**32 - 1), "holds 784 bytes of images, its header declares 3367254359280"),
        (images(1, side=2**31), r"declares images of shape \(2147483648, 28\), expected \(28, 28\)"),
        (gzip.compress(images(2), mtime=0)[:-20], "cannot be read"),
    ],
)
def test_a_file_that_is_not_what_its_header_says_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(path, IMAGES)


def test_a_file_that_is_cut_missing_short_or_wrong_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no train-images-idx3-ubyte"):
        load_mnist(tmp_path)
    whole, path = labels([1, 2, 3]), tmp_path / "labels"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError):
            read_idx(path, LABELS)
    write_set(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels([3]))
    with pytest.raises(DataError, match=r"holds 2 images, .* 1 labels"):
        load_mnist(tmp_path)
    write_set(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels([3, 10]))
    with pytest.raises(DataError, match="labels run from 3 to 10"):
        load_mnist(tmp_path)


def test_the_real_set_has_its_published_counts_and_mean(data_root: Path) -> None:
    splits = load_mnist(data_root / "mnist")
    assert np.bincount(splits.train.labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert splits.test is not None
    assert np.bincount(splits.test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    # Published to four decimals, of numbers from 0 to 1.
    assert abs(float(splits.train.features.mean(dtype=np.float64)) / 255 - 0.1307) < 5e-5
