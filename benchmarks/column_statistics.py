"""What statistics of columns cost and tell: the noise of a count, what is reported, and what an adversary gets.

The tables are the four hospitals of UCI Heart that fedfair ships. For each epsilon the same questions are asked
with many seeds: how far counts and means are off, and how many numbers of 100 patients or more are reported. The
adversary knows all records but one, asks for a bin that holds this one alone, and guesses by the best threshold
whether it is there: `advantage` is its hits less its false alarms, `allowed` the most that epsilon leaves.

Usage: python benchmarks/column_statistics.py [--seeds 200]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from machine import report
from numpy.typing import NDArray

from fedfair.aggregation.column_statistics import StatisticsLayout, statistics_layout, statistics_summary
from fedfair.plan.schema import Plan
from fedfair.privacy.shared_noise import SharedNoise
from fedfair.results.column_statistics import CHANCE, statistics_fields
from fedfair.results.writing import Setting
from fedfair.tables.source import load_federation

MIN_GROUP = 20
EPSILONS = (0.1, 0.3, 1.0, 3.0)
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
SHIPPED = Path(__file__).resolve().parents[1] / "fedfair" / "cli" / "heart"
DRAWS = 200_000
"""Of the noise that an adversary sees: an advantage is off by a thousandth."""


def heart(epsilon: float | None) -> Plan:
    """Return the plan: the age in bins, the degree of the disease, and the mean cholesterol, of women and men."""
    names = [
        "age",
        "sex",
        "cp",
        "trestbps",
        "chol",
        "fbs",
        "restecg",
        "thalach",
        "exang",
        "oldpeak",
        "slope",
        "ca",
        "thal",
        "num",
    ]
    table = {
        "columns": names,
        "numeric": ["age", "chol"],
        "categorical": {"sex": [0, 1], "num": [0, 1, 2, 3, 4]},
        "missing": "mean",
        "missing_values_of": {"chol": [0]},
        "train_of": {name: str(SHIPPED / f"processed.{name}.data") for name in HOSPITALS},
    }
    columns = {
        "age": {"bins": [30, 40, 50, 60, 70]},
        "num": {"count": True},
        "chol": {"mean": True, "between": [50, 700]},
    }
    return Plan.model_validate(
        {
            "federation": {"name": "heart", "collaborators": list(HOSPITALS)},
            "task": {"data": {"csv": table}},
            "statistics": {"columns": columns, "by": "sex", "min_group": MIN_GROUP, "epsilon": epsilon},
        }
    )


def repeated(epsilon: float, seeds: int) -> Mapping[str, float]:
    """Return the figures of one epsilon, over many draws of the noise."""
    plan, exact = heart(epsilon), heart(None)
    layout, sites = statistics_layout(plan), len(HOSPITALS)
    truth = total_of(exact)
    known = statistics_summary(truth, sites, statistics_layout(exact)).estimates
    noise = noise_of(layout)
    plain, off, shown, due = total_of(plan), {"count": 0.0, "mean": 0.0}, 0, 0
    for seed in range(seeds):
        total = plain + sum(noise.share(len(plain), sites * seed + site) for site in range(sites))
        rows = statistics_fields(plan, statistics_summary(total, sites, layout), Setting.DEPLOYMENT).rows
        for row, right in zip(rows, known, strict=True):
            if right.records < 100 or right.value is None:
                continue
            due, shown = due + 1, shown + (row.value is not None)
            if row.value is not None and row.statistic in off:
                off[row.statistic] = max(off[row.statistic], abs(row.value - right.value))
    return {
        "count_deviation": round(noise.deviation(sites), 2),
        "least_reported": round(MIN_GROUP + noise.reach(sites, CHANCE), 1),
        "largest_error_of_a_count": off["count"],
        "largest_error_of_a_mean_mg_dl": round(off["mean"], 2),
        "reported_of_100_or_more": round(shown / due, 4),
        **adversary(layout, epsilon),
    }


def noise_of(layout: StatisticsLayout) -> SharedNoise:
    """Return the noise of statistics that have some."""
    if layout.noise is None:
        raise SystemExit("the plan has no noise")
    return layout.noise


def total_of(plan: Plan) -> NDArray[np.float64]:
    """Return the sum of all hospitals without noise."""
    counted = [site.counted for site in load_federation(plan, Path()).values()]
    total: NDArray[np.float64] = np.sum([each for each in counted if each is not None], axis=0)
    return total


def adversary(layout: StatisticsLayout, epsilon: float) -> dict[str, float]:
    """Return by how much an adversary guesses better than by chance, and by how much it might."""
    noise = noise_of(layout)
    drawn = np.sort(noise.share(DRAWS * noise.shares, 5).reshape(DRAWS, noise.shares).sum(axis=1))
    places = np.arange(-4 * noise.scale, 5 * noise.scale, noise.scale // 8)
    above = [1.0 - np.searchsorted(drawn, places - moved, side="right") / DRAWS for moved in (noise.scale, 0)]
    found = float(np.max(above[0] - above[1]))
    # The most that (epsilon, delta) leaves hits less false alarms: (e^eps - 1 + 2 delta) / (e^eps + 1).
    allowed = (math.exp(epsilon) - 1.0 + 2e-5) / (math.exp(epsilon) + 1.0)
    return {"advantage": round(found, 4), "allowed": round(allowed, 4)}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="draws of the noise for each epsilon")
    asked = parser.parse_args()
    found = {f"epsilon {epsilon:g}": repeated(epsilon, asked.seeds) for epsilon in EPSILONS}
    report("column_statistics", seeds=asked.seeds, **found)


if __name__ == "__main__":
    main()
