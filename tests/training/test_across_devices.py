"""Several processes of a site compute what one process computes, up to the order in which gradients are added.

Tolerance: a gradient is a sum over the records of a batch, at most 41 here. Two parts are added in another order,
which moves it by at most 41 u sum |addend| in the width of the model (u = 2^-53, 2^-24; in fp16 layers 2^-11). The
learning rate is 0.05, and each record's gradient is below 20 in every entry, as features are below 5 and
coefficients sum to at most 1 / 0.3 + 1. So 4 steps of a round differ by at most 4 * 0.05 * 41 * 20 * 5 u = 820 u;
they are held to that. Noised sums differ by the rounding to whole cells as well: half a cell for each part, over a
batch of 9, which the test allows for.
"""

import contextlib
import json
import socket
import subprocess
from pathlib import Path
from typing import cast

import psutil
import pytest
import torch
from torch import nn

from fedfair.errors import PlanError
from fedfair.privacy.batch_parts import ALONE
from fedfair.training.across_devices import DeviceGroup, SiteProcesses, asked_processes, check_divisible
from fedfair.training.process_channel import ProcessChannel
from tests.fork_server import ENVIRONMENT, Process, started
from tests.patience import PATIENCE

UNITS = {"fp32": 2.0**-24, "fp16": 2.0**-11}
CELLS = 1e-3
"""More than what half a cell for each part can move, in units of the largest change; noise is a thousand cells."""


def together(out: Path, *words: str, size: int = 2) -> list[Process]:
    """Start the processes as torchrun does, without its agent, so that each ends by itself."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = {
        **ENVIRONMENT, "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    side = [str(Path(__file__).with_name("across_devices_side.py")), str(out), *words]
    return [started(side, out.parent, {**here, "RANK": str(rank)}) for rank in range(size)]


def reachable(processes: list[Process]) -> set[object]:
    """Return every network address that the processes have while they run."""
    seen = set[object]()
    while any(process.poll() is None for process in processes):
        for process in processes:
            with contextlib.suppress(psutil.Error):
                seen |= {each.laddr for each in psutil.Process(process.pid).net_connections("inet")}
        with contextlib.suppress(subprocess.TimeoutExpired):
            processes[0].wait(timeout=0.05)
    return seen


@pytest.mark.slow
def test_two_processes_make_the_steps_of_one(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    processes = together(out)
    reached = reachable(processes)
    for process in processes:
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
    # Nobody on the network, nor another user of this machine, can speak to a process of a site.
    assert reached == set()
    found = json.loads(out.read_text())
    plans = {name: each for name, each in found.items() if isinstance(each, dict)}
    assert len(plans) == 9
    for name, each in plans.items():
        assert each["fault"] == "", name
        # Whole batches are evaluated by one process each, so that not a bit differs.
        assert each["same losses"], name
        for model, threshold, moved in each["apart"]:
            bound = CELLS * moved if "noised" in name else 820 * UNITS.get(name, 2.0**-53)
            assert moved > 1e-3, name
            assert max(model, threshold) <= bound, name
        if name in UNITS or "noised" in name:
            continue
        assert each["same evaluation"], name
    for name in ("noised", "noised, ghost"):
        ours, alone = found[f"{name}, asked"]
        # The leading process draws what a site draws, once, and writes down as many releases.
        assert ours == alone
        assert ours.count("noise") == 2
        assert len(set(found[f"{name}, released"])) == 1


@pytest.mark.slow
def test_a_process_that_ends_is_one_clear_fault_and_not_a_failure_of_the_model(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    leading, other = together(out, "death")
    for process in (other, leading):
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
    (fault,) = json.loads(out.read_text()).values()
    assert fault.startswith("another process of this site has ended")
    assert "start the site again" in fault


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 64])
def test_parts_follow_one_another_and_are_all(size: int, count: int) -> None:
    unused = cast(ProcessChannel, None)
    groups = [DeviceGroup(SiteProcesses(rank, size), unused) for rank in range(size)]
    records = torch.arange(count)
    assert torch.cat([records[group.part(count)] for group in groups]).tolist() == records.tolist()
    assert [sum(group.owns(batch) for group in groups) for batch in range(10)] == [1] * 10
    assert [group.leads for group in groups] == [True] + [False] * (size - 1)
    assert ALONE.part(count) == slice(0, count)


def test_processes_are_those_of_torchrun_on_one_machine() -> None:
    assert asked_processes({}) is None
    assert asked_processes({"WORLD_SIZE": "1", "RANK": "0"}) is None
    torchrun = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert asked_processes(torchrun) == SiteProcesses(1, 2)
    with pytest.raises(PlanError, match="several machines"):
        asked_processes({**torchrun, "WORLD_SIZE": "4"})
    # torchrun --standalone, and every other whose own store listens on all networks, and unpickles what it gets.
    with pytest.raises(PlanError, match="a store open to everyone") as refused:
        asked_processes({**torchrun, "TORCHELASTIC_USE_AGENT_STORE": "True"})
    assert "store_type=file" in refused.value.remedy
    assert asked_processes({**torchrun, "TORCHELASTIC_USE_AGENT_STORE": "False"}) == SiteProcesses(1, 2)
    assert SiteProcesses(1, 2).device(torch.device("cpu")) == torch.device("cpu")


def test_a_model_that_looks_at_a_whole_batch_is_refused() -> None:
    check_divisible(nn.Sequential(nn.Linear(2, 2), nn.GroupNorm(1, 2)))
    with pytest.raises(PlanError, match=r"layer 1 \(BatchNorm1d\) takes statistics of a whole batch"):
        check_divisible(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
