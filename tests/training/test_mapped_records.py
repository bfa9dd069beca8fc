"""Records in a file: a pass over them keeps few pages in memory, and gives back those of a training before it."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedfair.tables.feature_storage import BLOCK_BYTES, FeatureStorage, storage_of
from fedfair.training.device import EVALUATION_RECORDS, SplitRecords

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/self/smaps is Linux's")
CPU = torch.device("cpu")
COUNT = 300_000


def resident(held: NDArray[np.generic]) -> int:
    """Return how many bytes of the mapping that an array begins in are in this process's memory."""
    place, inside = held.ctypes.data, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name and not name.endswith(":"):
            start, end = (int(part, 16) for part in name.split("-"))
            inside = start <= place < end
        elif inside and name == "Rss:":
            return 1024 * int(rest.split()[0])
    raise AssertionError("no such mapping")


@pytest.mark.parametrize("width", [np.float32, np.uint8])
def test_a_pass_over_records_in_a_file_keeps_a_few_megabytes(tmp_path: Path, width: type[np.generic]) -> None:
    shape = (COUNT, 20) if width is np.float32 else (COUNT // 10, 3, 16, 16)
    held = FeatureStorage(tmp_path, 0).mapped(shape, width)
    held[:] = 1
    labels = np.zeros(len(held), np.int64)
    records = SplitRecords.place(held, labels, torch.float32, CPU)
    assert records.filed is not None
    assert storage_of(records.filed) is storage_of(held)
    # A training has touched all of them.
    records.take(torch.arange(len(held)))
    assert resident(held) == pytest.approx(held.nbytes, abs=1 << 20)
    assert sum(len(features) for features, _ in records.in_order()) == len(held)
    assert resident(held) == 0
    assert held.min() == held.max() == 1


def test_few_pages_are_needed_where_nothing_was_trained_and_memory_is_left_alone(tmp_path: Path) -> None:
    held = FeatureStorage(tmp_path, 0).mapped((COUNT, 20), np.float32)
    held[:] = 2
    records = SplitRecords.place(held, np.zeros(COUNT, np.int64), torch.float32, CPU)
    list(records.in_order())
    most = 0
    for number, (features, _) in enumerate(records.in_order()):
        features.sum()
        if number % 8 == 7:
            most = max(most, resident(held))
    batch = EVALUATION_RECORDS * held[0].nbytes
    assert 0 < most <= BLOCK_BYTES + 2 * batch + (1 << 20)
    held = np.ones((9, 2), np.float32)
    assert SplitRecords.place(held, np.zeros(9, np.int64), torch.float32, CPU).filed is None
