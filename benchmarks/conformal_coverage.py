"""How often prediction sets keep their promise over redraws, for the worst group that anybody could find.

A population is drawn once. From it, n records are drawn again and again, and their histogram gives a threshold as
an evaluation's does. What share of the population the threshold misses is then known. The adversary knows
everybody's answers: their group of share rho has all of the missed that fit. Counted are the mean share that is
missed in that group, which is to be at most beta, and the redraws in which more of all people are missed than the
bound that is to hold with 95 % confidence.

The models are wrong on purpose, too sure and for a tenth of people about something else: the promise asks nothing
of a model. Beside the histogram's bins the same is done with a bin for every person, where nearly all that is
promised is used: there, one record too many would show.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from machine import report
from numpy.typing import NDArray
from scipy.stats import binom

from fedfair.aggregation.loss_histogram import HistogramSpec, rounded_losses
from fedfair.aggregation.score_histogram import score_bins, score_edges
from fedfair.conformal.promise import Promise
from fedfair.conformal.threshold import bins_missed

CONFIDENCE, CERTAINTY, FEWEST = 0.95, 1e-3, 5
PROMISES = ((0.1, 0.1), (0.3, 0.1), (0.1, 0.3), (0.5, 0.05), (1.0, 0.1))
CLASSES = (2, 4, 10)
NUMBER = HistogramSpec(256, 25.0, has_classes=False)

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]


def softmax(logits: Numbers) -> Numbers:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: Numbers = shifted / shifted.sum(axis=1, keepdims=True)
    return found


def scored_people(classes: int, people: int, generator: np.random.Generator) -> tuple[Numbers, Places]:
    """Return the score of each person's own class, and its bin as an evaluation counts it: arrays (people,)."""
    truth = generator.normal(scale=2.0, size=(people, classes))
    labels = (softmax(truth).cumsum(axis=1) < generator.random((people, 1))).sum(axis=1).clip(max=classes - 1)
    said = 1.5 * truth + generator.normal(scale=0.5, size=truth.shape)
    said[: people // 10] = generator.normal(scale=2.0, size=(people // 10, classes))
    scores = softmax(said)
    bins = score_bins(1 if classes == 2 else classes)
    counted = scores[:, 1] if classes == 2 else scores[np.arange(people), labels]
    places = np.searchsorted(score_edges(bins)[1:-1], counted, side="right")
    if classes == 2:
        places = np.where(labels == 1, places, bins - 1 - places)
    return scores[np.arange(people), labels], places


def measured_people(people: int, generator: np.random.Generator) -> tuple[Numbers, Places]:
    """Return minus the squared error of each person, and its bin from the worst on: arrays (people,)."""
    errors = generator.normal(size=people)
    errors[: people // 10] *= 3.0
    losses = errors**2
    places = np.searchsorted(NUMBER.edges, rounded_losses(losses, NUMBER), side="right") - 1
    return -losses, NUMBER.bins - places


def coverage(
    places: Places, promise: Promise, records: int, redraws: int, generator: np.random.Generator
) -> dict[str, float | int]:
    """Return what is promised and what is observed.

    Args:
        places: of each person's true answer, from where it fits worst.
        promise: of the sets.
        records: that are drawn for each threshold.
        redraws: thresholds.
        generator: of the draws.
    """
    bins, allowed = int(places.max()) + 1, promise.allowed(records)
    before = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=bins))]) / len(places)
    drawn = (np.bincount(generator.choice(places, records), minlength=bins) for _ in range(redraws))
    missed = np.array([before[bins_missed(counts, allowed)] for counts in drawn])
    worst = np.minimum(missed / promise.group_size, 1.0)
    return {
        "group_size": promise.group_size,
        "missed_promised": promise.missed,
        "records": records,
        "missed_in_the_worst_group": float(worst.mean()),
        "standard_error": float(worst.std() / math.sqrt(redraws)),
        "bound_on_all": promise.missed_at_most(records),
        "redraws_beyond_the_bound": int((missed > promise.missed_at_most(records)).sum()),
        "most_by_chance": int(binom.isf(CERTAINTY, redraws, 1.0 - promise.confidence)),
        "redraws": redraws,
    }


def populations(people: int, generator: np.random.Generator) -> dict[str, Places]:
    """Return the places of the people of every population, in the bins of a histogram and each in their own."""
    found = {}
    drawn = {f"{classes} classes": scored_people(classes, people, generator) for classes in CLASSES}
    for name, (fits, places) in (drawn | {"a number": measured_people(people, generator)}).items():
        found[name] = places
        found[f"{name}, unbinned"] = np.argsort(np.argsort(fits, kind="stable"), kind="stable")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redraws", type=int, default=2000)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--records", type=int, nargs="+", default=[500, 2000, 10_000])
    wanted = parser.parse_args()
    generator = np.random.default_rng(0)
    runs = [
        {"population": name, **coverage(places, promise, records, wanted.redraws, generator)}
        for name, places in populations(wanted.people, generator).items()
        for promise in (Promise(size, missed, CONFIDENCE) for size, missed in PROMISES)
        for records in wanted.records
        if promise.allowed(records) >= FEWEST
    ]
    report("conformal_coverage", runs=runs)
