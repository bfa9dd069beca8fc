"""Counts the contradictions between a verdict, its advice, and what is known of the records, over many tables.

    advised rate     another rate is advised, and the model's objective is within .2 % of the pooled optimum
    advised size     a group size is advised that the same text says cannot be served better than by guessing
    no size          a model within .2 % of the optimum is not to be used, and no group size is advised
    true model       the true probabilities of people without any groups are called not to be used
    bad model        a model that serves some people badly by its making is not called so

Tables are those of `optimizers.py` that need no file, those under FEDFAIR_DATA where it is set, and made-up
people: without any groups, at several noises and base rates. Each is trained for each group size with FedSRCVaR
and with FedAvg, 30 % of the records held out. The optimum is that of `fairness.linear_fit`. The true model, and
bad ones, begin as the initial weights of a run whose steps are too small to change anything. Everything is read
off the sentences, so that versions with other fields can be compared: `PYTHONPATH=FOLDER` measures one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import report
from numpy.typing import NDArray
from optimizer_tables import table

import fedfair
from fedfair.fairness.cvar import rcvar
from fedfair.fairness.linear_design import linear_design
from fedfair.fairness.linear_fit import fit_linear, linear_losses

Array = NDArray[np.float64]
Site = tuple[Array, NDArray[np.int64]]

PACKAGED = ("bc10", "noisy", "heavy-tailed", "wine", "digits", "breast-cancer", "iris", "four-classes", "diabetes")
PUBLISHED = ("heart", "adult", "acs-income")
SIZES = (0.1, 0.3, 0.5)
ALGORITHMS = ("fedsrcvar", "fedavg")
TRADEOFF, HELD_OUT, NEAR = 0.01, 0.3, 0.002
NOISES = {"weak": 0.5, "medium": 1.0, "strong": 2.0, "sharp": 4.0}
BASES = {"even": 0.0, "rare": -2.0}
RECORDS, COLUMNS = 1500, 5
KINDS = ("advised rate", "advised size", "no size", "true model", "bad model")

_SIZE = re.compile(r"objective\.worst_group_size: ([0-9.]+) \(now")
_RATE = re.compile(r"(?:learning_rate: |\{name: \w+, learning_rate: )[0-9.e-]+\}? \(now")
_UNSERVED = re.compile(r"(?:No model of this kind|This model) serves the worst ([0-9.]+) % (?:no )?better")


@dataclass(frozen=True, slots=True)
class People:
    """Records of several sites, and for made-up people the weights (columns + 1,) of the true probabilities."""

    name: str
    sites: Sequence[Site]
    truth: Array | None = None


def packaged(name: str, root: Path) -> People:
    """Return the records of a table without its column of ones."""
    held = table(name, root, Path(tempfile.gettempdir()))
    sites = zip(held.features, held.labels, strict=True)
    return People(name, [(features[:, :-1], labels) for features, labels in sites])


def without_groups(seed: int) -> Iterator[People]:
    """Yield people whose outcomes are drawn with the chances of one linear model."""
    for (noise, scale), (base, bias) in itertools.product(NOISES.items(), BASES.items()):
        draw = np.random.default_rng(seed)
        truth = np.append(np.full(COLUMNS, scale / COLUMNS**0.5), bias)
        sites = [_drawn(draw, truth) for _ in range(3)]
        yield People(f"{noise}, {base}", sites, truth)


def _drawn(draw: np.random.Generator, truth: Array) -> Site:
    features = draw.normal(size=(RECORDS // 3, COLUMNS))
    chance = 1.0 / (1.0 + np.exp(-(features @ truth[:-1] + truth[-1])))
    return features, (draw.random(len(features)) < chance).astype(np.int64)


def divided(people: People) -> dict[str, dict[str, Site]]:
    """Return every site's training and test records."""
    draw, found = np.random.default_rng(0), {}
    for place, (features, labels) in enumerate(people.sites):
        order = draw.permutation(len(labels))
        cut = round(HELD_OUT * len(labels))
        test, train = order[:cut], order[cut:]
        found[f"site-{place}"] = {
            "train": (features[train], labels[train]),
            "test": (features[test], labels[test]),
        }
    return found


def optimum(sites: Mapping[str, Mapping[str, Site]], size: float, tradeoff: float) -> float:
    """Return the least objective that a linear model has over all training records."""
    features = np.concatenate([site["train"][0] for site in sites.values()])
    labels = np.concatenate([site["train"][1] for site in sites.values()])
    design = linear_design(features, labels, int(labels.max()) + 1)
    losses, _ = linear_losses(fit_linear(design, size, tradeoff), design, features, labels)
    guess = float(np.log(labels.max() + 1))
    return min(float(rcvar(losses, size, tradeoff)), guess)


def trained(people: People, size: float, algorithm: str, rounds: int) -> dict[str, Any]:
    """Train a model, and return the verdict with what contradicts what."""
    sites = divided(people)
    done = fedfair.simulate(
        sites,
        objective={"measure": "loss", "worst_group_size": size, "tradeoff": TRADEOFF},
        training={"rounds": rounds, "algorithm": algorithm},
    )
    result = done.result
    verdict, figures = result.verdict, result.objective
    if verdict is None or figures is None or figures.rcvar is None:
        raise SystemExit(f"{people.name}: the simulation has no verdict")
    told = " ".join(verdict.sentences)
    mixed = (size, TRADEOFF) if algorithm == "fedsrcvar" else (1.0, 1.0)
    reached = figures.rcvar if algorithm == "fedsrcvar" else result.trained.mean
    excess = reached / max(optimum(sites, *mixed), 1e-9) - 1.0
    found = {
        "run": f"{people.name}, {size:g}, {algorithm}",
        "excess": excess,
        "state": verdict.state,
        "told": told,
    }
    return {**found, "contradictions": contradictions(told, near=excess < NEAR, worse="Do not use" in told)}


def contradictions(told: str, *, near: bool, worse: bool) -> list[str]:
    """Return which rules the text of a verdict breaks."""
    found = []
    if near and _RATE.search(told):
        found.append("advised rate")
    advised = [float(size) for size in _SIZE.findall(told)]
    unserved = [float(size) / 100.0 for size in _UNSERVED.findall(told)]
    nobody = "no group, not even all people together" in told
    if any(size <= limit for size in advised for limit in unserved) or (advised and nobody):
        found.append("advised size")
    if near and worse and not advised and "training.algorithm: fedavg" not in told:
        found.append("no size")
    return found


def judged(people: People, weights: Array, size: float, folder: Path) -> str:
    """Return the state of the verdict on a given linear model (columns + 1,) of the second class's logit."""
    sites = divided(people)
    train = np.concatenate([site["train"][0] for site in sites.values()])
    scale, mean = train.std(axis=0), train.mean(axis=0)
    logit = np.append(weights[:-1] * scale, weights[-1] + weights[:-1] @ mean)
    both = torch.tensor(np.stack([-logit / 2.0, logit / 2.0]), dtype=torch.float32)
    file = folder / "initial.pt"
    torch.save({"output.weight": both[:, :-1].clone(), "output.bias": both[:, -1].clone()}, file)
    done = fedfair.simulate(
        sites,
        objective={"measure": "loss", "worst_group_size": size, "tradeoff": TRADEOFF},
        training={
            "rounds": 1,
            "algorithm": "fedavg",
            "output": "last",
            "learning_rate": 1e-9,
            "server_optimizer": {"name": "sgd"},
        },
        initial_model=file,
    )
    verdict = done.result.verdict
    return "" if verdict is None else verdict.state


def bad_models(people: People, seed: int) -> Iterator[tuple[str, People, Array]]:
    """Yield models that serve people badly: the truth of others, of nobody, or far too sure."""
    truth = people.truth
    if truth is None:
        return
    draw = np.random.default_rng(seed)
    flipped = []
    for features, labels in people.sites:
        group = draw.random(len(labels)) < 0.2
        flipped.append((features, np.where(group, 1 - labels, labels)))
    yield "a fifth with flipped labels", People(people.name, flipped), truth
    yield "the opposite", people, -truth
    yield "ten times too sure", people, 10.0 * truth
    constant = np.zeros_like(truth)
    constant[-1] = 5.0 if truth[-1] < 0.0 else -5.0
    yield "one class for everybody", people, constant


def count(options: argparse.Namespace) -> dict[str, Any]:
    """Return every run, and how many contradictions there are of how many runs."""
    root = Path(os.environ.get("FEDFAIR_DATA", ""))
    names = (*options.tables, *(PUBLISHED if "FEDFAIR_DATA" in os.environ else ()))
    made = list(without_groups(options.seed))
    tables = [*(packaged(name, root) for name in names), *made]
    runs, asked = [], 0
    for people, size, algorithm in itertools.product(tables, options.sizes, ALGORITHMS):
        runs.append(trained(people, size, algorithm, options.rounds))
        print(json.dumps({key: runs[-1][key] for key in ("run", "state", "contradictions")}), file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for people, size in itertools.product(made, options.sizes):
            asked += 1
            if people.truth is not None and judged(people, people.truth, size, Path(folder)) == "worse":
                runs.append({"run": f"{people.name}, {size:g}, truth", "contradictions": ["true model"]})
        sure = [people for people in made if people.name.startswith(("strong", "sharp"))]
        for people in sure:
            for kind, others, weights in bad_models(people, options.seed):
                asked += 1
                if judged(others, weights, options.sizes[0], Path(folder)) != "worse":
                    runs.append({"run": f"{people.name}, {kind}", "contradictions": ["bad model"]})
    counted = {kind: sum(kind in run["contradictions"] for run in runs) for kind in KINDS}
    trained_runs = [run for run in runs if "state" in run]
    return {
        "trained": len(trained_runs),
        "given": asked,
        "states": {state: sum(run["state"] == state for run in trained_runs) for state in ("fine", "worse")},
        "near_the_optimum_and_worse": sum(
            run["excess"] < NEAR and run["state"] == "worse" for run in trained_runs
        ),
        "contradictions": counted,
        "runs": runs if options.all else [run for run in runs if run["contradictions"]],
    }


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="*", default=list(PACKAGED), choices=PACKAGED)
    parser.add_argument("--sizes", nargs="+", type=float, default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="print every run, not just those with a contradiction")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    report("verdict_advice", **count(options))


if __name__ == "__main__":
    main()
