"""What the processes of a site tell each other arrives, sums have one order, and nobody else hears or speaks."""

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from fedfair.errors import StateError
from fedfair.training.process_channel import ProcessChannel, meeting_folder
from tests.patience import PATIENCE

SIZE = 3
Found = TypeVar("Found")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return the place of a folder that rank 0 makes, below which the path of a socket has room."""
    with tempfile.TemporaryDirectory(prefix="ff-") as place:
        yield Path(place) / "site"


def everywhere(of_rank: Callable[[int], Found]) -> list[Found]:
    """Return what every rank comes to, each in a thread of its own; the last ranks come first."""
    with ThreadPoolExecutor(SIZE) as pool:
        found = {rank: pool.submit(of_rank, rank) for rank in reversed(range(SIZE))}
        return [found[rank].result(timeout=PATIENCE) for rank in range(SIZE)]


@pytest.fixture
def channels(folder: Path) -> Iterator[list[ProcessChannel]]:
    made = everywhere(lambda rank: ProcessChannel(folder, rank, SIZE))
    yield made
    for channel in made:
        channel.close()


@pytest.mark.parametrize("width", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_sums_are_added_in_the_order_of_ranks(channels: list[ProcessChannel], width: torch.dtype) -> None:
    # In any other order the small one would not be lost in floats.
    parts = [2048 * 2**53, 1, -2048 * 2**53] if width.is_floating_point and width != torch.float16 else [7, 1, -3]
    held = [torch.tensor([[part, rank, 0]], dtype=width) for rank, part in enumerate(parts)]
    expected = held[0] + held[1] + held[2]
    everywhere(lambda rank: channels[rank].add(held[rank]))
    assert all(torch.equal(each, expected) for each in held)


def test_values_of_any_shape_are_summed_and_every_process_hears(channels: list[ProcessChannel]) -> None:
    assert everywhere(lambda rank: channels[rank].broadcast({"who": rank})) == [{"who": 0}] * SIZE
    assert everywhere(lambda rank: channels[rank].gathered(10 * rank)) == [[0, 10, 20]] * SIZE
    scalars = [torch.tensor(rank + 1.0) for rank in range(SIZE)]
    columns = [torch.arange(6.0).reshape(2, 3).t() * (rank + 1) for rank in range(SIZE)]
    empty = [torch.zeros(0) for _ in range(SIZE)]
    for values in (scalars, columns, empty):
        everywhere(lambda rank, values=values: channels[rank].add(values[rank]))
    assert [float(each) for each in scalars] == [6.0] * SIZE
    assert all(torch.equal(each, torch.arange(6.0).reshape(2, 3).t() * 6) for each in columns)
    shared = [torch.arange(6.0).reshape(2, 3).t() + rank for rank in range(SIZE)]
    everywhere(lambda rank: channels[rank].share(shared[rank]))
    assert all(torch.equal(each, shared[0]) for each in shared)


def test_who_ends_is_noticed_and_the_folder_goes(channels: list[ProcessChannel], folder: Path) -> None:
    channels[1].close()
    with pytest.raises((EOFError, OSError)):
        channels[0].gathered(1)
    channels[0].close()
    with pytest.raises((EOFError, OSError)):
        channels[2].broadcast(None)
    assert folder.stat().st_mode & 0o777 == 0o700
    channels[1].leave_folder()
    assert folder.exists()
    channels[0].leave_folder()
    assert not folder.exists()


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("kind", ["open to others", "a link"])
def test_a_folder_into_which_others_can_put_a_socket_is_refused(folder: Path, rank: int, kind: str) -> None:
    if kind == "a link":
        (folder.parent / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to("elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o730)
    with pytest.raises(StateError, match="not a folder of this user's alone"):
        ProcessChannel(folder, rank, 2)


def test_processes_meet_with_their_own_and_the_path_has_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": "0", "MASTER_PORT": "1"}
    folders = {meeting_folder(one), *(meeting_folder({**one, name: "2"}) for name in one)}
    assert len(folders) == len(one) + 1
    assert meeting_folder(one) == meeting_folder({**one, "RANK": "1"})
    deep = tmp_path / ("x" * 80)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert len(os.fsencode(meeting_folder({}) / "socket")) <= 103
