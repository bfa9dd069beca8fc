"""A site whose processes torchrun starts: one for the federation, and one that goes when any of them goes."""

import contextlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fedfair.cli.loopback import prepare
from tests.fork_server import Process, forked
from tests.interop.federation_kit import NAMES, metrics, model_files_agree, states_agree
from tests.interop.processes import Started, ended, until_line
from tests.plans import small_plan

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def ended_ranks(started: Started) -> Iterator[None]:
    """End the processes of torchrun before torchrun itself, which would leave them behind."""
    yield
    for process in started.running:
        with contextlib.suppress(psutil.NoSuchProcess):
            for rank in psutil.Process(process.pid).children():
                rank.kill()


def in_two_processes(started: Started, name: str) -> Process:
    """Start a site as its operator does on a machine with two GPUs."""
    place = f"localhost:{started.port}"
    meeting = Path(tempfile.mkdtemp(prefix="torchrun-")) / "site"
    rendezvous = ("--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file", "--rdzv-endpoint", str(meeting))
    torchrun = ("-m", "torch.distributed.run", *rendezvous, "--nproc-per-node", "2")
    # torchrun reads that when it is asked, so that it can be a fork. The processes that it starts are none.
    variables = {**started.environment, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    site = ("-m", "collaborator", "start", "-n", name, "-c", f"{name}.yaml", "-a", place)
    assert started.workspace is not None
    process = forked((*torchrun, *site), started.workspace.folder, variables)
    started.running.append(process)
    return process


def opened(process: Process) -> tuple[set[str], list[list[str]]]:
    """Return where torchrun and its ranks listen, and for each rank what it alone may have open.

    That are a connection to the aggregator, and files of the folders that the first process keeps.
    """
    torchrun = psutil.Process(process.pid)
    ranks = sorted(
        (each for each in torchrun.children() if "collaborator" in each.cmdline()),
        key=lambda each: each.environ()["RANK"],
    )
    listening = {
        str(each.laddr)
        for one in (torchrun, *ranks)
        for each in one.net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    }
    held = []
    for rank in ranks:
        files = [each.path for each in rank.open_files()]
        kept = [path for path in files if any(f"/{name}/" in path for name in ("state", "egress", "logs", "cert"))]
        held.append([*kept, *(str(each.raddr) for each in rank.net_connections("inet"))])
    return listening, held


def test_a_site_of_two_processes_takes_part_once_ends_when_it_loses_one_and_returns(
    tmp_path: Path, started: Started
) -> None:
    masked = {"mode": "malicious", "most_records": 512}
    # Batches of all records, as another attempt at a round would draw others than the simulation.
    started.workspace = prepare(tmp_path, small_plan(rounds=12, protection=masked, batch_size=512))
    aggregator = started.aggregator()
    first = in_two_processes(started, NAMES[0])
    others = [started.collaborator(name) for name in NAMES[1:]]
    assert aggregator.stdout is not None
    before = [until_line(aggregator, f"{NAMES[0]} connected")]
    for line in aggregator.stdout:
        before.append(line)
        if "round 5 of" in line:
            break
    # Round 5 waits for this one, until the site has lost a process.
    others[-1].send_signal(signal.SIGSTOP)
    listening, (leading, following) = opened(first)
    assert listening == set()
    assert leading
    assert following == []
    ranks = [each for each in psutil.Process(first.pid).children() if "collaborator" in each.cmdline()]
    assert len(ranks) == 2
    (rank_1,) = [each for each in ranks if each.environ()["RANK"] == "1"]
    rank_1.send_signal(signal.SIGKILL)
    assert ended(first)[0] != 0
    back = in_two_processes(started, NAMES[0])
    others[-1].send_signal(signal.SIGCONT)
    status, words = ended(aggregator)
    assert status == 0, words
    # Both ranks of each start are one site.
    assert "".join(before).count(f"{NAMES[0]} connected") == words.count(f"{NAMES[0]} connected") == 1
    for process in (back, *others):
        status, words = ended(process)
        assert status == 0, words
        assert "Traceback" not in words
        assert "Exception ignored" not in words
        assert words.count("all 12 rounds are done") == 1
    # Within the steps of the ring, as any masked run.
    model_files_agree(started.workspace, 1e-4)
    states_agree(started.workspace)
    assert {line["contributors"] for line in metrics(started.workspace)} == {3}
