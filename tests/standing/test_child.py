"""The process of a study: what it is given, what its end means, and that it never outlives its service."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collaborator.standing.child import MAX_LOG_BYTES, StudyProcess, limit_memory, start_child
from fedfair.consent.inbox import StudyFolder
from fedfair.errors import FedfairError
from fedfair.process.service_pipe import taken_passphrase
from tests.fork_server import ENVIRONMENT
from tests.patience import PATIENCE

STAND_IN = """#!{python} -I
import os, sys
secret = os.read(int(sys.argv[-1]), 99).decode().strip()
print(*sys.argv[1:], "has", secret, "on", os.environ["CUDA_VISIBLE_DEVICES"], "in", os.getcwd(), flush=True)
{then}
"""


def study(folder: Path, then: str, **changes: object) -> StudyProcess:
    python = folder / "python"
    python.write_text(STAND_IN.format(python=sys.executable, then=then))
    python.chmod(0o755)
    started = StudyFolder(folder / "studies" / "heart")
    values = {"gpu": 3, "memory_gib": None, "passphrase": b"xyzzy", "interpreter": str(python), **changes}
    return StudyProcess(folder, "collaborator.yaml", "clinic-a", started, "hub:8443", **values)


@pytest.mark.parametrize(
    ("then", "status", "done", "hands"),
    [
        ("sys.exit(0)", 0, True, False),
        ("sys.exit(2)", 2, False, True),
        ("sys.exit(3)", 3, False, False),
        ("os.kill(os.getpid(), 9)", -9, False, False),
    ],
)
def test_a_process_is_given_its_study_and_its_end_is_told(
    tmp_path: Path, then: str, status: int, done: bool, hands: bool
) -> None:
    async def play() -> None:
        child = await start_child(study(tmp_path, then))
        ended = await child.ended()
        assert (ended.status, ended.is_done, ended.needs_hands) == (status, done, hands)
        assert "start -n clinic-a -c collaborator.yaml --study heart -a hub:8443 --service-pipe" in ended.words
        assert ended.words.endswith(f"has {b'xyzzy'.hex()} on 3 in {tmp_path}")

    asyncio.run(play())


def test_a_process_that_is_asked_to_stop_stops(tmp_path: Path) -> None:
    async def play() -> None:
        child = await start_child(study(tmp_path, "os.read(int(sys.argv[-1]), 1)"))
        child.stop()
        assert (await child.ended()).status == -signal.SIGTERM
        child.stop()  # that it is gone is no fault

    asyncio.run(play())


def test_a_python_that_is_not_there_is_one_fault(tmp_path: Path) -> None:
    async def play() -> None:
        with pytest.raises(FedfairError, match="the process of heart cannot be started: No such file"):
            await start_child(study(tmp_path, "", interpreter=str(tmp_path / "none")))

    asyncio.run(play())


def test_a_long_log_is_put_aside(tmp_path: Path) -> None:
    async def play() -> None:
        logs = tmp_path / "studies" / "heart" / "logs"
        logs.mkdir(parents=True)
        with (logs / "process.log").open("wb") as log:
            log.truncate(MAX_LOG_BYTES + 1)
        await (await start_child(study(tmp_path, ""))).ended()
        assert (logs / "process.log.1").stat().st_size > MAX_LOG_BYTES > (logs / "process.log").stat().st_size

    asyncio.run(play())


def test_memory_of_a_process_has_a_limit() -> None:
    command = [sys.executable, "-c", "input(); bytearray(1 << 30)"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    limit_memory(process.pid, 0.5)
    assert "MemoryError" in process.communicate("\n")[1]
    limit_memory(process.pid, 0.5)  # that it is gone is no fault


def test_a_process_ends_with_its_service_however_that_ends() -> None:
    program = (
        "import sys, threading; from fedfair.process.service_pipe import taken_passphrase;"
        "print(taken_passphrase(int(sys.argv[1])), flush=True); threading.Event().wait()"
    )
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(reading)], stdout=subprocess.PIPE, pass_fds=[reading], env=ENVIRONMENT
    )
    os.close(reading)
    os.write(writing, b"secret".hex().encode() + b"\n")
    assert process.stdout is not None
    assert process.stdout.readline() == b"b'secret'\n"
    os.close(writing)
    assert process.wait(PATIENCE) == -signal.SIGTERM
    process.stdout.close()


def test_without_a_service_there_is_one_fault() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with pytest.raises(FedfairError, match="the service that has started this process is gone"):
        taken_passphrase(reading)
    os.close(reading)
    with pytest.raises(FedfairError, match=f"--service-pipe {reading} is no pipe of a service"):
        taken_passphrase(reading)


def test_the_secret_is_in_no_argument_and_no_variable(tmp_path: Path) -> None:
    start = study(tmp_path, "")
    assert b"xyzzy".hex() not in "".join(start.words(7)) + repr(start.environment({}))
    assert "xyzzy" not in repr(start)


def test_a_service_that_was_upgraded_begins_anew_with_its_options_and_its_passphrase(tmp_path: Path) -> None:
    upgraded = tmp_path / "fedfair"
    upgraded.mkdir()
    (upgraded / "__init__.py").touch()
    (upgraded / "__main__.py").write_text("import sys\nprint(*sys.argv[1:-1], open(sys.argv[-1]).read())\n")
    outlived = f"""
import os, sys
from collaborator.standing.command import begin_anew
sys.argv = ["/bin/fedfair", "collaborator", "serve", "--hub", "a:1"]
os.environ["PYTHONPATH"] = {str(tmp_path)!r}
begin_anew(b"xyzzy")
"""
    done = subprocess.run(
        [sys.executable, "-c", outlived],
        env=ENVIRONMENT,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["collaborator", "serve", "--hub", "a:1", "--passphrase-file", "xyzzy"]
