"""Plain averaging, the loss and the excess on people whom no training has seen, over many tables.

Every run is a simulation of the product on the tables of `optimizers.py`, of which a fifth of each site is held
out by a seed. A plan states the required keys, the objective and `output: last`, so that no settings differ but
the measure's. All figures are of held-out records:

    mean          the mean loss                          AUC       of two classes; else the accuracy
    tenth         the mean loss of the worst 10 %, by hindsight: the unlucky are in it
    calibration   the mean difference between the chance of the likeliest class and how often it is right, over ten
                  bins of that chance (expected calibration error)
    named, gap    the highest mean loss, and overall accuracy minus the lowest, of a group that has a name (a sex,
                  a race, a site of a published table) and at least a tenth of the records; where there are any
    slice         the highest mean loss of a leaf of a regression tree on the features, at least a tenth of the
                  records each: grown on one half of the held-out records by their losses, judged on the other, and
                  the same with the halves exchanged
    refused       whether the verdict says not to use the model

The rule, stated before any run: a measure becomes the default where, in the median table, it has a mean loss at
most 1 % above plain averaging's and a lower slice; where it has a lower slice on more tables than a higher one
(differences below 1 % of the loss count for neither); and where it is refused on no table on which plain averaging
is not. Among several, the one with the lowest median slice.

Runs go to a file, one JSON line each; a run that is in the file is not computed again:

    python benchmarks/measures.py --runs runs.jsonl --data heart adult
    python benchmarks/measures.py --runs runs.jsonl --table --csv docs/results/measures/table.csv
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import report
from numpy.typing import NDArray
from optimizer_tables import TABLES, Table, table
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import roc_auc_score
from sklearn.tree import DecisionTreeRegressor

from fedfair.errors import FedfairError
from fedfair.ids import ParticipantId
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.dataset import Dataset, Splits

Floats = NDArray[np.float64]
Section = Mapping[str, object]

LOGISTIC, PLAIN = "logistic", {"worst_group_size": 1.0, "tradeoff": 1.0}
NO_DECAY: Section = {"weight_decay": 0.0}
ROBUST: Section = {"algorithm": "dro", "options": {"divergence": "chi2"}, "learning_rate": 0.3}
"""Its steps are plain ones, which the default rate of a site leaves unfinished after these rounds."""


def _excess(size: float) -> Section:
    return {"worst_group_size": size, "tradeoff": 0.05, "measure": "excess"}


OBJECTIVES: Mapping[str, tuple[Section, Section]] = {
    "plain": (PLAIN, NO_DECAY),
    "loss 0.1": ({"measure": "loss", "worst_group_size": 0.1, "tradeoff": 0.05}, NO_DECAY),
    "loss 0.3": ({"measure": "loss", "worst_group_size": 0.3, "tradeoff": 0.3}, NO_DECAY),
    **{f"excess {size}": (_excess(size), NO_DECAY) for size in (0.1, 0.2, 0.3)},
    **{f"dro {size}": ({"worst_group_size": size}, ROBUST) for size in (0.1, 0.3)},
    "plain, decay 0.03": (PLAIN, {"weight_decay": 0.03}),
    "excess 0.1, decay 0.03": (_excess(0.1), {"weight_decay": 0.03}),
}
"""Objective and training by the word of `--measures`; `loss 0.3` is what the paper's objective was used with.
`logistic` is L2 logistic regression on pooled records, its penalty chosen by five folds."""

MODELS: Mapping[str, Section] = {"linear": {"name": "linear"}, "mlp": {"name": "mlp", "hidden": [16]}}
HELD_OUT, ROUNDS, SEEDS = 0.2, 300, (0, 1, 2)
LEAVES, LEAST = 8, 0.1
MATERIAL = 0.01


def split(held: Table, seed: int) -> dict[ParticipantId, Splits]:
    """Return every site with a fifth of its records held out."""
    columns = held.features[0].shape[1] - 1
    schema = FeatureSchema((columns,), held.classes)
    source, found = np.random.default_rng(seed), {}
    for place, (features, labels) in enumerate(zip(held.features, held.labels, strict=True)):
        order = source.permutation(len(labels))
        count = max(1, round(HELD_OUT * len(labels)))
        parts = [
            Dataset(features[rows, :columns], labels[rows], schema) for rows in (order[count:], order[:count])
        ]
        found[ParticipantId(f"site-{place}")] = Splits(parts[0], test=parts[1])
    return found


def worst_slice(features: Floats, losses: Floats, seed: int) -> float:
    """Return the highest mean loss of a leaf on the half that its tree has not seen, mean of both halves.

    Args:
        features: array (n, columns).
        losses: array (n,).
        seed: of the halves.
    """
    half = np.random.default_rng(seed).permutation(len(losses)) % 2 == 0
    found = []
    for grown in (half, ~half):
        least = max(1, math.ceil(LEAST * grown.sum()))
        tree = DecisionTreeRegressor(max_leaf_nodes=LEAVES, min_samples_leaf=least, random_state=0)
        leaves = tree.fit(features[grown], losses[grown]).apply(features[~grown])
        sizes = {leaf: np.flatnonzero(leaves == leaf) for leaf in np.unique(leaves)}
        told = [losses[~grown][rows].mean() for rows in sizes.values() if len(rows) >= 0.5 * least]
        found.append(float(max(told)))
    return float(np.mean(found))


def calibration_error(sure: Floats, right: NDArray[np.bool_]) -> float:
    """Return the mean difference between what is said and what is right, over ten bins of what is said.

    Args:
        sure: array (n,), the chance of the likeliest class.
        right: array (n,), whether it is the label.
    """
    bins = np.minimum((10.0 * sure).astype(np.int64), 9)
    sums = np.bincount(bins, sure - right, minlength=10)
    return float(np.abs(sums).sum() / len(sure))


def named_groups(held: Table, sites: Mapping[ParticipantId, Splits], features: Floats) -> list[NDArray[np.bool_]]:
    """Return who is in each group that has a name and at least a tenth of the held-out records: arrays (n,)."""
    if not held.named:
        return []
    owner = np.concatenate([np.full(len(one.parts["test"]), at) for at, one in enumerate(sites.values())])
    found = [features[:, at] == value for at in held.named for value in (0.0, 1.0)]
    found += [owner == at for at in range(len(sites))]
    return [group for group in found if group.mean() >= LEAST]


def group_figures(
    losses: Floats, right: NDArray[np.bool_], groups: Sequence[NDArray[np.bool_]]
) -> dict[str, float]:
    """Return the highest mean loss of a group, and the accuracy that one lacks most; nothing without groups."""
    if not groups:
        return {}
    lowest = min(right[group].mean() for group in groups)
    return {"named": float(max(losses[group].mean() for group in groups)), "gap": float(right.mean() - lowest)}


def figures(
    chances: Floats,
    labels: NDArray[np.int64],
    features: Floats,
    seed: int,
    groups: Sequence[NDArray[np.bool_]] = (),
) -> dict[str, float]:
    """Return the figures of the held-out records.

    Args:
        chances: array (n, classes), what a model gives each class.
        labels: array (n,).
        features: array (n, columns).
        seed: of the halves for the tree.
        groups: who is in each group that has a name, arrays (n,).
    """
    losses = -np.log(np.clip(chances[np.arange(len(labels)), labels], 1e-12, 1.0))
    worst = np.sort(losses)[::-1][: max(1, len(losses) // 10)]
    two = chances.shape[1] == 2 and len(np.unique(labels)) == 2
    ranked = roc_auc_score(labels, chances[:, 1]) if two else np.mean(chances.argmax(1) == labels)
    right = chances.argmax(1) == labels
    return {
        "mean": float(losses.mean()),
        "auc": float(ranked),
        "accuracy": float(right.mean()),
        "calibration": calibration_error(chances.max(1), right),
        "tenth": float(worst.mean()),
        "slice": worst_slice(features, losses, seed),
        **group_figures(losses, right, groups),
    }


def pooled(sites: Mapping[ParticipantId, Splits], name: str) -> tuple[Floats, NDArray[np.int64]]:
    """Return features and labels of a split of all sites."""
    held = [getattr(site, name) for site in sites.values()]
    return np.concatenate([one.features for one in held]), np.concatenate([one.labels for one in held])


def logistic(sites: Mapping[ParticipantId, Splits], features: Floats, classes: int) -> Floats:
    """Return the chances (n, classes) that logistic regression on the pooled training records gives."""
    fit = LogisticRegressionCV(Cs=8, cv=5, max_iter=2000, scoring="neg_log_loss")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit.fit(*pooled(sites, "train"))
    chances = np.full((len(features), classes), 1e-12)
    chances[:, fit.classes_] = fit.predict_proba(features)
    return chances


def run(held: Table, measure: str, model: str, seed: int) -> dict[str, Any]:
    """Return the figures of one run; of one that ends with an error, what it says."""
    sites, began = split(held, seed), time.perf_counter()
    features, labels = pooled(sites, "test")
    groups = named_groups(held, sites, features)
    if measure == LOGISTIC:
        told = figures(logistic(sites, features, held.classes), labels, features, seed, groups)
        return {**told, "refused": False, "seconds": time.perf_counter() - began}
    plan = Plan.model_validate(
        {
            "federation": {"name": "measures", "collaborators": list(sites)},
            "task": {"data": "breast-cancer", "model": MODELS[model]},
            "objective": OBJECTIVES[measure][0],
            "training": {
                "rounds": ROUNDS,
                "threshold_init": "bound",
                "output": "last",
                "seed": seed,
                **OBJECTIVES[measure][1],
            },
            "evaluation": {"every": ROUNDS, "scores": True},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = simulate_sites(plan, sites, Path(folder))
        except FedfairError as fault:
            return {"fault": fault.message}
    scores = np.concatenate([site["test"].scores for site in found.losses.values()])
    chances = np.column_stack([1.0 - scores, scores]) if held.classes == 2 else scores
    verdict = found.result.verdict
    return {
        **figures(chances, labels, features, seed, groups),
        "refused": verdict is not None and verdict.state == "worse",
        "seconds": time.perf_counter() - began,
    }


def records(path: Path) -> list[dict[str, Any]]:
    """Return the runs of a file, each once; none where there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return list({tuple(one[key] for key in KEYS): one for one in map(json.loads, lines)}.values())


KEYS = ("data", "measure", "model", "seed")
FIGURES = ("mean", "auc", "accuracy", "calibration", "tenth", "slice", "named", "gap", "refused")


def means(runs: list[dict[str, Any]], model: str) -> dict[str, dict[str, dict[str, float]]]:
    """Return the mean over seeds of each figure, by table and measure, where all seeds have it."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in dict.fromkeys(one["data"] for one in runs):
        for measure in (LOGISTIC, *OBJECTIVES):
            same = [one for one in runs if (one["data"], one["measure"], one["model"]) == (name, measure, model)]
            if same and not any("fault" in one for one in same):
                found.setdefault(name, {})[measure] = {
                    key: float(np.mean([one[key] for one in same])) for key in FIGURES if key in same[0]
                }
    return found


def decided(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, object]]:
    """Return what the rule says of each measure beside plain averaging."""
    told: dict[str, dict[str, object]] = {}
    for measure in OBJECTIVES:
        both = [(one["plain"], one[measure]) for one in found.values() if measure in one and "plain" in one]
        if measure == "plain" or not both:
            continue
        mean = float(np.median([other["mean"] / plain["mean"] for plain, other in both]))
        ratios = [other["slice"] / plain["slice"] for plain, other in both]
        lower, higher = (sum(sign * (ratio - 1.0) > MATERIAL for ratio in ratios) for sign in (-1, 1))
        refused = sum(other["refused"] > 0 and not plain["refused"] for plain, other in both)
        told[measure] = {
            "tables": len(both),
            "median_mean_ratio": mean,
            "median_slice_ratio": float(np.median(ratios)),
            "slice_lower": lower,
            "slice_higher": higher,
            "refused_where_plain_is_not": refused,
            "wins": mean <= 1.0 + MATERIAL and float(np.median(ratios)) < 1.0 and lower > higher and not refused,
        }
    return told


def write_table(told: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]], path: Path) -> None:
    """Write the mean figures of every model, table and measure as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["model", "table", "measure", *FIGURES])
        for model, tables in told.items():
            for name, measures in tables.items():
                for measure, found in measures.items():
                    lines.writerow(
                        [model, name, measure, *(f"{found[key]:.4f}" if key in found else "" for key in FIGURES)]
                    )


def wanted(names: list[str], measures: list[str], models: list[str]) -> Iterator[tuple[str, str, str, int]]:
    """Yield every run; logistic regression is a linear model."""
    for name in names:
        for seed in SEEDS:
            for model in models:
                for measure in measures:
                    if measure != LOGISTIC or model == "linear":
                        yield name, measure, model, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--data", nargs="+", choices=TABLES, default=[*TABLES])
    parser.add_argument("--measures", nargs="+", choices=[LOGISTIC, *OBJECTIVES], default=[LOGISTIC, *OBJECTIVES])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--table", action="store_true", help="compute nothing; print what the file says")
    parser.add_argument("--csv", type=Path, help="write the mean figures here")
    asked = parser.parse_args()
    if not asked.table:
        done = {tuple(one[key] for key in KEYS) for one in records(asked.runs)}
        root = Path(os.environ.get("FEDFAIR_DATA", "."))
        held: dict[str, Table] = {}
        cache = asked.runs.resolve().parent
        for place in wanted(asked.data, asked.measures, asked.models):
            if place in done:
                continue
            name, *about = place
            if name not in held:
                held = {name: table(name, root, cache)}
            line = dict(zip(KEYS, place, strict=True)) | run(held[name], *about)  # type: ignore[arg-type]
            with asked.runs.open("a") as file:
                file.write(json.dumps(line) + "\n")
    runs = records(asked.runs)
    told = {model: means(runs, model) for model in MODELS}
    if asked.csv is not None:
        write_table(told, asked.csv)
    report(
        "measures",
        figures=told,
        rule={model: decided(found) for model, found in told.items()},
        faults=[one for one in runs if "fault" in one],
    )


if __name__ == "__main__":
    main()
