"""Real processes that may open few files: refused in words below the minimum that is stated, whole runs at it."""

import json
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from fedfair.cli.loopback import Workspace, prepare
from fedfair.process.open_files import MIN_OPEN_FILES
from tests.fork_server import ENVIRONMENT, Process, started
from tests.interop.federation_kit import NAMES
from tests.patience import PATIENCE
from tests.plans import small_plan

AGGREGATOR_LEAST = MIN_OPEN_FILES + 3 * len(NAMES)
LIMITED = """
import resource, runpy, sys
program, most = sys.argv[1:3]
del sys.argv[1:3]
resource.setrlimit(resource.RLIMIT_NOFILE, (int(most),) * 2)
runpy.run_module(program, run_name="__main__", alter_sys=True)
"""


def limited(workspace: Workspace, program: str, most: int, *options: str) -> Process:
    script = workspace.folder.parent / "limited.py"
    script.write_text(LIMITED)
    return started((str(script), program, str(most), "start", *options), workspace.folder, ENVIRONMENT)


@pytest.mark.parametrize(
    ("program", "options", "most", "least"),
    [
        ("collaborator", ("-n", "clinic-a", "-c", "clinic-a.yaml"), 20, MIN_OPEN_FILES),
        ("aggregator", (), AGGREGATOR_LEAST - 1, AGGREGATOR_LEAST),
    ],
)
def test_a_process_that_may_open_too_few_files_says_so_at_its_start(
    tmp_path: Path, program: str, options: tuple[str, ...], most: int, least: int
) -> None:
    workspace = prepare(tmp_path / "heart", small_plan(rounds=1))
    process = limited(workspace, program, most, *options)
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    words = " ".join(output.split())
    assert process.returncode == 1, words
    assert f"lets a process have {most} files open" in words
    assert f"needs at least {least}" in words
    assert "ulimit -n 1024" in words
    assert "Traceback" not in words


@pytest.mark.slow
def test_a_run_of_three_sites_finishes_with_exactly_the_least_number_of_files(tmp_path: Path) -> None:
    workspace = prepare(
        tmp_path / "heart", small_plan(rounds=2, protection={"mode": "malicious", "most_records": 512})
    )
    ready = workspace.folder / "ready.json"
    aggregator = limited(
        workspace, "aggregator", AGGREGATOR_LEAST, "--listen", "localhost:0", "--ready-file", str(ready)
    )
    processes = [aggregator]
    try:
        while not ready.exists():
            with suppress(subprocess.TimeoutExpired):
                aggregator.wait(0.05)
            assert aggregator.returncode is None, aggregator.communicate()[0]
        at = f"localhost:{json.loads(ready.read_text())['port']}"
        processes += [
            limited(workspace, "collaborator", MIN_OPEN_FILES, "-n", name, "-c", f"{name}.yaml", "-a", at)
            for name in NAMES
        ]
        for process in processes:
            output, _ = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, output
    finally:
        for process in processes:
            process.kill()
