"""Vectors in files without a name: the same numbers, read-only, and out of memory again."""

from pathlib import Path

import numpy as np
import pytest

from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.requests import GlobalModel, vector_sha256
from fedfair.errors import FedfairError
from fedfair.ids import RoundNumber
from fedfair.store.disk import writing
from fedfair.store.spilled import PIECE_BYTES, SpilledVectors, forget_pages, pieces, spilled, spilled_array
from fedfair.terms.server_step.state import MeanChange, ServerOptimizer
from tests.plans import parsed


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


@pytest.mark.parametrize("width", [np.float32, np.float64])
def test_a_vector_that_is_made_in_pieces_is_mapped_and_knows_its_digest(tmp_path: Path, width: type) -> None:
    vector = np.random.default_rng(2).normal(size=70_000).astype(width)
    room = SpilledVectors(tmp_path)
    writer = SpilledVectors(tmp_path, small_bytes=0).begin(vector.size, vector.dtype)
    for start in range(0, vector.size, 9999):
        writer.append(vector[start : start + 9999])
    found, digest = writer.finished()
    writer.close()
    assert (found.dtype, found.tobytes(), digest) == (vector.dtype, vector.tobytes(), vector_sha256(vector))
    assert not found.flags.writeable
    assert not list(tmp_path.iterdir())
    assert room.houses(found)
    room.forget(found, slice(0, 1 << 14))
    room.forget(vector, slice(0, 1 << 14))
    assert found.tobytes() == vector.tobytes()


def test_only_a_long_vector_in_memory_is_a_burden(tmp_path: Path) -> None:
    room, long = SpilledVectors(tmp_path), np.ones((1 << 20) // 8 + 1)
    assert room.houses(long[1:])
    assert not room.houses(long)
    assert room.houses(np.broadcast_to(np.zeros(1), long.size))
    begun, digest = room.begin(1, long.dtype).finished()
    assert (begun.flags.writeable, digest) == (True, b"")


def test_the_fault_of_a_full_disk_is_told_by_the_words_that_were_given(tmp_path: Path) -> None:
    room = SpilledVectors(tmp_path / "gone", small_bytes=0, writing=writing)
    with pytest.raises(FedfairError, match="gone cannot be written"):
        room.begin(2, np.dtype(np.float64))


def test_pieces_are_the_content_in_order_and_give_memory_back(tmp_path: Path) -> None:
    content = np.random.default_rng(4).bytes(PIECE_BYTES + 5)
    mapped = spilled([content], tmp_path)
    vector = np.frombuffer(mapped[: PIECE_BYTES // 4 * 4], np.float32)
    for found in (content, mapped, bytearray(content)):
        lengths = [len(piece) for piece in pieces(found)]
        assert lengths == [PIECE_BYTES, 5]
        assert b"".join(pieces(found)) == content
    assert b"".join(pieces(vector.data)) == content[:PIECE_BYTES]
    assert not list(pieces(b""))


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux says what is resident")
def test_a_step_holds_next_to_none_of_spilled_moments_in_memory(tmp_path: Path) -> None:
    size, single = 1 << 21, np.dtype(np.float32)
    layout = Layout((LayoutEntry("a", (size,)),), single)
    stated = parsed(training={"rounds": 9, "server_optimizer": {"name": "adam"}})
    optimizer = ServerOptimizer(stated, layout, SpilledVectors(tmp_path))
    vector, moments = np.zeros(size, single), optimizer.first
    for number in (1, 2):
        change = MeanChange(np.ones(size, single), 0.0, 1.0, used_up=True)
        vector, _, moments = optimizer.stepped(vector, 1.0, moments, change, RoundNumber(number))
        assert moments is not None
        for piece in pieces(moments.first.data):
            assert piece.readonly
    assert _resident_of_files(tmp_path) == 0
    assert moments is not None
    moments.first.sum()
    assert _resident_of_files(tmp_path) >= moments.first.nbytes


def _resident_of_files(folder: Path) -> int:
    """Return how many bytes of mapped files of a folder are resident."""
    found, is_one = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line.split(maxsplit=1)[0].endswith(":"):
            is_one = str(folder) in line
        elif is_one and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
    return found
