"""What differential privacy of whole collaborators costs in risk, by their number and by epsilon.

    python benchmarks/collaborator_risk.py                   bc10, which comes with scikit-learn: up to 50 sites
    python benchmarks/collaborator_risk.py --acs PATH        ACS Employment: a person file, or a folder; up to 200

FedSRCVaR at epsilon 1, 3, 8 and clipped without noise, on records that are dealt at random to 10, 50 and more
sites, and the same without clipping. A linear model, the mean of the second half of all rounds, every site in each
round, no colluders. The noise multiplier is the least at which the rounds cost epsilon. Each cell is the mean over
seeds at the best of a few clips and learning rates, chosen on the training records by the objective itself: that
choice is not accounted. Risks are what the simulation knows, without noise.

Prints JSON; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import report
from paper_steps import SMOOTHING, constant_steps
from private_risk import DELTA, EPSILONS, NOISELESS, bc10

from fedfair.ids import ParticipantId
from fedfair.plan.schema import Plan
from fedfair.plan.sources import AcsEmploymentData
from fedfair.report.privacy_cost import multiplier_for
from fedfair.results.document import to_json
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.numeric_columns import scaled_by_ranges
from fedfair.tables.sources.acs_employment import load_acs_employment

SHOWN, TRADEOFF = 0.5, 0.1
"""The worse-off half: of a smaller group a linear model of these data can say no more than the uniform guess."""

CLIPS = (0.1, 0.3, 1.0)
RATES = (0.5, 2.0)
LOCAL_STEPS = 5


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def dealt(data: Dataset, count: int) -> dict[ParticipantId, Splits]:
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(data))
    parts = np.array_split(order, count)
    return {ParticipantId(f"site-{k}"): scaled_by_ranges(Splits(data.take(part))) for k, part in enumerate(parts)}


def plan_of(names: list[str], rounds: int, rate: float, seed: int, privacy: dict[str, object] | None) -> Plan:
    return Plan.model_validate(
        {
            "federation": {"name": "bench", "collaborators": names},
            "task": {"data": "breast-cancer", "model": {"name": "linear"}, "standardize": "ranges"},
            "objective": {
                "measure": "loss",
                "worst_group_size": SHOWN,
                "tradeoff": TRADEOFF,
                "smoothing": SMOOTHING,
            },
            "training": {
                **constant_steps(),
                "rounds": rounds,
                "local_steps": LOCAL_STEPS,
                "batch_size": "full",
                "learning_rate": rate,
                "threshold_learning_rate": 0.02,
                "threshold_init": 0.7,
                "weights": "uniform",
                "output": "tail",
                "seed": seed,
                "device": "cpu",
            },
            "evaluation": {"every": 10**9, "bins": 16, "group_sizes": [SHOWN]},
            "privacy": {"collaborator_level": privacy},
            # Without noise no change is clipped; where there is noise, it is added under masks.
            "secure_aggregation": {"mode": "off" if privacy is None else "malicious"},
        }
    )


def best(
    sites: dict[ParticipantId, Splits], rounds: int, noise: float | None, seeds: range
) -> dict[str, float | None]:
    """Return both risks at the clip and the rate with the least objective; without noise and clip for None."""
    found: list[tuple[float, float, float | None, float]] = []
    for clip, rate in itertools.product((None,) if noise is None else CLIPS, RATES):
        privacy: dict[str, object] | None = (
            None if clip is None else {"noise_multiplier": noise, "clip": clip, "delta": DELTA}
        )
        risks = []
        for seed in seeds if noise is not None and noise > NOISELESS else seeds[:1]:
            plan = plan_of(list(sites), rounds, rate, seed, privacy)
            train: Any = to_json(simulate_sites(plan, sites, Path(), engine="auto").result)["train"]
            risks.append((train["by_group_size"][str(SHOWN)]["worst"], train["mean"]))
        worst, mean = (statistics.fmean(values) for values in zip(*risks, strict=True))
        found.append((worst, mean, clip, rate))
    worst, mean, clip, rate = min(found, key=lambda one: (1 - TRADEOFF) * one[0] + TRADEOFF * one[1])
    return {"worst": worst, "mean": mean, "clip": clip, "learning_rate": rate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acs", type=Path, help="ACS Employment: a person file, or a folder of them")
    parser.add_argument("--records", type=int, default=20_000, help="of ACS Employment")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data, counts = bc10(), [10, 50]
    if arguments.acs is not None:
        data, counts = load_acs_employment(arguments.acs, AcsEmploymentData(), ()), [10, 50, 200]
        order = np.random.Generator(np.random.PCG64(0)).permutation(len(data))
        data = data.take(order[: arguments.records])
    rows: list[dict[str, object]] = []
    for count in counts:
        sites = dealt(data, count)
        for target in (*EPSILONS, None):
            noise = NOISELESS if target is None else multiplier_for(target, arguments.rounds, DELTA)
            row: dict[str, object] = {"sites": count, "epsilon": target}
            row["noise_multiplier"] = None if target is None else noise
            rows.append(row | best(sites, arguments.rounds, noise, range(arguments.seeds)))
            say(json.dumps(rows[-1]))
        open_row: dict[str, object] = {"sites": count, "epsilon": None, "noise_multiplier": None}
        rows.append(open_row | best(sites, arguments.rounds, None, range(arguments.seeds)))
        say(json.dumps(rows[-1]))
    figures = {
        "data": "bc10" if arguments.acs is None else "ACS Employment",
        "records": len(data),
        "rounds": arguments.rounds,
        "seeds": arguments.seeds,
        "delta": DELTA,
        "worst_group_size": SHOWN,
        "rows": rows,
    }
    report("collaborator_risk", risk=figures)


if __name__ == "__main__":
    main()
