"""A site that is killed at any instant has recorded everything that it has used: real processes, real kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collaborator.ledger import Ledger
from fedfair.errors import PrivacyError
from tests.actors.ledger_makers import entry
from tests.conftest import REPOSITORY

HERE = Path(__file__).parent
KILLS = 4 + 2 * 6 + 8 + 9


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_whenever_a_process_is_killed_everything_that_it_used_is_recorded_and_the_ledger_goes_on(
    tmp_path: Path,
) -> None:
    kills = [json.loads(line) for line in run(str(HERE / "ledger_crashes.py"), str(tmp_path)).splitlines()]
    assert len(kills) == KILLS
    for kill in kills:
        by_the_kernel = kill["point"].startswith("byte")
        assert kill["died_of"] == (signal.SIGXFSZ if by_the_kernel else signal.SIGKILL), kill
        ledger = Ledger(Path(kill["path"]))
        recorded = len(ledger.look())
        # Committed and not used yet: the only kill in which a release is counted that never was.
        assert recorded == kill["used"] + (kill["point"] == "recorded"), kill
        ledger.record(entry(), lambda _: None)
        assert len(Ledger(Path(kill["path"])).look()) == recorded + 1


DISK_FULL = """
import resource, signal, sys
from pathlib import Path
from collaborator.ledger import Ledger
from fedfair.errors import PrivacyError
from tests.actors.ledger_makers import entry
ledger = Ledger(Path(sys.argv[1]))
ledger.look()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    ledger.record(entry(), lambda _: None)
except PrivacyError as fault:
    print(fault.message)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    ledger.record(entry(), lambda _: None)
"""


@pytest.mark.parametrize("room", [300, 8600])
def test_a_disk_that_is_full_refuses_the_release_and_once_there_is_room_it_goes_on(
    tmp_path: Path, room: int
) -> None:
    path = tmp_path / "ledger.sqlite"
    for _ in range(3):
        Ledger(path).record(entry(), lambda _: None)
    told = run("-c", DISK_FULL, str(path), str(room))
    assert "cannot be used as this site's ledger" in told
    assert "nothing is released" in told
    assert len(Ledger(path).look()) == 4


def test_a_ledger_that_may_only_be_read_releases_nothing(tmp_path: Path) -> None:
    nobody = 65534  # for root, who may write whatever the mode says
    path = Path(os.path.realpath(tmp_path)) / "ledger.sqlite"
    ledger = Ledger(path)
    ledger.record(entry(), lambda _: None)
    path.chmod(0o444)
    folders = [folder for folder in path.parents if folder.stat().st_mode & 0o005 != 0o005]
    modes = [folder.stat().st_mode for folder in folders]
    privileged = os.geteuid() == 0
    try:
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode | 0o055)
        if privileged:
            os.seteuid(nobody)
        with pytest.raises(PrivacyError, match=r"readonly database.*nothing is released"):
            ledger.record(entry(), lambda _: None)
    finally:
        if privileged:
            os.seteuid(0)
        for folder, mode in zip(folders, modes, strict=True):
            folder.chmod(mode)
    assert len(Ledger(path).look()) == 1
