"""What a computing process of a site's own costs: one answer to a round, beside the same in the site's process.

Prints JSON: seconds to be ready, and milliseconds of a change of the model, the median over rounds, for models of
several sizes and every way to the process.

    $ python benchmarks/worker_cost.py --rounds 30
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import yaml

from collaborator.preparation import Readiness, find_site, make_ready
from fedfair.aggregation.requests import GlobalModel
from fedfair.cli.loopback import Workspace, prepare
from fedfair.ids import RoundNumber

HIDDEN = (16, 1024, 65_536)
"""Neurons of a hidden layer over 30 columns: 530 parameters, 33,794, and 2.2 million."""

WAYS = ("none", "socket", "tcp", "folder")
SITE = "clinic-a"


def workspace_of(folder: Path, hidden: int) -> Workspace:
    """Return a federation of three sites whose model has one hidden layer."""
    return prepare(
        folder,
        {
            "federation": {"name": "cost", "collaborators": [SITE, "clinic-b", "clinic-c"]},
            "task": {
                "data": "breast-cancer",
                "model": {"name": "mlp", "hidden": [hidden]},
                "partition": {"scheme": "label"},
                "standardize": "none",
            },
            "objective": {"measure": "loss"},
            "training": {"rounds": 1, "local_steps": 1, "batch_size": 64, "threshold_init": "bound"},
        },
    )


def ready_by(workspace: Workspace, way: str) -> Readiness:
    """Return the site, whose worker is reached in this way."""
    file = workspace.folder / f"{SITE}.yaml"
    worker = {"process": way != "none"} | ({} if way == "none" else {"over": way})
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"worker": worker}))
    return make_ready(find_site(SITE, file, workspace.plan, None))


def measured(workspace: Workspace, way: str, rounds: int) -> dict[str, float]:
    """Return what one way costs."""
    begun = time.perf_counter()
    ready = ready_by(workspace, way)
    start = time.perf_counter() - begun
    model, seconds = GlobalModel(ready.binding.vector, 0.5), []
    for number in range(1, rounds + 1):
        begun = time.perf_counter()
        ready.task.summable_change(model, RoundNumber(number), 1)
        seconds.append(time.perf_counter() - begun)
    ready.computation.close()
    return {"ready_seconds": round(start, 2), "round_ms": round(1e3 * statistics.median(seconds), 2)}


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    found: dict[str, dict[str, dict[str, float]]] = {}
    for hidden in HIDDEN:
        with tempfile.TemporaryDirectory() as folder:
            workspace = workspace_of(Path(folder), hidden)
            found[str(33 * hidden + 2)] = {way: measured(workspace, way, rounds) for way in WAYS}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
