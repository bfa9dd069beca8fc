"""Files of a site that are damaged, or for which the disk has no room: real processes, real sockets."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collaborator.participation import worker_of
from collaborator.preparation import make_ready
from fedfair.cli.loopback import Workspace, prepare
from fedfair.errors import FedfairError
from tests.interop.federation_kit import Federation, play
from tests.patience import PATIENCE
from tests.plans import small_plan
from tests.site_reading import read_site

MASKED = {"mode": "malicious", "colluders": 0}
FULL = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
runpy.run_module("collaborator", run_name="__main__", alter_sys=True)
"""


def site_process(workspace: Workspace, port: int, most_bytes: int) -> subprocess.Popen[str]:
    """Start clinic-c on a machine whose disk takes no file larger than `most_bytes`."""
    options = ["-n", "clinic-c", "-c", "clinic-c.yaml", "-a", f"localhost:{port}"]
    return subprocess.Popen(
        [sys.executable, "-c", FULL, str(most_bytes), "start", *options],
        cwd=workspace.folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.slow
def test_a_site_whose_disk_is_full_names_the_file_and_rejoins_when_there_is_room(tmp_path: Path) -> None:
    plan = small_plan(rounds=2, protection=MASKED)
    plan["task"] = {**plan["task"], "model": {"name": "mlp", "hidden": [256]}}  # type: ignore[dict-item]
    workspace = prepare(tmp_path, plan)

    async def played(federation: Federation) -> None:
        others = [asyncio.create_task(federation.take_part(name)) for name in ("clinic-a", "clinic-b")]
        # A table of a few rows has its pages, and a masked vector 31,000 bytes: whichever is the first too long.
        full = await asyncio.to_thread(site_process, workspace, federation.port, 20_000)
        try:
            output, _ = await asyncio.to_thread(full.communicate, None, PATIENCE)
        finally:
            full.kill()
        assert full.returncode == 1
        assert "Traceback" not in output
        words = " ".join(output.split())
        assert re.search(r"\.(secagg|answered|run) cannot be written: (File too large|disk I/O error)", words)
        assert "make room on the disk" in words
        await federation.take_part("clinic-c")
        await asyncio.gather(*others)

    assert play(workspace, played).state.value == "finished"


def test_a_site_whose_log_is_cut_in_its_first_record_says_so_with_the_file(tmp_path: Path) -> None:
    workspace = prepare(tmp_path, small_plan(rounds=3, protection=MASKED))

    async def begun(federation: Federation) -> None:
        everybody = [asyncio.create_task(federation.take_part(name)) for name in workspace.collaborators]
        await federation.watching.until_round(1)
        os.kill(os.getpid(), signal.SIGTERM)
        await federation.serving
        for one in everybody:
            one.cancel()
        await asyncio.gather(*everybody, return_exceptions=True)

    assert play(workspace, begun).state.value == "stopped"
    (log,) = (workspace.folder / "state").glob("clinic-a-*.secagg")
    log.write_bytes(log.read_bytes()[:40])
    ready = make_ready(read_site("clinic-a", workspace.folder / "clinic-a.yaml", workspace.plan, None))
    with pytest.raises(FedfairError, match=r"clinic-a-.*\.secagg: .* ends in its first record") as refusal:
        worker_of(ready, tmp_path / "logs")
    assert "backup" in refusal.value.remedy
