"""Processor time a round and peak memory of a masked federation with a large model: real processes, mutual TLS.

Beside them stands the floor (`large_floor.py`), measured before and after in the same minutes, and the processor
time of the local step alone. A busy machine takes longer for both, so compare the figure with the floor.

Collaborators train an MLP on scikit-learn's digits, one step of batch 64 a round. The defaults make 11.24 million
parameters in one hidden layer, and five sites; `--hidden 9952 9952 --collaborators 3` makes 99.8 million in two,
of which `--adapters 50` trains and sends 995,200 beside frozen layers that come from a file.
Plain averaging moves the model; with `--adam` it is the product's own server optimizer, with two moments.
The processor time is what the kernel counts for each process (Linux) between the first training round and the
last, so start-up and the evaluations at both ends are left out. Every site does the same, so their mean is one
figure.

A peak is the greatest resident memory (VmHWM) above that of the same process with a tiny model, in bytes of the
model. For a site there is a second peak: that of a process that computes the same local steps and losses and sends
nothing. What a site takes beyond training is the difference. Another commit is measured with its files in a folder
that `PYTHONPATH` names.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import torch
from large_floor import floor_seconds
from machine import processor_seconds, report
from paper_steps import BATCH, LEARNING_RATE, SMOOTHING, constant_steps

import fedfair
from fedfair.aggregation.model_file import save
from fedfair.cli.loopback import Processes, Workspace, prepare
from fedfair.training.flat_model import FlatModel
from fedfair.training.models import mlp

TINY_HIDDEN = 8
LOOK_SECONDS = 0.05
TARGETS = {"processor_seconds_a_round": 2.4, "aggregator_models": 3.0, "site_models_beyond_training": 4.0}


@dataclass(slots=True)
class Watched:
    """What the kernel says of one process.

    Attributes:
        peak: greatest resident memory so far, in bytes.
        own: memory that is mapped from no file when the last training round was reported, in bytes.
        spent: processor seconds when each training round was reported.
    """

    peak: int = 0
    own: int = 0
    spent: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Alone:
    """What local training takes in a process of its own.

    Attributes:
        peak: greatest resident memory, in bytes.
        step_seconds: processor seconds of a round's local steps.
    """

    peak: int
    step_seconds: float


@dataclass(frozen=True, slots=True)
class Trained:
    """How a model is trained.

    Attributes:
        collaborators: how many.
        adam: by the product's own server optimizer, and not by plain averaging.
        rank: of adapters beside the second hidden layer, all else being frozen; None where the whole is trained.
    """

    collaborators: int
    adam: bool = False
    rank: int | None = None


def plan(hidden: list[int], trained: Trained, rounds: int) -> dict[str, object]:
    collaborators, adam = trained.collaborators, trained.adam
    parts = {} if trained.rank is None else {"parameters": {"lora": {"layers": ["hidden2"], "rank": trained.rank}}}
    names = [f"site-{number}" for number in range(1, collaborators + 1)]
    return {
        "federation": {"name": "large", "collaborators": names},
        "task": {
            "data": "digits",
            "partition": {"scheme": "random"},
            "model": {"name": "mlp", "hidden": hidden},
        },
        "objective": {"measure": "loss", "smoothing": SMOOTHING},
        "training": {
            "rounds": rounds,
            "batch_size": BATCH,
            "learning_rate": LEARNING_RATE,
            "output": "last",
            **({} if adam else constant_steps()),
            **parts,
        },
        "evaluation": {"every": rounds},
    }


def one_run(hidden: list[int], trained: Trained, rounds: int) -> tuple[dict[str, Watched], Alone]:
    """Return what every process took, and what local training takes alone in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "federation"
        place.mkdir()
        weights = None if trained.rank is None else _pretrained(Path(folder), hidden)
        workspace = prepare(place, plan(hidden, trained, rounds), weights=weights)
        watched = {name: Watched() for name in ("aggregator", *workspace.collaborators)}
        over = threading.Event()
        with Processes(workspace) as processes:
            numbers = {name: processes.pid(name) for name in watched}
            watcher = threading.Thread(target=_watch, args=(numbers, watched, over))
            watcher.start()
            try:
                for progress in processes.progress():
                    if progress["purpose"] == "training":
                        for name, number in numbers.items():
                            watched[name].spent.append(processor_seconds(number))
                            watched[name].own = _own(number)
                processes.wait()
            finally:
                over.set()
                watcher.join()
        alone = _training_alone(workspace)
    return watched, alone


def _watch(numbers: dict[str, int], watched: dict[str, Watched], over: threading.Event) -> None:
    while not over.wait(LOOK_SECONDS):
        for name, number in numbers.items():
            watched[name].peak = max(watched[name].peak, _high_water(number))


def _high_water(number: int | str) -> int:
    try:
        lines = Path(f"/proc/{number}/status").read_text().splitlines()
    except OSError:  # the process has ended between two looks
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _own(number: int) -> int:
    """Return the memory of a process that is mapped from no file, in bytes (Linux)."""
    lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def _training_alone(workspace: Workspace) -> Alone:
    """Return what a process takes that makes a site ready and computes what a run asks for."""
    arguments = [sys.executable, __file__, "--train", str(workspace.folder), workspace.collaborators[0]]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    peak, seconds = done.stdout.split()[-2:]
    return Alone(int(peak), float(seconds))


def train_and_say(folder: Path, name: str) -> None:
    """Compute what a site computes for two rounds and an evaluation, and print the peak of this process."""
    # Only the child needs them, and they take seconds to load.
    from collaborator.preparation import find_site, make_ready
    from fedfair.aggregation.requests import GlobalModel
    from fedfair.ids import RoundNumber
    from fedfair.process.kept_memory import nothing_kept

    os.chdir(folder)
    ready = make_ready(find_site(name, folder / f"{name}.yaml", folder / "plan" / "plan.yaml", None))
    model = GlobalModel(ready.binding.vector, 0.0)
    # As at a site: rounds use their memory again (`make_ready` has told the C library), evaluations give it back.
    for number in (1, 2, 3):
        begun = time.process_time()
        ready.task.summable_change(model, RoundNumber(number), 1)
        spent = time.process_time() - begun
    with nothing_kept(model.vector.nbytes):
        ready.task.losses_of(model)
    print(_high_water("self"), spent)


def _pretrained(folder: Path, hidden: list[int]) -> Path:
    """Write weights of the whole model, and return their file."""
    whole = FlatModel(mlp(64, hidden, 10), torch.float32)
    save(folder / "pretrained.safetensors", whole.layout, whole.vector(), {})
    return folder / "pretrained.safetensors"


def figures(hidden: list[int], trained: Trained, rounds: int) -> dict[str, object]:
    """Return all figures of one size of model."""
    widths = [64, *hidden, 10]
    parameters = sum((before + 1) * after for before, after in pairwise(widths))
    travelling = parameters if trained.rank is None else trained.rank * (hidden[0] + hidden[1])
    collaborators, model_bytes = trained.collaborators, 4 * travelling
    tiny, tiny_alone = one_run([TINY_HIDDEN] * len(hidden), trained, 3)
    floor = floor_seconds(model_bytes, collaborators)
    large, large_alone = one_run(hidden, trained, rounds)
    floor_after = floor_seconds(model_bytes, collaborators)
    spent = {name: (seen.spent[-1] - seen.spent[0]) / (len(seen.spent) - 1) for name, seen in large.items()}
    sites = [name for name in large if name != "aggregator"]
    models = {name: (large[name].peak - tiny[name].peak) / model_bytes for name in large}
    training = (large_alone.peak - tiny_alone.peak) / model_bytes
    site = max(models[name] for name in sites)
    return {
        "parameters": parameters,
        "travelling": travelling,
        "model_bytes": model_bytes,
        "peak_megabytes": {name: round((large[name].peak - tiny[name].peak) / 1e6, 1) for name in large},
        "own_megabytes": {name: round((large[name].own - tiny[name].own) / 1e6, 1) for name in large},
        "processor_seconds_a_round": sum(spent.values()),
        "floor_seconds_a_round": {name: (floor[name] + floor_after[name]) / 2 for name in floor},
        "local_step_seconds_a_round": collaborators * large_alone.step_seconds,
        "aggregator_processor_seconds": spent["aggregator"],
        "site_processor_seconds": sum(spent[name] for name in sites) / len(sites),
        "aggregator_models": models["aggregator"],
        "site_models": site,
        "training_alone_models": training,
        "site_models_beyond_training": site - training,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, nargs="+", default=[149_867])
    parser.add_argument("--collaborators", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--adam", action="store_true", help="step as a plan does that says nothing: two moments more"
    )
    parser.add_argument(
        "--adapters", type=int, metavar="RANK", help="train adapters beside the second layer, and freeze all else"
    )
    parser.add_argument("--train", nargs=2, metavar=("FOLDER", "NAME"), help="what the script calls itself with")
    arguments = parser.parse_args()
    if arguments.train is not None:
        train_and_say(Path(arguments.train[0]), arguments.train[1])
    else:
        report(
            "large_models",
            targets=TARGETS,
            tree=str(Path(fedfair.__file__).parent.parent),
            collaborators=arguments.collaborators,
            rounds=arguments.rounds,
            adam=arguments.adam,
            **figures(
                arguments.hidden,
                Trained(arguments.collaborators, arguments.adam, arguments.adapters),
                arguments.rounds,
            ),
        )
