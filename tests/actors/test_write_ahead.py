"""The files of a masked round on a site's disk: the key of its masks leaves no trace once it is forgotten."""

import secrets
from contextlib import closing
from pathlib import Path

import pytest

from collaborator.write_ahead import WriteAheadLog
from fedfair.errors import FedfairError
from fedfair.secagg.history import LOGGED_KEY, MASKS_KEY
from fedfair.secagg.keys import ENVELOPE_KEY_BYTES
from tests.full_disk import full_beyond

FORGOTTEN = bytes(ENVELOPE_KEY_BYTES)


def in_files(folder: Path, key: bytes) -> set[str]:
    return {path.name for path in folder.iterdir() if key in path.read_bytes()}


def test_a_key_that_is_forgotten_is_in_no_file_of_the_site_that_runs(tmp_path: Path) -> None:
    first, second = secrets.token_bytes(ENVELOPE_KEY_BYTES), secrets.token_bytes(ENVELOPE_KEY_BYTES)
    with closing(WriteAheadLog(tmp_path / "a.secagg")) as log:
        log.history.write([(MASKS_KEY, first), (LOGGED_KEY, b"\x01")])
        assert in_files(tmp_path, first) == {"a.masks"}
        log.history.write([(MASKS_KEY, second)])
        assert in_files(tmp_path, first) == set()
        log.history.write([(MASKS_KEY, FORGOTTEN)])
        assert in_files(tmp_path, second) == set()
        assert log.history.get(LOGGED_KEY) == b"\x01"


def test_the_key_survives_the_process_and_a_file_that_is_gone_opens_no_masks(tmp_path: Path) -> None:
    key = secrets.token_bytes(ENVELOPE_KEY_BYTES)
    with closing(WriteAheadLog(tmp_path / "a.secagg")) as log:
        assert not log.history.get(MASKS_KEY)
        log.history.write([(MASKS_KEY, key)])
    with closing(WriteAheadLog(tmp_path / "a.secagg")) as log:
        assert log.history.get(MASKS_KEY) == key
    (tmp_path / "a.masks").unlink()
    with closing(WriteAheadLog(tmp_path / "a.secagg")) as log:
        assert not log.history.get(MASKS_KEY)
    assert (tmp_path / "a.masks").stat().st_mode & 0o777 == 0o600


def test_a_key_that_cannot_be_written_stops_the_site_in_words(tmp_path: Path) -> None:
    with (
        closing(WriteAheadLog(tmp_path / "a.secagg")) as log,
        full_beyond(0),
        pytest.raises(FedfairError, match=r"a\.masks cannot be written: .*this site stops"),
    ):
        log.history.write([(MASKS_KEY, secrets.token_bytes(ENVELOPE_KEY_BYTES))])


def test_a_place_that_is_no_file_is_refused_and_lets_the_others_go(tmp_path: Path) -> None:
    (tmp_path / "a.masks").mkdir()
    with pytest.raises(FedfairError, match=r"a\.masks cannot be used as this site's write-ahead log"):
        WriteAheadLog(tmp_path / "a.secagg")
    (tmp_path / "a.masks").rmdir()
    WriteAheadLog(tmp_path / "a.secagg").close()
