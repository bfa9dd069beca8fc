"""A second start of a participant names the number of the process that runs already."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aggregator.journal import Journal, forget
from collaborator.write_ahead import WriteAheadLog
from fedfair.audit.append_file import AppendFile
from fedfair.errors import FedfairError

HOLDER = """
import sys
from pathlib import Path
from aggregator.journal import Journal
from collaborator.write_ahead import WriteAheadLog
from fedfair.audit.append_file import AppendFile
folder = Path(sys.argv[1])
held = [
    Journal.open(folder / "journal.sqlite", bytes(32), "a" * 32, 1_800_000_000.0),
    WriteAheadLog(folder / "a.secagg"),
    AppendFile(folder / "a.jsonl", "this site"),
]
print("held", flush=True)
sys.stdin.read()
"""


def _journal(path: Path) -> None:
    Journal.open(path, bytes(32), "b" * 32, 1_800_000_000.0).close()


def _log(path: Path) -> None:
    WriteAheadLog(path).close()


def _record(path: Path) -> None:
    AppendFile(path, "this site").close()


USES: list[tuple[str, str, Callable[[Path], None]]] = [
    ("journal.sqlite", "an aggregator", _journal),
    ("journal.sqlite", "an aggregator", forget),
    ("a.secagg", "this site", _log),
    ("a.jsonl", "this site", _record),
]


def test_a_second_start_is_told_which_process_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        for name, who, use in USES:
            path = tmp_path / name
            with pytest.raises(FedfairError) as caught:
                use(path)
            assert caught.value.message == f"{path} is in use by process {holder.pid}: {who} already runs here"
            assert caught.value.remedy == "stop it first, or let it finish"
        holder.communicate()
    for name, _, use in USES:
        use(tmp_path / name)  # The lock ended with its process.
