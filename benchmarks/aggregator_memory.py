"""Peak memory of the aggregator with an 11-million-parameter model and three collaborators, over its start-up.

Runs the same federation twice over real processes, with a tiny model and with the large one, and compares the
peaks of the aggregator's resident memory (VmHWM, Linux): the difference is everything that the model costs, the
global model itself included. Target: at most 4 times the model's bytes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from machine import report
from paper_steps import constant_steps

from fedfair.cli.loopback import Processes, prepare

ROUNDS = 6
INPUTS, CLASSES = 64, 10


def parameters(hidden: int) -> int:
    return INPUTS * hidden + hidden + hidden * hidden + hidden + hidden * CLASSES + CLASSES


def peak_bytes(hidden: int) -> int:
    plan = {
        "federation": {"name": "memory", "collaborators": ["site-a", "site-b", "site-c"]},
        "task": {
            "data": "digits",
            "partition": {"scheme": "random"},
            "model": {"name": "mlp", "hidden": [hidden, hidden]},
        },
        "training": {"rounds": ROUNDS, "batch_size": 16, "output": "last", **constant_steps()},
        "secure_aggregation": {"mode": "off"},
        "evaluation": {"every": 3},
    }
    peak = 0
    with tempfile.TemporaryDirectory() as folder:
        workspace = prepare(Path(folder), plan)
        with Processes(workspace) as processes:
            status = Path(f"/proc/{processes.pid('aggregator')}/status")
            for _ in processes.progress():
                peak = max(peak, _high_water(status))
            processes.wait()
    return peak


def _high_water(status: Path) -> int:
    try:
        lines = status.read_text().splitlines()
    except OSError:  # the process has ended between two looks
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


if __name__ == "__main__":
    hidden = 3280
    model_bytes = 4 * parameters(hidden)
    small, large = peak_bytes(8), peak_bytes(hidden)
    report(
        "aggregator_memory",
        target_models=4.0,
        parameters=parameters(hidden),
        model_bytes=model_bytes,
        peak_bytes_small_model=small,
        peak_bytes_large_model=large,
        models_beyond_start_up=(large - small) / model_bytes,
    )
