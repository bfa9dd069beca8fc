"""Compares what advice promises with what its plan reaches, on tables of `optimizers.py` and made-up people.

Of every table a fifth of each site's records is held out as test records, and a fifth validates. The advice, quick
or thorough, sees the rest. Then the plan with its recommendation is simulated, and its test records are compared:

    errors      the difference of the mean loss, or of the worst tenth, in its standard errors (promise and run)
    untrained   the run returned the untrained model, though a training was recommended
    worse       its verdict says not to use the model
    nothing     no setting was recommended, because none beats the base rate

"Do not use" where nothing better was to be had is to be 0: a recommended plan has no verdict "worse".

    python benchmarks/advice_reached.py --data heart adult --models linear
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import report
from measures import MODELS
from optimizer_tables import TABLES, table
from verdict_advice import without_groups

from fedfair.fairness.cvar import cvar
from fedfair.fairness.record_losses import Losses
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.simulation.simulate import simulate_sites
from fedfair.studies.advice.figures import standard_error, worst_terms
from fedfair.studies.advice.search import AdviceGrid, advise_sites
from fedfair.studies.advice.settings import plan_with, recommended_setting
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.holdout import hold_out

HELD_OUT, ROUNDS, TENTH = 0.2, 300, 0.1
Sites = Mapping[ParticipantId, Splits]


def populations(names: list[str], made: bool, seed: int) -> Iterator[tuple[str, Sites]]:
    """Yield every table, and people without any groups, each with its sites' splits."""
    root = Path(os.environ.get("FEDFAIR_DATA", "."))
    for name in names:
        held = table(name, root, Path(tempfile.gettempdir()))
        pairs = [(features[:, :-1], labels) for features, labels in zip(held.features, held.labels, strict=True)]
        yield name, divided(pairs, held.classes, seed)
    for people in without_groups(seed) if made else ():
        yield people.name, divided([*people.sites], 2, seed)


def divided(pairs: list[Any], classes: int, seed: int) -> Sites:
    """Return each site's records with test and validation records held out."""
    schema, found = FeatureSchema((pairs[0][0].shape[1],), classes), {}
    for place, (features, labels) in enumerate(pairs):
        name = ParticipantId(f"site-{place}")
        found[name] = hold_out(Dataset(features, labels, schema), HELD_OUT, HELD_OUT, seed, name)
    return found


def compared(sites: Sites, model: str, quick: bool) -> dict[str, Any]:
    """Return what the advice promises beside what a run of its plan reaches."""
    plan = Plan.model_validate(
        {
            "federation": {"name": "advice", "collaborators": list(sites)},
            "task": {"data": "breast-cancer", "model": MODELS[model]},
            "objective": {"measure": "excess", "worst_group_size": 0.1, "tradeoff": 0.05},
            "training": {"rounds": ROUNDS, "threshold_init": "quantile"},
            "evaluation": {"every": 10, "scores": True},
        }
    )
    began = time.process_time()
    advice = advise_sites(plan, sites, Path(), AdviceGrid(quick=quick))
    seconds, found, trials = time.process_time() - began, advice.recommendation, advice.trials
    if found is None or trials is None or trials.chosen is None:
        return {"nothing": True, "seconds": seconds}
    outcome = simulate_sites(plan_with(plan, recommended_setting(found)), sites, Path(), asks_family=False)
    losses = Losses.joined([site["test"] for site in outcome.losses.values() if "test" in site]).values
    promised, tail = trials.tried[trials.chosen].held_out, worst_terms(losses, TENTH)
    group, result = promised.group(TENTH), outcome.result
    return {
        "measure": found.measure if found.kind == "protect" else "plain",
        "rate": found.learning_rate,
        "promised": promised.mean,
        "reached": float(losses.mean()),
        "mean_errors": (losses.mean() - promised.mean) / math.hypot(promised.error, standard_error(losses)),
        "promised_tenth": group.worst,
        "reached_tenth": cvar(losses, TENTH),
        "tenth_errors": (tail.mean() - group.worst) / math.hypot(group.error, standard_error(tail)),
        "untrained": result.model is not None and result.model.round == 0,
        "worse": result.verdict is not None and result.verdict.state == "worse",
        "seconds": seconds,
    }


def main() -> None:
    """Print the largest differences and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", choices=TABLES, default=[*TABLES])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["linear"])
    parser.add_argument("--no-made-up", action="store_true")
    parser.add_argument("--thorough", action="store_true", help="the long form of the advice")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    runs = []
    for name, sites in populations(asked.data, not asked.no_made_up, asked.seed):
        for model in asked.models:
            runs.append({"data": name, "model": model, **compared(sites, model, quick=not asked.thorough)})
            print(json.dumps(runs[-1], default=float), file=sys.stderr, flush=True)
    trained = [run for run in runs if not run.get("nothing")]
    report(
        "advice_reached",
        runs=runs,
        largest={key: float(max((abs(run[key]) for run in trained), default=0.0)) for key in ERRORS},
        mean_error={key: float(np.mean([run[key] for run in trained])) for key in ERRORS},
        counts={key: sum(bool(run.get(key)) for run in runs) for key in ("nothing", "untrained", "worse")},
    )


ERRORS = ("mean_errors", "tenth_errors")


if __name__ == "__main__":
    main()
