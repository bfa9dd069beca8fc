"""Rounds per second of a deployed federation on this machine: four processes, mutual TLS, a 9 010-parameter model.

Three collaborators train an MLP 64-120-10 on scikit-learn's digits, one step of batch 64 a round. The figure is
that of the run's own result file: from the first sum to the last, without starting the processes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from machine import report

from fedfair.cli.loopback import Processes, prepare


def plan(rounds: int, mode: str) -> dict[str, object]:
    return {
        "federation": {"name": "speed", "collaborators": ["site-a", "site-b", "site-c"]},
        "task": {
            "data": "digits",
            "partition": {"scheme": "random"},
            "model": {"name": "mlp", "hidden": [120]},
        },
        "training": {"rounds": rounds, "batch_size": 64, "learning_rate": 0.05},
        "secure_aggregation": {"mode": mode},
        "evaluation": {"every": rounds},
    }


def one_run(rounds: int, mode: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        workspace = prepare(Path(folder), plan(rounds, mode))
        with Processes(workspace) as processes:
            processes.wait()
        lines = [json.loads(line) for line in workspace.metrics.read_text().splitlines()]
        sums = [line for line in lines if line["purpose"] == "training"]
        training = [line["seconds"] for line in sums]
        timing = json.loads(workspace.result.read_text())["timing"]
        return {
            "rounds_per_second": timing["rounds_per_second"],
            "median_round_milliseconds": 1e3 * statistics.median(training),
            "bytes_up_per_collaborator": statistics.median(
                line["bytes_in"] / line["contributors"] for line in sums
            ),
            "bytes_down_per_collaborator": statistics.median(
                line["bytes_out"] / line["contributors"] for line in sums
            ),
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mode", choices=("malicious", "semi-honest", "off"), default="malicious")
    arguments = parser.parse_args()
    runs = [one_run(arguments.rounds, arguments.mode) for _ in range(arguments.runs)]
    report(
        "deployed_rounds",
        target_rounds_per_second=20,
        mode=arguments.mode,
        collaborators=3,
        parameters=64 * 120 + 120 + 120 * 10 + 10,
        rounds=arguments.rounds,
        rounds_per_second=statistics.median(run["rounds_per_second"] for run in runs),
        runs=runs,
    )
