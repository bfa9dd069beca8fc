"""How tight the intervals from sums are: histogram by number of bins, and exact, on bc10 and on any CSV file.

A logistic model is trained by a simulation on 70 % of the records; the losses on the other 30 % are
judged three ways: by the losses themselves, by a histogram of 64 to 4096 bins, and
by the four sums of an exact evaluation. The AUC is found from the scores themselves, and from their histogram.
`violations` counts intervals without the truth; there must be none.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
import torch
import yaml
from machine import report
from numpy.typing import NDArray
from paper_steps import BATCH, LEARNING_RATE, SMOOTHING, constant_steps
from sklearn.datasets import load_breast_cancer

from fedfair.aggregation.cvar_bounds import Interval, cvar_bounds
from fedfair.aggregation.loss_histogram import HistogramSpec, loss_block
from fedfair.aggregation.radix_select import STEPS, SplitQuery, StepAnswer, answer
from fedfair.aggregation.ranking import auc_interval
from fedfair.aggregation.score_histogram import score_sums
from fedfair.fairness.cvar import cvar
from fedfair.fairness.ranking import area_under_curve
from fedfair.fairness.record_losses import Losses
from fedfair.plan.loading import load_plan
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.source import load_federation
from fedfair.training.assembly import flat_model
from fedfair.training.client import TrainingClient
from fedfair.training.device import choose_device

SIZES = (0.01, 0.05, 0.1, 0.3, 0.5, 0.9)
BINS = (64, 256, 1024, 4096)
SITES = 3

torch.set_num_threads(1)


def write_workspace(folder: Path, csv: Path | None, label: str) -> Path:
    if csv is None:
        records = load_breast_cancer(as_frame=True)
        csv, label = folder / "bc10.csv", "label"
        records.data.iloc[:, :10].assign(label=records.target).to_csv(csv, index=False)
    plan = {
        "federation": {"name": "widths", "collaborators": [f"site-{at}" for at in range(SITES)]},
        # What is measured are algorithms, and those know no clip; a simulation of masked sums has one.
        "secure_aggregation": {"mode": "off"},
        "task": {
            "data": {"csv": {"train": str(csv.resolve()), "label": label, "numeric": "all"}},
            "partition": {"scheme": "random"},
            "test_fraction": 0.3,
            "standardize": "secure",
            "model": {"name": "linear"},
        },
        "objective": {"measure": "loss", "worst_group_size": 0.1, "tradeoff": 0.1, "smoothing": SMOOTHING},
        "training": {
            "rounds": 100,
            "batch_size": BATCH,
            "learning_rate": LEARNING_RATE,
            "output": "last",
            "precision": "fp64",
            **constant_steps(),
        },
        "evaluation": {"every": 100, "scores": True},
    }
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))
    return path


def held_out_losses(plan_file: Path) -> list[Losses]:
    """Return the test losses and scores of the trained model, site by site."""
    plan, root = load_plan(plan_file), plan_file.parent
    sites = load_federation(plan, root)
    outcome = simulate_sites(plan, sites, root)
    schema = next(iter(sites.values())).train.schema
    model = flat_model(plan, schema, choose_device("cpu"), root)
    losses = []
    for name, splits in sites.items():
        task = TrainingClient(plan, name, splits, model)
        if outcome.scaling is not None:
            task.apply_scaling(outcome.scaling)
        losses.append(task.records.losses(outcome.model)["test"])
    return losses


def by_histogram(sites: list[NDArray[np.float64]], bins: int) -> list[Interval]:
    spec = HistogramSpec(bins, 8.0 * math.log(2.0))
    blocks = [loss_block(own, np.zeros(len(own), bool), 0.0, spec) for own in sites]
    return cvar_bounds(np.sum(blocks, axis=0), SIZES, spec)


def by_query(sites: list[NDArray[np.float64]]) -> list[Interval]:
    query = SplitQuery(SIZES)
    for step in range(1, STEPS + 1):
        answers = [answer(own, step, query.prefixes) for own in sites]
        counts = np.sum([one.counts for one in answers], axis=0)
        query = query.apply_aggregate(StepAnswer(counts, np.sum([one.sums for one in answers], axis=0)))
    return [query.risks[size].bound for size in SIZES]


def by_scores(sites: list[Losses]) -> tuple[float, Interval]:
    """Return the AUC, and the interval from the histograms of scores."""
    truth = area_under_curve(
        np.concatenate([own.scores[:, 0] for own in sites]), np.concatenate([own.labels == 1 for own in sites])
    )
    summed = [score_sums(own.scores, own.labels, 1) for own in sites]
    counts = (sum(own[name][0] for own in summed).astype(int).tolist() for name in ("positives", "negatives"))
    bound = auc_interval(*counts)
    if truth is None or bound is None:
        raise ValueError("the held-out records are all of one class")
    return truth, bound


def measure(plan_file: Path) -> dict[str, object]:
    held_out = held_out_losses(plan_file)
    sites = [own.values for own in held_out]
    auc, auc_bound = by_scores(held_out)
    truths = [cvar(np.concatenate(sites), size) for size in SIZES]
    found = {f"histogram of {bins}": by_histogram(sites, bins) for bins in BINS} | {"exact": by_query(sites)}
    outside = [
        not bound.lower <= truth <= bound.upper
        for bounds in found.values()
        for bound, truth in zip(bounds, truths, strict=True)
    ]
    outside.append(not auc_bound.lower <= auc <= auc_bound.upper)
    widths = {
        method: {str(size): bound.upper - bound.lower for size, bound in zip(SIZES, bounds, strict=True)}
        for method, bounds in found.items()
    }
    return {
        "records": sum(len(own) for own in sites),
        "worst": dict(zip(map(str, SIZES), truths, strict=True)),
        "widths": widths,
        "auc": auc,
        "auc_width": auc_bound.upper - auc_bound.lower,
        "violations": sum(outside),
        "intervals": len(outside),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, help="a file with numeric columns and a label; bc10 without it")
    parser.add_argument("--label", default="label", help="the column with the label")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plan_file = write_workspace(Path(folder), options.csv, options.label)
        data = "bc10" if options.csv is None else options.csv.name
        report("interval_widths", data=data, sites=SITES, **measure(plan_file))


if __name__ == "__main__":
    main()
