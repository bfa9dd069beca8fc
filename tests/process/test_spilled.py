"""Vectors in files without a name: the same numbers, read-only, and out of memory again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedfair.aggregation.requests import GlobalModel
from fedfair.process.spilled import forget_pages, spilled, spilled_array


def test_the_parts_come_back_as_one_and_no_file_is_seen(tmp_path: Path) -> None:
    found = spilled([b"ab", memoryview(b"cde"), b"f"], tmp_path)
    assert bytes(found) == b"abcdef"
    assert found.readonly
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_spilled_vector_is_equal_to_the_bit_and_nobody_can_write_to_it(tmp_path: Path, dtype: type) -> None:
    vector = np.random.default_rng(1).normal(size=70_000).astype(dtype)
    found = spilled_array(vector, tmp_path)
    assert (found.dtype, found.tobytes()) == (vector.dtype, vector.tobytes())
    assert not found.flags.writeable
    assert spilled_array(found, tmp_path) is found
    forget_pages(found)
    assert found.tobytes() == vector.tobytes()
    forget_pages(vector)
    forget_pages(b"bytes")


def test_an_empty_vector_stays_where_it_is(tmp_path: Path) -> None:
    empty = np.empty(0)
    assert spilled_array(empty, tmp_path) is empty


def test_a_model_that_moves_keeps_its_digest_and_its_holders(tmp_path: Path) -> None:
    model = GlobalModel(np.arange(1000.0), 0.5)
    before = GlobalModel(np.arange(1000.0), 0.5).vector_sha256
    held = [model]
    model.move_to(spilled_array(model.vector, tmp_path))
    assert held[0].vector_sha256 == before
    assert GlobalModel(model.vector, 0.5).vector_sha256 == before
