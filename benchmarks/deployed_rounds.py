"""Rounds per second of a deployed federation on this machine: real processes, mutual TLS, plain and masked.

Collaborators train an MLP 64-hidden-10 on scikit-learn's digits, one step of batch 64 a round; by default three
of them with 9 010 parameters. `--hidden 149867 --collaborators 5` makes 11.2 million. The rate is that of the
run's own result file, from the first sum to the last, without starting the processes. With `--mode both` plain
and masked runs alternate, so that a busy machine disturbs both alike, and the overhead of masks per round is
the difference of the medians.

The processor milliseconds a round are the time of a process's threads on the processors, by /proc (Linux). They
are taken between a fifth and nineteen twentieths of the rounds, without start and end. A site's is the mean.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from machine import processor_seconds, report
from paper_steps import BATCH, LEARNING_RATE, SMOOTHING, constant_steps

from fedfair.cli.loopback import Processes, prepare

LEAST_ROUNDS = 20


def plan(arguments: argparse.Namespace, mode: str) -> dict[str, object]:
    names = [f"site-{number}" for number in range(1, arguments.collaborators + 1)]
    return {
        "federation": {"name": "speed", "collaborators": names},
        "task": {
            "data": "digits",
            "partition": {"scheme": "random"},
            "model": {"name": "mlp", "hidden": [arguments.hidden]},
        },
        "objective": {"measure": "loss", "smoothing": SMOOTHING},
        "training": {
            "rounds": arguments.rounds,
            "batch_size": BATCH,
            "learning_rate": LEARNING_RATE,
            "output": "last",
            **constant_steps(),
        },
        "secure_aggregation": {"mode": mode},
        "evaluation": {"every": arguments.rounds},
    }


def processor_milliseconds(processes: Processes, names: tuple[str, ...], rounds: int) -> dict[str, float]:
    """Wait for the end of the run; return what a round cost the aggregator and, on the average, a site."""
    marks: dict[int, dict[str, float]] = {}
    for line in processes.progress():
        number = int(str(line["round"]))
        if line["purpose"] == "training" and 0.2 * rounds <= number <= 0.95 * rounds:
            marks[number] = {name: processor_seconds(processes.pid(name)) for name in ("aggregator", *names)}
    began, ended = min(marks), max(marks)
    taken = {name: 1e3 * (marks[ended][name] - marks[began][name]) / (ended - began) for name in marks[ended]}
    return {
        "aggregator_processor_milliseconds_a_round": taken.pop("aggregator"),
        "site_processor_milliseconds_a_round": statistics.mean(taken.values()),
    }


def one_run(arguments: argparse.Namespace, mode: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        workspace = prepare(Path(folder), plan(arguments, mode))
        with Processes(workspace) as processes:
            processors = processor_milliseconds(processes, workspace.collaborators, arguments.rounds)
            processes.wait()
        lines = [json.loads(line) for line in workspace.metrics.read_text().splitlines()]
        sums = [line for line in lines if line["purpose"] == "training"]
        training = [line["seconds"] for line in sums]
        timing = json.loads(workspace.result.read_text())["timing"]
        return {
            "rounds_per_second": timing["rounds_per_second"],
            **processors,
            "median_round_milliseconds": 1e3 * statistics.median(training),
            "least_round_milliseconds": 1e3 * min(training),
            "bytes_up_per_collaborator": statistics.median(
                line["bytes_in"] / line["contributors"] for line in sums
            ),
            "bytes_down_per_collaborator": statistics.median(
                line["bytes_out"] / line["contributors"] for line in sums
            ),
        }


def summary(runs: list[dict[str, float]]) -> dict[str, object]:
    return {**{key: statistics.median(run[key] for run in runs) for key in runs[0]}, "runs": runs}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--collaborators", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=120)
    parser.add_argument("--mode", choices=("malicious", "semi-honest", "off", "both"), default="malicious")
    arguments = parser.parse_args()
    if arguments.rounds < LEAST_ROUNDS:
        parser.error(f"--rounds must be at least {LEAST_ROUNDS}: the first fifth and the end are not measured")
    modes = ("off", "malicious") if arguments.mode == "both" else (arguments.mode,)
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in modes}
    for _ in range(arguments.runs):
        for mode in modes:
            found[mode].append(one_run(arguments, mode))
    figures = {mode: summary(runs) for mode, runs in found.items()}
    if arguments.mode == "both":
        medians = {mode: statistics.median(r["median_round_milliseconds"] for r in found[mode]) for mode in modes}
        figures["overhead"] = {
            "milliseconds_a_round": medians["malicious"] - medians["off"],
            "ratio": medians["malicious"] / medians["off"],
        }
    report(
        "deployed_rounds",
        target_rounds_per_second=20,
        mode=arguments.mode,
        collaborators=arguments.collaborators,
        parameters=64 * arguments.hidden + arguments.hidden + arguments.hidden * 10 + 10,
        rounds=arguments.rounds,
        **(figures if arguments.mode == "both" else figures[arguments.mode]),
    )
