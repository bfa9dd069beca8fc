"""Processor time that `fedfair reproduce` takes, by study and method: what a round costs, times all rounds.

One run of every method is measured at two numbers of rounds; the difference gives what a round costs, the rest
what a run costs beside its rounds. It is processor time, not time on the clock, so that a busy machine matters
little. `--data` is the folder that holds the folders of the data sets; what is not there is left out and named.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from machine import report

from fedfair.errors import DataError
from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.simulation.simulate import simulate_sites
from fedfair.studies.reproduction.runs import RunList
from fedfair.studies.reproduction.studies import STUDIES
from fedfair.studies.reproduction.study import Size, Study
from fedfair.studies.sweep.grid import Point
from fedfair.tables.dataset import Splits
from fedfair.tables.source import load_federation

FOLDERS = {
    "acs-employment": "acs_employment",
    "acs-income": "acs_income",
    "mnist": "mnist",
    "eicu": "eicu_demo",
    "heart": "heart",
    "adult": "adult",
}


def measured(study: Study, size: Size, root: Path, rounds: int) -> dict[str, object]:
    """Return hours of one core for a size of a study, and what a run and a round of every method cost."""
    runs = RunList(study, size, root)
    sites = load_federation(Plan.model_validate(runs.base), root)
    kinds: dict[str, list[Point]] = {}
    for point in runs.points:
        steps = point.plan.training.local_steps
        kinds.setdefault(f"{point.settings['method']}, {steps} steps", []).append(point)
    costs: dict[str, object] = {}
    total = 0.0
    for kind, points in kinds.items():
        plan = points[0].plan
        few = 1 if plan.training.local_epochs else rounds
        short, long = (_seconds(plan, 1 + extra, sites, root) for extra in (0, few))
        each = max(long - short, 0.0) / few
        hours = sum(short + each * (point.plan.training.rounds - 1) for point in points) / 3600
        total += hours
        costs[kind] = {
            "runs": len(points),
            "milliseconds_a_round": round(1000 * each, 2),
            "seconds_a_run_beside": round(short, 2),
            "core_hours": round(hours, 3),
        }
    return {"study": study.name, "runs": len(runs.points), "core_hours": round(total, 2), "methods": costs}


def _seconds(plan: Plan, rounds: int, sites: Mapping[ParticipantId, Splits], root: Path) -> float:
    training = plan.training.model_copy(update={"rounds": rounds})
    began = time.process_time()
    simulate_sites(plan.model_copy(update={"training": training}), sites, root)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--sets", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found, missing = [], {}
    for word in asked.sets:
        for study in STUDIES[word]:
            for name, size in (("quick", study.quick), ("full", study.full)):
                try:
                    cost = measured(study, size, asked.data / FOLDERS[word], asked.rounds)
                except DataError as error:
                    missing[word] = error.message
                    continue
                found.append({"size": name, **cost})
                print(f"{study.name}, {name}: {cost['runs']} runs, {cost['core_hours']} core-hours", flush=True)
    report("reproduction_cost", rounds=asked.rounds, studies=found, missing=missing)


if __name__ == "__main__":
    main()
