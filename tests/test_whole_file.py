"""Files that appear whole, and faults that name the file that was asked for."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from fedfair.whole_file import write_whole


def test_a_file_is_replaced_whole_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "résultat 1.json"
    for text in ("first", "second ✓"):
        write_whole(place, text)
        assert place.read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir()] == [place.name]


def test_a_fault_names_the_file_and_not_a_temporary_one(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none" / "result.json"):
        with pytest.raises(OSError, match=r"directory") as fault:
            write_whole(place, "text")
        assert fault.value.filename == str(place)
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "text")
    reader.join(10)
    assert heard == ["text"]
    assert pipe.is_fifo()
