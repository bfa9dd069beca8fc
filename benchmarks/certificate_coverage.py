"""How often the bounds of a fairness certificate hold, and how far they lie above what is true.

A logistic model is fitted to one half of a data set. The losses of the other half are the population here, so its
worst-group risks are known. From them, records are drawn independently again and again; each draw is certified as
`fedfair certificate` does it, joined bins included, at 1 - delta. Counted are the draws in which the population
bound of any group size is broken, and those in which the interval for the drawn records misses their own risk.

Data: scikit-learn's breast-cancer set, and any table: `--csv FILE --label COLUMN --positive VALUE` learns to tell
the rows with that value from all others, by the numeric columns that have a number in every row.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import pandas as pd
from machine import report
from scipy.stats import binom
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedfair.aggregation.loss_histogram import HistogramSpec, block_layout, loss_block
from fedfair.certificate.document import Population
from fedfair.certificate.issue import MIN_RECORDS
from fedfair.certificate.proof import statements
from fedfair.fairness.cvar import cvar
from fedfair.fairness.population_bounds import METHODS, LossHistogram, join_small_bins

SIZES = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
BINS = 256
CERTAINTY = 1e-3


def from_table(path: Path, label: str, positive: str) -> tuple[np.ndarray, np.ndarray]:
    table = pd.read_csv(path)
    features = table.drop(columns=label).select_dtypes("number").dropna(axis="columns")
    return features.to_numpy(float), (table[label].astype(str) == positive).to_numpy(int)


def held_out_losses(features: np.ndarray, labels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    order = generator.permutation(len(labels))
    train, rest = np.array_split(order, 2)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500))
    model.fit(features[train], labels[train])
    columns = np.searchsorted(model.classes_, labels[rest])
    losses: np.ndarray = -model.predict_log_proba(features[rest])[np.arange(len(rest)), columns]
    return losses


def certified(losses: np.ndarray, spec: HistogramSpec, population: Population) -> list[tuple[float, float, float]]:
    block = block_layout(spec).read(loss_block(losses, losses < math.log(2), 0.0, spec))
    planned = LossHistogram.planned(
        spec.bins,
        spec.loss_range,
        tuple(int(count) for count in block["counts"]),
        tuple(block["losses"].tolist()),
    )
    proven = statements(join_small_bins(planned, MIN_RECORDS), SIZES, population)
    return [(*statement.sample, statement.population or 0.0) for statement in proven]


def measure(
    losses: np.ndarray, records: int, population: Population, redraws: int, generator: np.random.Generator
) -> dict[str, object]:
    spec = HistogramSpec(BINS, 8 * math.log(2))
    truth = np.array([cvar(np.minimum(losses, spec.loss_range), size) for size in SIZES])
    broken = outside = 0
    distances, widths = [], []
    for _ in range(redraws):
        drawn = generator.choice(losses, records)
        low, high, bounds = np.array(certified(drawn, spec, population)).T
        own = np.array([cvar(drawn, size) for size in SIZES])
        broken += bool((bounds < truth).any())
        outside += bool(((own < low) | (own > high)).any())
        distances.append(bounds - truth)
        widths.append(high - low)
    return {
        "records": records,
        "method": population.method,
        "delta": population.delta,
        "redraws": redraws,
        "draws_with_a_broken_population_bound": broken,
        "most_allowed": int(binom.isf(CERTAINTY, redraws, population.delta)),
        "draws_with_a_sample_outside_its_interval": outside,
        "truth": by_size(truth),
        "mean_distance_of_the_bound_above_the_truth": by_size(np.mean(distances, axis=0)),
        "mean_width_of_the_sample_interval": by_size(np.mean(widths, axis=0)),
    }


def by_size(values: np.ndarray) -> dict[str, float]:
    return {str(size): float(value) for size, value in zip(SIZES, values, strict=True)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, help="a table, as pandas reads it")
    parser.add_argument("--label", help="its column of labels")
    parser.add_argument("--positive", help="the label to be told from all others, as pandas prints it")
    parser.add_argument("--redraws", type=int, default=500)
    parser.add_argument("--records", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--delta", type=float, nargs="+", default=[0.05, 0.5])
    wanted = parser.parse_args()
    table = (wanted.csv, wanted.label, wanted.positive)
    if None in table and any(table):
        parser.error("--csv, --label and --positive belong together")
    sources = {"breast-cancer": load_breast_cancer(return_X_y=True)}
    if wanted.csv is not None:
        sources[wanted.csv.name] = from_table(*table)
    generator = np.random.default_rng(0)
    runs = []
    for name, (features, labels) in sources.items():
        losses = held_out_losses(features, labels, generator)
        for records in wanted.records:
            for delta in wanted.delta:
                for method in METHODS:
                    population = Population(method=method, delta=delta, mixture="evaluated records", weights=None)
                    figures = measure(losses, records, population, wanted.redraws, generator)
                    runs.append({"data": name, "people": len(losses), **figures})
    report("certificate_coverage", runs=runs)
