"""What reaches the optimum without tuning: server optimisers, schedules and smoothings, beside proven optima.

Every cell trains one table with one method for one size of the worst group, by the reference implementation of
`optimizer_reference.py`, which shares nothing with the product's training. The figure is the excess of the
training objective without smoothing over the pooled optimum, for the worst seed. Where classes are separable the
optimum is 0, and the figure is the objective itself over log |Y|. A cell passes at 1 % or less.

Cells go to a file, one JSON line each, as soon as their table is done; a cell that is in the file is not computed
again. So the whole table can be made in pieces, by several processes with a file each:

    python benchmarks/optimizers.py --cells cells.jsonl --data bc10 heart --methods default paper
    python benchmarks/optimizers.py --cells cells.jsonl --table

`--scale` multiplies the server's rate, to see how sensitive a method is. Published tables come from $FEDFAIR_DATA.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from machine import report
from optimizer_reference import Outcome, Runs, Setting, curvature_rate
from optimizer_tables import TABLES, Table, optimum, table

EPSILON = 0.01
SIZES = (0.1, 0.3, 0.5)
AIM = 0.01
SEPARABLE = 1e-3
"""Below this many nats an optimum is that of separable classes."""

DEFAULT = Setting()
ADAM = replace(DEFAULT, warm_up=0.0)
AVERAGING = replace(ADAM, optimizer="averaging", rate=1.0, schedule="constant")
PAPER = replace(AVERAGING, smoothing="softplus", gamma=0.05, local_rate=0.05, local_schedule="constant")
WITHOUT_DECAY = replace(ADAM, schedule="constant", local_schedule="constant")


def _curvature(held: Table, size: float) -> Setting:
    rate = curvature_rate(held, size, EPSILON, DEFAULT.smoothing, DEFAULT.gamma)
    return replace(ADAM, optimizer="momentum", rate=rate)


METHODS: Mapping[str, Setting | Callable[[Table, float], Setting]] = {
    "default": DEFAULT,
    "adam": ADAM,
    "paper": PAPER,
    "paper, c capped": replace(PAPER, capped=True),
    "averaging, linear, softplus": replace(PAPER, local_schedule="linear"),
    "averaging, cosine, zang": replace(AVERAGING, local_rate=0.1),
    "averaging, cosine, zang, c capped": replace(AVERAGING, local_rate=0.1, capped=True),
    "adam, softplus .05": replace(ADAM, smoothing="softplus", gamma=0.05),
    "adam, zang .05": replace(ADAM, gamma=0.05),
    "adam, zang .005": replace(ADAM, gamma=0.005),
    "adam, second .999": replace(ADAM, second=0.999),
    "adam, linear": replace(ADAM, schedule="linear", local_schedule="linear"),
    "adam, warm-up .05": replace(ADAM, warm_up=0.05),
    "adam, constant": WITHOUT_DECAY,
    "adam, local constant": replace(ADAM, local_schedule="constant"),
    "adam, c capped": replace(ADAM, capped=True),
    "adam, local rate .1": replace(ADAM, local_rate=0.1),
    "adam, local rate .001": replace(ADAM, local_rate=0.001),
    "yogi": replace(ADAM, optimizer="yogi"),
    "amsgrad": replace(ADAM, optimizer="amsgrad"),
    "momentum": replace(ADAM, optimizer="momentum", rate=0.03),
    "curvature, momentum": _curvature,
    "schedule-free adam": replace(WITHOUT_DECAY, optimizer="schedule-free"),
    "d-adaptation": replace(ADAM, optimizer="d-adaptation", rate=1.0, second=0.99),
    "prodigy": replace(ADAM, optimizer="prodigy", rate=1.0, second=0.99),
}
"""By the word of `--methods`; `adam` is the default without warm-up, and the others are built on it.

A function where the setting depends on the table.
"""

Cell = dict[str, Any]
"""A line of the file: what names a cell, and what came of it."""


def setting_of(method: str, scale: float, held: Table, size: float) -> Setting:
    """Return the setting of a cell."""
    stated = METHODS[method]
    base = stated(held, size) if callable(stated) else stated
    asked = replace(base, rho=size, epsilon=EPSILON)
    if base.optimizer == "averaging":  # the sites' rate is the one that a user tunes
        return replace(asked, local_rate=base.local_rate * scale)
    return replace(asked, rate=base.rate * scale)


def excess(value: float, best: float, classes: int) -> float:
    """Return how far an objective is from the aim's yardstick, as a share."""
    return value / math.log(classes) if best < SEPARABLE else value / best - 1.0


def cell(key: Cell, outcomes: Sequence[Outcome], best: float, lower: float, classes: int) -> Cell:
    """Return the line of a cell."""
    start = outcomes[0].start
    return {
        **key,
        "optimum": best,
        "lower_bound": lower,
        "start": max(one.start for one in outcomes),
        "last": [one.last for one in outcomes],
        "tail": [one.tail for one in outcomes],
        "threshold": [one.threshold for one in outcomes],
        "excess": max(excess(one.last, best, classes) for one in outcomes),
        "excess_of_tail": max(excess(one.tail, best, classes) for one in outcomes),
        "rise": max(one.last / one.start for one in outcomes) - 1.0,
        "highest": max(max(one.curve) for one in outcomes) / start,
    }


def keys(options: argparse.Namespace) -> list[Cell]:
    """Return what names each cell that is asked for."""
    return [
        {
            "data": data, "local_steps": steps, "batch": options.batch, "rounds": options.rounds,
            "seeds": options.seeds, "hidden": options.hidden, "method": method, "scale": scale, "rho": size,
        }
        for data in options.data
        for steps in options.local_steps
        for method in options.methods
        for scale in options.scale
        for size in options.sizes
    ]  # fmt: skip


def known(file: Path) -> list[Cell]:
    """Return the cells of a file; none where there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def compute(options: argparse.Namespace) -> None:
    """Append the cells that the file lacks, those of one table and number of local steps at a time."""
    wanted = keys(options)
    names = list(wanted[0])
    done = [{name: line[name] for name in names} for line in known(options.cells)]
    missing = [one for one in wanted if one not in done]
    for data, steps in dict.fromkeys((one["data"], one["local_steps"]) for one in missing):
        held = table(data, options.root, options.cache)
        group = [one for one in missing if (one["data"], one["local_steps"]) == (data, steps)]
        settings = [setting_of(one["method"], one["scale"], held, one["rho"]) for one in group]
        batch = None if options.batch == "full" else int(options.batch)
        runs = Runs(
            held, settings, range(options.seeds), rounds=options.rounds, local_steps=steps, batch=batch,
            hidden=options.hidden,
        )  # fmt: skip
        with np.errstate(over="ignore", invalid="ignore"):
            outcomes = runs.run()
        with options.cells.open("a") as out:
            for one, found in zip(group, outcomes, strict=True):
                best = optimum(held, one["rho"], EPSILON, options.cache)
                print(json.dumps(cell(one, found, best.value, best.lower, held.classes)), file=out)


def markdown(cells: Sequence[Cell]) -> str:
    """Return a table: a row for each method and scale, a column for each data set, cells in per cent."""
    parts = []
    for steps, batch in sorted({(one["local_steps"], one["batch"]) for one in cells}, key=str):
        own = [one for one in cells if (one["local_steps"], one["batch"]) == (steps, batch)]
        data = list(dict.fromkeys(one["data"] for one in own))
        sizes = sorted({one["rho"] for one in own})
        lines = [
            f"Local steps {steps}, batch {batch}: per cent for {', '.join(map(str, sizes))}.",
            "",
            f"| method | {' | '.join(data)} | pass |",
            f"| --- |{' --- |' * (len(data) + 1)}",
        ]
        for method, scale in dict.fromkeys((one["method"], one["scale"]) for one in own):
            row = {(one["data"], one["rho"]): one["excess"] for one in own if _names(one, method, scale)}
            shown = [" / ".join(_percent(row.get((name, size))) for size in sizes) for name in data]
            passed = sum(value <= AIM for value in row.values())
            times = "" if scale == 1.0 else f", rate x {scale:g}"
            lines.append(f"| {method}{times} | {' | '.join(shown)} | {passed} of {len(row)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _names(one: Cell, method: str, scale: float) -> bool:
    return (one["method"], one["scale"]) == (method, scale)


def _percent(value: float | None) -> str:
    if value is None:
        return ""
    return f"{100 * value:.1f}" if value < 10.0 else "far"


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=TABLES, default=list(TABLES), metavar="NAME")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME")
    parser.add_argument("--sizes", nargs="+", type=float, default=list(SIZES), help="of the worst group")
    parser.add_argument("--scale", nargs="+", type=float, default=[1.0], help="factors of the rate")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--local-steps", nargs="+", type=int, default=[1])
    parser.add_argument("--batch", default="256", help="records of a batch, or full")
    parser.add_argument("--hidden", type=int, help="units of one hidden layer; without it the model is linear")
    parser.add_argument("--root", type=Path, default=Path(os.environ.get("FEDFAIR_DATA", "data")))
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "fedfair-optimizers")
    parser.add_argument("--cells", type=Path, default=Path("optimizers.jsonl"), help="the file of the cells")
    parser.add_argument("--table", action="store_true", help="print the file's cells as Markdown; compute nothing")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    options.cache.mkdir(parents=True, exist_ok=True)
    if options.table:
        print(markdown(known(options.cells)))
        return
    compute(options)
    report("optimizers", cells=known(options.cells))


if __name__ == "__main__":
    main()
