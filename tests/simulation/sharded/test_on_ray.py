"""Workers that are actors of a real Ray: the same numbers, also after `kill -9`; silent, and gone at the end."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedfair.cli.simulation_watch import SimulationWatch
from fedfair.errors import MissingExtraError, PlanError, UnreachableError
from fedfair.extras import is_installed
from fedfair.plan.loading import load_plan
from fedfair.simulation import ray_cluster
from fedfair.simulation.backend import RayCluster, chosen_engine
from fedfair.simulation.simulate import simulate
from tests.conftest import REPOSITORY
from tests.fork_server import stand_in
from tests.patience import PATIENCE

PLAN = """
federation: {name: demo, collaborators: [a, b, c, d, e]}
task:
  data: breast-cancer
  partition: {scheme: dirichlet, alpha: 0.5}
  test_fraction: 0.2
  standardize: secure
  model: {name: mlp, hidden: [8]}
objective: {measure: loss}
training: {rounds: 14, batch_size: 16, local_steps: 2, control_variates: true, device: cpu, precision: fp64}
evaluation: {every: 4}
secure_aggregation: {mode: "off"}
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "plan.yaml").write_text(PLAN)
    return tmp_path


def surroundings(temporary: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**kept, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Return a short folder, below which there is room for the path of a socket."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        yield Path(folder)


def command(*words: str, python: str = sys.executable) -> list[str]:
    return [python, "-m", "fedfair.cli", "simulate", *words]


@pytest.fixture
def forks(tmp_path: Path) -> str:
    """Return what stands for Python where what asks Ray may be a fork; what Ray starts is none."""
    return str(stand_in(tmp_path))


needs_ray = pytest.mark.skipif(
    not is_installed("ray"),
    reason="the extra ray is not installed: pip install --require-hashes --no-deps -r constraints.txt",
)


@needs_ray
@pytest.mark.slow
def test_the_command_gives_the_run_of_the_loop_and_leaves_nothing(
    workspace: Path, temporary: Path, forks: str
) -> None:
    plan = load_plan(workspace / "plan" / "plan.yaml")
    expected = simulate(plan, workspace, engine="loop")
    done = subprocess.run(
        command("--engine", "ray", "--workers", "2", "--json", "--model", "model.safetensors", python=forks),
        cwd=workspace, env=surroundings(temporary), capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)  # and nothing else is on it
    assert "ray" not in done.stderr.lower()
    train = expected.result.train
    assert train is not None
    # A few roundings of 2^-53 in each of 28 steps, on losses of order one.
    assert result["train"]["mean"] == pytest.approx(train.mean, rel=1e-12)
    assert list(temporary.iterdir()) == []


@needs_ray
@pytest.mark.slow
def test_a_killed_worker_changes_no_bit(workspace: Path, temporary: Path, forks: str) -> None:
    script = """
        import json, os, signal, sys
        import psutil
        from pathlib import Path
        from fedfair.plan.loading import load_plan
        from fedfair.simulation.backend import RayCluster
        from fedfair.simulation.simulate import simulate
        plan, lost = load_plan(Path("plan/plan.yaml")), []

        def kill(progress):
            if int(progress.round) in (3, 12) and len(lost) == (int(progress.round) > 3):
                found = [each for each in psutil.Process().children(recursive=True) if "ray::Shard" in each.name()
                         or "ray::Shard" in " ".join(each.cmdline())]
                os.kill(found[0].pid, signal.SIGKILL)
                psutil.wait_procs(found[:1], timeout=60)

        def run(workers, **watched):
            cluster = RayCluster(workers=workers)
            return simulate(plan, Path(), engine="ray", cluster=cluster, **watched)

        hurt = run(2, on_progress=kill, on_loss=lambda worker, reason: lost.append((worker, reason)))
        whole = run(1)
        print(json.dumps({
            "lost": lost,
            "same": hurt.model.vector.tobytes() == whole.model.vector.tobytes(),
            "vector": whole.model.vector.tolist(),
        }))
    """
    done = subprocess.run(
        [forks, "-c", textwrap.dedent(script)],
        cwd=workspace, env=surroundings(temporary), capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["same"]
    assert len(found["lost"]) == 2
    assert all("worker process has died" in reason for _, reason in found["lost"])
    expected = simulate(load_plan(workspace / "plan" / "plan.yaml"), workspace, engine="loop")
    np.testing.assert_allclose(found["vector"], expected.model.vector, rtol=0, atol=1e-12)


@needs_ray
@pytest.mark.slow
def test_a_running_cluster_gets_the_plans_code_and_reads_files_itself(
    workspace: Path, temporary: Path, forks: str
) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "widths.py").write_text("HIDDEN = 5\n")
    (workspace / "src" / "own_model.py").write_text(
        textwrap.dedent("""
        import torch
        import widths
        def make(schema):
            inputs = schema.input_shape[0]
            return torch.nn.Sequential(
                torch.nn.Linear(inputs, widths.HIDDEN), torch.nn.Tanh(), torch.nn.Linear(widths.HIDDEN, 2)
            )
        """)
    )
    source = np.random.default_rng(0)
    names = ["a", "b", "c"]
    for name in names:
        rows = source.normal(size=(30, 3))
        lines = [",".join(f"{value:.6f}" for value in row) + f",{int(row[0] > 0)}" for row in rows]
        (workspace / f"{name}.csv").write_text("\n".join(["x,y,z,label", *lines]) + "\n")
    files = ", ".join(f"{name}: {name}.csv" for name in names)
    (workspace / "plan" / "plan.yaml").write_text(f"""
federation: {{name: demo, collaborators: [a, b, c]}}
task:
  data: {{csv: {{label: label, numeric: [x, y, z], train_of: {{{files}}}}}}}
  model: own_model:make
training: {{rounds: 5, batch_size: 8, device: cpu, precision: fp64}}
secure_aggregation: {{mode: "off"}}
""")
    expected = simulate(load_plan(workspace / "plan" / "plan.yaml"), workspace, engine="loop")
    here = surroundings(temporary) | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
    log = temporary / "head.txt"
    with log.open("w") as out:
        head = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port=0", "--num-cpus=2",
             "--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={temporary / 'cluster'}"],
            env=here, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        address = _awaited(r"--address='([\d.]+:\d+)'", log, head)
        done = subprocess.run(
            command("--engine", "ray", "--address", address, "--json", python=forks),
            cwd=workspace, env=here, capture_output=True, text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in psutil.Process(head.pid).children(recursive=True):
                each.kill()
        head.kill()
        head.wait()
    assert json.loads(done.stdout)["threshold"] == pytest.approx(expected.result.threshold, abs=1e-12)


def _awaited(pattern: str, log: Path, writer: subprocess.Popen[bytes]) -> str:
    """Return what a process that is starting writes, as soon as it does."""
    while True:
        found = re.search(pattern, log.read_text())
        if found:
            return found[found.re.groups]
        assert writer.poll() is None, log.read_text()
        time.sleep(0.2)


@needs_ray
@pytest.mark.slow
def test_an_interrupt_ends_the_command_and_its_workers(workspace: Path, temporary: Path) -> None:
    (workspace / "plan" / "plan.yaml").write_text(PLAN.replace("rounds: 14", "rounds: 1000000"))
    said = temporary / "said.txt"
    with said.open("w") as out:
        running = subprocess.Popen(
            command("--engine", "ray", "--workers", "2", "--log-format", "json"),
            cwd=workspace, env=surroundings(temporary), stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        _awaited('"round": ?[1-9]', said, running)
        workers = psutil.Process(running.pid).children(recursive=True)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all of the group
        assert running.wait(timeout=PATIENCE) == 130
    finally:
        running.kill()
        running.wait()
    rest = said.read_text()
    said.unlink()
    assert "Traceback" not in rest
    gone, alive = psutil.wait_procs(workers, timeout=PATIENCE)
    assert gone
    assert not alive
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "localhost:{}"])
def test_an_address_where_nobody_answers_is_refused_at_once(form: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = form.format(taken.getsockname()[1])
        # Bound, and nobody listens.
        with pytest.raises(UnreachableError, match=r"no Ray cluster answers at .*refused") as fault:
            ray_cluster._check_answers(address)
        assert address in fault.value.message
        assert "\n" not in fault.value.message
        taken.listen()
        ray_cluster._check_answers(address)


@pytest.mark.parametrize("address", ["auto", "local", "nonsense", "host:", ":1", "host:99999", "host:x"])
def test_an_address_without_a_port_is_left_to_ray(address: str) -> None:
    ray_cluster._check_answers(address)


def test_without_ray_the_extra_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(MissingExtraError, match=r"this needs ray.*-r requirements/extras/ray\.txt") as missing,
        ray_cluster.ray_session(None),
    ):
        raise AssertionError("there is no Ray")
    assert "\n" not in missing.value.diagnostics()


def test_what_pools_all_records_is_not_sharded(workspace: Path) -> None:
    text = PLAN.replace("control_variates: true", "algorithm: erm")
    (workspace / "plan" / "plan.yaml").write_text(text)
    with pytest.raises(PlanError, match="erm trains on the records of all in one place"):
        chosen_engine(load_plan(workspace / "plan" / "plan.yaml"), "ray")


def test_a_cluster_that_is_too_small_is_refused() -> None:
    class Ray:
        def cluster_resources(self) -> dict[str, float]:
            return {"CPU": 3.0, "GPU": 2.0}

        def available_resources(self) -> dict[str, float]:
            return {"CPU": 0.5}

    with pytest.raises(PlanError, match="has 3 processors, fewer than --workers 4"):
        ray_cluster.processors(Ray(), 4)
    assert ray_cluster.processors(Ray(), 3) == 3
    assert ray_cluster.processors(Ray(), None) == 1
    assert [ray_cluster.gpu_share(Ray(), count) for count in (1, 2, 3, 4, 5)] == [1, 1, 0.5, 0.5, 1 / 3]
    assert RayCluster().workers is None


def test_a_lost_worker_is_told_of(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    watch = SimulationWatch(load_plan(workspace / "plan" / "plan.yaml"), None, (), shown=True)
    watch.lost(0, "its worker process has died")
    assert "worker 1 was lost and is replaced: its worker process has died" in capsys.readouterr().err
