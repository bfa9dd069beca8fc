"""The benchmark for a GPU runs where there is none, and says on what it ran."""

import json

import pytest

from tests.conftest import REPOSITORY
from tests.fork_server import played


@pytest.mark.slow
def test_every_kind_runs_on_a_cpu_in_both_precisions() -> None:
    command = [str(REPOSITORY / "benchmarks/gpu.py"), "--device", "cpu", "--quick", "--cases", "mlp-512"]
    done = played(command, REPOSITORY)
    assert done.returncode == 0, done.stdout
    # Opacus warns before.
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["device"]["type"] == "cpu"
    assert found["device"]["name"]
    kinds = {precision: [] for precision in ("fp32", "bf16")}
    for row in found["rows"]:
        assert row["samples_per_second"] > 0.0
        assert row["peak_mib"] is None
        kinds[row["precision"]].append(row["kind"])
    assert kinds["fp32"] == ["torch", "fedavg", "fedsrcvar", "auto", "hooks", "ghost", "opacus", "opacus-ghost"]
    assert kinds["bf16"] == ["torch", "fedavg", "fedsrcvar", "auto", "hooks", "opacus"]
