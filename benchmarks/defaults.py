"""How near to the optimum the product trains with its defaults, beside the defaults that it had before.

Every run is a simulation of the product: a plan with the required keys, the size of the worst group and a seed,
and nothing else. *Before* states the earlier defaults and looks at the model of the last round, which was returned
then; today a better one would take its place. The tables and their proven optima are those of
`optimizers.py`. Their features are standardised already, as the sums of `standardize: secure` would do it, and so
the plans keep the default `standardize: none`.

The figure is the training objective without smoothing, at the threshold that suits the returned model best. It is
exact, from the losses of single records. Its excess is that over the pooled optimum, for the worst seed; where
classes are separable it is the objective itself over log |Y|. A run also says whether it ends above its start.

Runs go to a file, one JSON line each; a run that is in the file is not computed again. So the whole table can be
made in pieces, by several processes with a file each:

    python benchmarks/defaults.py --runs runs.jsonl --data bc10 heart
    python benchmarks/defaults.py --runs runs.jsonl --table

With `--hidden` the model has one hidden layer and no optimum is known: the table gives the objectives by rate.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import report
from numpy.typing import NDArray
from optimizer_tables import TABLES, Table, optimum, table, worst_mean
from optimizers import AIM, EPSILON, SEPARABLE, SIZES, excess, known

from fedfair.fairness.record_losses import SiteLosses
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.dataset import Dataset, Splits

Values = dict[str, dict[str, object]]

BEFORE: Values = {
    "objective": {"smoothing": {"name": "softplus", "gamma": 0.05}},
    "training": {
        "schedule": "constant",
        "server_optimizer": {"name": "sgd"},
        "batch_size": 64,
        "learning_rate": 0.05,
        "output": "last",
    },
}
SETTINGS: Mapping[str, Values] = {"before": BEFORE, "after": {}}
"""What a plan states beside its required keys, by the word of `--settings`."""

PUBLISHED = tuple(name for name in TABLES if not name.endswith("by-class"))
"""The tables of `docs/results/defaults/product.csv`."""

ROUNDING = 1e-6
"""A share of the start: a model that is the first one may lie above it by so much, in single precision."""

Run = dict[str, Any]
"""A line of the file: what names a run, and what came of it."""


def sites_of(held: Table) -> dict[ParticipantId, Splits]:
    """Return the collaborators of a table, without its column of ones: the model has a bias."""
    columns = held.features[0].shape[1] - 1
    schema = FeatureSchema((columns,), held.classes)
    return {
        ParticipantId(f"site-{at}"): Splits(Dataset(own[:, :-1], labels, schema))
        for at, (own, labels) in enumerate(zip(held.features, held.labels, strict=True))
    }


def plan_of(key: Run, sites: Sequence[str]) -> Plan:
    """Return the plan of a run.

    Args:
        key: what names the run.
        sites: the collaborators.
    """
    stated = SETTINGS[key["settings"]]
    model = {"name": "linear"} if key["hidden"] is None else {"name": "mlp", "hidden": [key["hidden"]]}
    training = {
        "rounds": key["rounds"],
        "seed": key["seed"],
        "threshold_init": "bound",
        **stated.get("training", {}),
    }
    if key["rate"] is not None:
        training["server_optimizer"] = {"name": "adam", "learning_rate": key["rate"]}
    values = {
        "federation": {"name": key["data"], "collaborators": list(sites)},
        # The records are handed over in memory; a plan must name some.
        "task": {"data": "breast-cancer", "model": model},
        "objective": {"measure": "loss", "worst_group_size": key["rho"], **stated.get("objective", {})},
        "training": training,
    }
    return Plan.model_validate(values)


def objective(losses: NDArray[np.float64], rho: float) -> float:
    """Return the objective without smoothing of losses (n,), at the best threshold."""
    return float((1.0 - EPSILON) * worst_mean(losses, rho) + EPSILON * losses.mean())


def training_losses(losses: Mapping[ParticipantId, SiteLosses]) -> NDArray[np.float64]:
    """Return the losses of all sites' training records, in one row."""
    return np.concatenate([one["train"].values for one in losses.values()])


def run(key: Run, held: Table) -> Run:
    """Return the line of a run."""
    began, sites = time.perf_counter(), sites_of(held)
    outcome = simulate_sites(plan_of(key, [*sites]), sites, Path(), engine="vectorised")
    last = outcome.result.history[-1].train
    returned = objective(training_losses(outcome.losses), key["rho"])
    after_last_round = (1.0 - EPSILON) * float(last.worst or 0.0) + EPSILON * last.mean
    return {
        **key,
        "classes": held.classes,
        "objective": after_last_round if key["settings"] == "before" else returned,
        "returned": returned,
        "last": after_last_round,
        "threshold": outcome.model.threshold,
        "seconds": round(time.perf_counter() - began, 1),
    }


def keys(options: argparse.Namespace) -> list[Run]:
    """Return what names each run that is asked for."""
    return [
        {
            "data": data, "settings": settings, "rho": size, "seed": seed, "rounds": options.rounds,
            "hidden": options.hidden, "rate": rate,
        }
        for data in options.data
        for settings in options.settings
        for rate in options.rate
        for size in options.sizes
        for seed in range(options.seeds)
    ]  # fmt: skip


def compute(options: argparse.Namespace) -> None:
    """Append the runs that the file lacks."""
    wanted = keys(options)
    done = [{name: line[name] for name in wanted[0]} for line in known(options.runs)]
    for key in (one for one in wanted if one not in done):
        held = table(key["data"], options.root, options.cache)
        line = run(key, held)
        if key["hidden"] is None:
            best = optimum(held, key["rho"], EPSILON, options.cache)
            line |= {"optimum": best.value, "lower_bound": best.lower}
            line["excess"] = excess(line["objective"], best.value, held.classes)
            line["above_start"] = line["objective"] > math.log(held.classes) * (1.0 + ROUNDING)
        with options.runs.open("a") as out:
            print(json.dumps(line), file=out)


def markdown(runs: Sequence[Run]) -> str:
    """Return the tables of the runs: excess of the linear model, objectives of a model with a hidden layer."""
    linear = [one for one in runs if one["hidden"] is None and one["rate"] is None]
    layered = [one for one in runs if one["hidden"] is not None]
    made = [table_of(own) for own, table_of in ((linear, _excesses), (layered, _objectives)) if own]
    return "\n\n".join(made)


def _excesses(runs: Sequence[Run]) -> str:
    names = [name for name in SETTINGS if any(one["settings"] == name for one in runs)]
    cells: dict[tuple[str, float], dict[str, list[Run]]] = {}
    for one in runs:
        cells.setdefault((one["data"], one["rho"]), {}).setdefault(one["settings"], []).append(one)
    heads = " | ".join(f"{name} | excess | above its start" for name in names)
    lines = [f"| table | worst | optimum | {heads} |", f"| --- | --- | --- |{' --- | --- | --- |' * len(names)}"]
    for (data, size), by_settings in cells.items():
        shown = " | ".join(_cell(by_settings.get(name, [])) for name in names)
        best = next(iter(by_settings.values()))[0]["optimum"]
        lines.append(f"| {data} | {100 * size:g} % | {best:.4f} | {shown} |")
    for name in names:
        own = [cell[name] for cell in cells.values() if name in cell]
        passed = sum(all(one["excess"] <= AIM and not one["above_start"] for one in cell) for cell in own)
        above = sum(one["above_start"] for cell in own for one in cell)
        count = sum(len(cell) for cell in own)
        lines += ["", f"{name}: {passed} of {len(own)} cells pass; {above} of {count} runs end above their start."]
    return "\n".join(lines)


def _cell(runs: Sequence[Run]) -> str:
    if not runs:
        return " | | "
    worst = max(runs, key=lambda one: one["objective"])
    unit = "%" if worst["optimum"] >= SEPARABLE else "% of log Y"
    above = sum(one["above_start"] for one in runs)
    # Without the zero's sign: an optimum of the solver may lie a hair above the truth.
    return (
        f"{worst['objective']:.4f} | {round(100 * worst['excess'], 2) + 0.0:.2f} {unit} | {above} of {len(runs)}"
    )


def _objectives(runs: Sequence[Run]) -> str:
    rates = sorted({one["rate"] for one in runs if one["rate"] is not None})
    columns = [*rates, *([None] if any(one["rate"] is None for one in runs) else [])]
    heads = ["default" if rate is None else f"{rate:g}" for rate in columns]
    lines = [f"| table, worst, hidden | {' | '.join(heads)} |", f"| --- |{' --- |' * len(columns)}"]
    for data, size, hidden in dict.fromkeys((one["data"], one["rho"], one["hidden"]) for one in runs):
        own = [one for one in runs if (one["data"], one["rho"], one["hidden"]) == (data, size, hidden)]
        shown = [", ".join(f"{one['objective']:.4f}" for one in own if one["rate"] == rate) for rate in columns]
        lines.append(f"| {data}, {100 * size:g} %, {hidden} | {' | '.join(shown)} |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=TABLES, default=list(PUBLISHED), metavar="NAME")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--sizes", nargs="+", type=float, default=list(SIZES), help="of the worst group")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--hidden", type=int, help="units of one hidden layer; without it the model is linear")
    parser.add_argument("--rate", nargs="+", type=float, default=[None], help="of the server's Adam")
    parser.add_argument("--root", type=Path, default=Path(os.environ.get("FEDFAIR_DATA", "data")))
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "fedfair-optimizers")
    parser.add_argument("--runs", type=Path, default=Path("defaults.jsonl"), help="the file of the runs")
    parser.add_argument("--table", action="store_true", help="print the file's runs as Markdown; compute nothing")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.table:
        print(markdown(known(options.runs)))
        return
    options.cache.mkdir(parents=True, exist_ok=True)
    compute(options)
    report("defaults", runs=known(options.runs))


if __name__ == "__main__":
    main()
