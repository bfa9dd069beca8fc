from __future__ import annotations

from pathlib import Path

import pytest

from collaborator.write_ahead import WriteAheadLog
from fedfair.errors import FedfairError


def test_what_was_appended_and_replaced_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "clinic-a.secagg"
    log = WriteAheadLog(path)
    assert log.read() == b""
    log.append([b"one", bytearray(b" two")])
    log.close()
    again = WriteAheadLog(path)
    assert again.read() == b"one two"
    again.replace([b"th", bytearray(b"ree")])
    again.append([b" four"])
    assert again.read() == b"three four"
    again.close()
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}


def test_a_second_process_may_not_write_the_same_log(tmp_path: Path) -> None:
    first = WriteAheadLog(tmp_path / "a.secagg")
    with pytest.raises(FedfairError, match="this site already runs here"):
        WriteAheadLog(tmp_path / "a.secagg")
    first.close()
    WriteAheadLog(tmp_path / "a.secagg").close()
