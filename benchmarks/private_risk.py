"""What differential privacy of records costs in risk, for either way of clipping, at several epsilons.

    python benchmarks/private_risk.py                        bc10, which comes with scikit-learn
    python benchmarks/private_risk.py --acs PATH             ACS Employment: a person file, or a folder of them
    python benchmarks/private_risk.py --eicu PATH            eICU: a folder of its tables
    python benchmarks/private_risk.py --draw FILE...         a picture of results that were written before

FedSRCVaR at epsilon 1, 3, 8 and clipped without noise, with records clipped before they are weighted and with
joint clipping, everything else equal; and without either, for FedSRCVaR and FedAvg. One site has all records. The
noise multiplier is found by bisection so that training alone costs epsilon. Numeric columns are scaled by their
declared ranges. Each cell is the mean over seeds at the best of a few learning rates, chosen on the training
records by the objective itself: that choice is not accounted.

Prints JSON; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import report
from paper_steps import SMOOTHING, constant_steps
from scipy.optimize import brentq
from sklearn.datasets import load_breast_cancer

from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.plan.sources import AcsEmploymentData, EicuData
from fedfair.privacy.accounting import epsilon
from fedfair.privacy.releases import GaussianRelease
from fedfair.report.figures import Chart, ChartAxis, Series, draw
from fedfair.report.svg import standalone
from fedfair.results.document import to_json
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.numeric_columns import scaled_by_ranges
from fedfair.tables.sources.acs_employment import load_acs_employment
from fedfair.tables.sources.built_in import RANGES
from fedfair.tables.sources.eicu import load_eicu

TRADEOFF, DELTA = 0.01, 1e-5
SHOWN = 0.1
"""Size of the group whose risk is reported, whatever size is trained for."""

EPSILONS = (1.0, 3.0, 8.0)
CLIPPINGS = {"before_weighting": "clip, then weight", "joint": "joint clipping"}
RATES = (0.02, 0.1, 0.5, 2.0)
NOISELESS = 1e-6
"""A noise multiplier that changes no figure, where records are clipped and nothing else."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def bc10() -> Dataset:
    bunch = load_breast_cancer()
    schema = FeatureSchema((10,), 2, tuple(range(10)), ranges=RANGES["breast-cancer"][:10])
    return Dataset(bunch.data[:, :10], bunch.target.astype(np.int64), schema)


def chosen_data(arguments: argparse.Namespace) -> tuple[str, Dataset, int | str]:
    """Return the name of the data, the records and the batch size."""
    if arguments.acs is not None:
        data = load_acs_employment(arguments.acs, AcsEmploymentData(), ())
        order = np.random.Generator(np.random.PCG64(0)).permutation(len(data))
        return "ACS Employment", data.take(order[: arguments.records]), 1000
    if arguments.eicu is not None:
        return "eICU", replace(load_eicu(arguments.eicu, EicuData(), ()), columns={}, person_column=None), "full"
    return "bc10", bc10(), "full"


def noise_for(target: float, rate: float, steps: int) -> float:
    """Return the noise multiplier at which so many steps cost the epsilon."""

    def excess(noise: float) -> float:
        return epsilon([GaussianRelease("training", noise, rate, steps)], DELTA) - target

    low, high = 0.3, 1.0
    while excess(high) > 0:
        low, high = high, 2 * high
    return float(brentq(excess, low, high, xtol=1e-3))


class Trainer:
    """Trains on one site's records and tells the two risks."""

    def __init__(self, data: Dataset, batch: int | str, arguments: argparse.Namespace) -> None:
        self._sites = {ParticipantId("site"): scaled_by_ranges(Splits(data))}
        self._batch, self._rounds, self._size = batch, arguments.rounds, arguments.group_size
        self._seeds = range(arguments.seeds)

    def best(self, algorithm: str, privacy: Mapping[str, object] | None) -> dict[str, float]:
        """Return worst-group risk, mean and rate, at the rate with the least objective."""
        found = []
        for rate in RATES:
            seeds = self._seeds if privacy else self._seeds[:1]
            risks = [self._risks(self._plan(algorithm, rate, seed, privacy)) for seed in seeds]
            found.append((*(statistics.fmean(values) for values in zip(*risks, strict=True)), rate))
        share = TRADEOFF if algorithm == "fedsrcvar" else 1.0
        shown, trained, mean, rate = min(found, key=lambda one: (1 - share) * one[1] + share * one[2])
        return {"worst": shown, "worst_of_trained_size": trained, "mean": mean, "learning_rate": rate}

    def _plan(self, algorithm: str, rate: float, seed: int, privacy: Mapping[str, object] | None) -> Plan:
        return Plan.model_validate(
            {
                "federation": {"name": "bench", "collaborators": ["site"]},
                # What is measured are algorithms, and those know no clip; a simulation of masked sums has one.
                "secure_aggregation": {"mode": "off"},
                "task": {"data": "breast-cancer", "model": {"name": "linear"}},
                "objective": {
                    "measure": "loss",
                    "worst_group_size": self._size,
                    "tradeoff": TRADEOFF,
                    "smoothing": SMOOTHING,
                },
                "training": {
                    **constant_steps(algorithm),
                    "algorithm": algorithm,
                    "rounds": self._rounds,
                    "batch_size": self._batch,
                    "learning_rate": rate,
                    "threshold_learning_rate": 0.02,
                    "threshold_init": 0.7,
                    "output": "tail",
                    "seed": seed,
                    "device": "cpu",
                },
                "evaluation": {"every": 10**9, "bins": 16, "group_sizes": sorted({SHOWN, self._size})},
                "privacy": {"sample_level": privacy},
            }
        )

    def _risks(self, plan: Plan) -> tuple[float, float, float]:
        train: Any = to_json(simulate_sites(plan, self._sites, Path()).result)["train"]
        shown, trained = (train["by_group_size"][str(size)]["worst"] for size in (SHOWN, self._size))
        return shown, trained, train["mean"]


def table(trainer: Trainer, rate: float, rounds: int) -> Iterable[dict[str, object]]:
    """Yield a row for every epsilon and way of clipping, then those that are not clipped."""
    for target in (*EPSILONS, None):
        noise = NOISELESS if target is None else noise_for(target, rate, rounds)
        for clipping in CLIPPINGS:
            privacy = {"noise_multiplier": noise, "clipping": clipping, "delta": DELTA}
            stated = None if target is None else noise
            row = {"algorithm": "fedsrcvar", "epsilon": target, "clipping": clipping, "noise_multiplier": stated}
            yield {**row, **trainer.best("fedsrcvar", privacy)}
    for algorithm in ("fedsrcvar", "fedavg"):
        row = {"algorithm": algorithm, "epsilon": None, "clipping": "none", "noise_multiplier": None}
        yield {**row, **trainer.best(algorithm, None)}


def picture(results: Sequence[Mapping[str, Any]]) -> str:
    """Return epsilon against both risks as an SVG file, a pair of panels for each of the results."""
    panels = [_panel(risk, which) for risk in results for which in ("worst", "mean")]
    description = (
        "For each data set two panels over epsilon: the mean loss of the worst-served group, and that of "
        "everybody, with records clipped before they are weighted and with joint clipping."
    )
    drawn = draw(panels, "private-risk", "What differential privacy costs in risk", description, columns=2)
    return standalone(drawn)


def _panel(risk: Mapping[str, Any], which: str) -> Chart:
    rows = risk["rows"]
    series = []
    for clipping, words in CLIPPINGS.items():
        cells = [row for row in rows if row["clipping"] == clipping and row["epsilon"] is not None]
        series.append(Series(words, [row["epsilon"] for row in cells], [row[which] for row in cells]))
    for algorithm, words in (("fedsrcvar", "FedSRCVaR, not private"), ("fedavg", "FedAvg, not private")):
        series.append(Series(words, EPSILONS, [_unclipped(rows, algorithm)[which]] * len(EPSILONS)))
    whose = f"worst-served {SHOWN:.0%}" if which == "worst" else "everybody"
    return Chart(
        ChartAxis("ε (less is more private)", log=True),
        ChartAxis("mean loss (nats)"),
        series,
        (),
        f"{risk['data']}: {whose}",
    )


def _unclipped(rows: Iterable[Mapping[str, Any]], algorithm: str) -> Mapping[str, Any]:
    return next(row for row in rows if row["clipping"] == "none" and row["algorithm"] == algorithm)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--acs", type=Path, help="ACS Employment: a person file, or a folder of them")
    source.add_argument("--eicu", type=Path, help="eICU: a folder of its tables")
    source.add_argument("--draw", type=Path, nargs="+", help="write a picture of these results to standard output")
    parser.add_argument("--records", type=int, default=50_000, help="at most so many records of ACS Employment")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--group-size", type=float, default=0.1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.draw:
        print(picture([json.loads(path.read_text())["risk"] for path in arguments.draw]), end="")
        return
    name, data, batch = chosen_data(arguments)
    size = len(data) if batch == "full" else int(batch)
    rows = []
    for row in table(Trainer(data, batch, arguments), size / len(data), arguments.rounds):
        rows.append(row)
        say(json.dumps(row))
    facts: dict[str, object] = {"data": name, "records": len(data), "rounds": arguments.rounds, "batch": batch}
    facts |= {"seeds": arguments.seeds, "worst_group_size": arguments.group_size, "delta": DELTA}
    report("private_risk", risk=facts | {"learning_rates": RATES, "rows": rows})


if __name__ == "__main__":
    main()
