"""Finds advice on a plan: fits its family of models over a grid, finds the critical size, and recommends.

Decides the default grid, how many folds, and which records; how a model is fitted is `families.py`'s business, the
recommendation `choice.py`'s, the words `words.py`'s. Test records have no part in any of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedfair.errors import PlanError
from fedfair.fairness.cvar import cvar
from fedfair.fairness.metrics import uniform_classifier_loss
from fedfair.fairness.served_size import smallest_served_size
from fedfair.ids import ParticipantId
from fedfair.plan.derived import guess_loss, measure_of, measures_excess, predicts_classes
from fedfair.plan.description import model_in_words
from fedfair.plan.losses import CROSS_ENTROPY
from fedfair.plan.schema import Plan
from fedfair.plan.task import LinearModel
from fedfair.simulation.linear_family import (
    MAX_PROGRAM_RECORDS,
    MAX_VALUES,
    critical_sizes,
    scaled,
    standardised_columns,
)
from fedfair.studies.advice.choice import recommend, served_from
from fedfair.studies.advice.document import (
    FORMAT,
    AdviceDocument,
    AdviceTrials,
    AdvisedModel,
    CriticalMethod,
    FamilyLimits,
)
from fedfair.studies.advice.families import (
    ModelFamily,
    SolvedLinearModels,
    TrainedModels,
)
from fedfair.studies.advice.figures import FittedModel, FoldLosses, advised_model
from fedfair.studies.advice.folds import pooled_records, sampled
from fedfair.studies.advice.settings import PLAIN, AdvisedSetting, recommended_setting, task_digest
from fedfair.studies.advice.trial_choice import recommended
from fedfair.studies.advice.trials import QUICK, THOROUGH, Trials, usual_candidates
from fedfair.studies.advice.words import advice_notes, advice_sentences
from fedfair.tables.dataset import Dataset, Splits
from fedfair.tables.source import load_federation

SOLVED_FOLDS, TRAINED_FOLDS = 5, 3
SIZES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
SOLVED_TRADEOFFS = (0.01, 0.1, 0.3, 0.6)
TRAINED_TRADEOFFS = (0.1, 0.5)

MIN_SAMPLE = 5_000
"""A solver sees no fewer records than these, however many values each has."""

HALVINGS = 3
"""How often the trained critical size is looked for between two sizes of the grid."""

OnFit = Callable[[int, int], None]
"""Told how many models have been fitted, of how many."""


@dataclass(frozen=True, slots=True)
class AdviceGrid:
    """The settings that advice looks at.

    Attributes:
        sizes: group sizes (rho), each above 0 and below 1; None for the defaults.
        tradeoffs: weights of the mean (epsilon), each from 0 to below 1; None for the defaults.
        rounds: training rounds of each model that is trained, at least 1; None for the plan's.
        trials: whether the plan's own training is tried with the settings that are likely to be best.
        quick: whether nothing but trials is made, on a sample.
    """

    sizes: tuple[float, ...] | None = None
    tradeoffs: tuple[float, ...] | None = None
    rounds: int | None = None
    trials: bool = True
    quick: bool = False


def advise(plan: Plan, root: Path, grid: AdviceGrid, on_fit: OnFit | None = None) -> AdviceDocument:
    """Return advice on the plan's group size and tradeoff.

    Args:
        plan: the plan; its own size and tradeoff are looked at too.
        root: the workspace: the plan's data paths and code start there.
        grid: what to look at.
        on_fit: called after every fit.

    Raises:
        FedfairError: the plan's data cannot be loaded, or training failed.
        PlanError: rounds are given, and the plan's linear model is solved without any.
    """
    return advise_sites(plan, load_federation(plan, root), root, grid, on_fit)


def advise_sites(
    plan: Plan,
    sites: Mapping[ParticipantId, Splits],
    root: Path,
    grid: AdviceGrid,
    on_fit: OnFit | None = None,
) -> AdviceDocument:
    """Return advice from records that are in memory already; otherwise as `advise`."""
    began = time.perf_counter()
    wanted = plan if grid.rounds is None else plan.with_(training={"rounds": grid.rounds})
    trials = None
    if grid.trials:
        trials = Trials(wanted, sites, root, QUICK if grid.quick else THOROUGH)
    if grid.quick or (trials is not None and plan.task.loss != CROSS_ENTROPY):
        _check_alone(grid)
        if trials is None:
            raise PlanError("nothing is looked at: quick advice is made of trials alone", "omit one of both")
        advice = _by_trials(wanted, sites, trials, on_fit)
    else:
        advice = _by_curves(plan, sites, root, grid, trials, on_fit)
    advice = advice.model_copy(update={"seconds": time.perf_counter() - began})
    words = {"sentences": advice_sentences(advice), "notes": advice_notes(advice, plan)}
    return advice.model_copy(update=words)


def _check_alone(grid: AdviceGrid) -> None:
    if grid.sizes is not None or grid.tradeoffs is not None:
        raise PlanError(
            "sizes and tradeoffs are looked at for task.loss cross_entropy alone, and not by a quick look",
            "omit them, or look at group sizes with fedfair sweep",
        )


def _by_trials(
    plan: Plan, sites: Mapping[ParticipantId, Splits], trials: Trials, on_fit: OnFit | None
) -> AdviceDocument:
    """Return advice without curves."""
    made = _tried(trials, usual_candidates(plan), 0, on_fit)
    held = pooled_records(sites)
    first = made.tried[0]
    base = AdvisedModel(
        worst_group_size=1.0,
        tradeoff=1.0,
        train=first.train,
        held_out=first.held_out,
        worst_gain=0.0,
        worst_gain_error=0.0,
        mean_cost=0.0,
        mean_cost_error=0.0,
    )
    return AdviceDocument(
        **_facts(plan, held),
        fitted="trials",
        rounds=made.rounds,
        folds=made.folds,
        records=made.records,
        sizes=tuple(group.size for group in first.held_out.groups),
        plain=base,
        models=(),
        family=FamilyLimits(lowest=None, highest=None, method="none"),
        served_from=None,
        surely_served_from=None,
        recommendation=recommended(made, plan.objective.worst_group_size, guess_loss(plan, held.schema.classes)),
        trials=made,
        sentences=(),
        notes=(),
        seconds=0.0,
    )


def _by_curves(
    plan: Plan,
    sites: Mapping[ParticipantId, Splits],
    root: Path,
    grid: AdviceGrid,
    trials: Trials | None,
    on_fit: OnFit | None,
) -> AdviceDocument:
    """Return advice with the curves of all sizes and tradeoffs, and with trials where these are wanted."""
    family, every, used, rounds = _family(plan, sites, root, grid)
    solved = rounds is None
    guess = uniform_classifier_loss(every.schema.classes)
    settings = _settings(plan, grid, solved=solved)
    sizes = tuple(sorted({size for size, _ in settings}))
    halvings = 0 if solved else HALVINGS
    ahead = family.folds * (len(settings) + 1)
    usual = usual_candidates(plan)
    later = 0 if trials is None else trials.count((*usual, PLAIN))

    def fitted(done: int) -> None:
        if on_fit is not None:
            on_fit(done, ahead + halvings + later)

    plain, others = fit_all(family, settings, fitted)
    limits = (
        linear_limits(used)
        if solved
        else trained_limits(family, [plain, *others], guess, halvings, lambda done: fitted(ahead + done))
    )
    fitted(ahead + halvings)
    base = advised_model(plain, plain, sizes)
    models = tuple(advised_model(one, plain, sizes) for one in others)
    by_loss, made = recommend(base, models, guess), None
    if trials is not None:
        found = () if by_loss is None or by_loss.kind == "plain" else (recommended_setting(by_loss),)
        made = _tried(trials, (usual[0], *found, *usual[1:]), ahead + halvings, on_fit)
    told = {} if made is None else {"by_loss": by_loss, "trials": made}
    return AdviceDocument(
        **_facts(plan, every),
        **told,
        fitted="solver" if solved else "training",
        rounds=rounds,
        folds=family.folds,
        records=len(used),
        sizes=sizes,
        plain=base,
        models=models,
        family=limits,
        served_from=served_from(base, models, guess, surely=False),
        surely_served_from=served_from(base, models, guess, surely=True),
        recommendation=by_loss if made is None else recommended(made, plan.objective.worst_group_size, guess),
        sentences=(),
        notes=(),
        seconds=0.0,
    )


def _facts(plan: Plan, every: Dataset) -> dict[str, Any]:
    """Return what a document says of the plan and of all its records."""
    classes = every.schema.classes
    counts = np.bincount(every.labels, minlength=classes) if predicts_classes(plan) else None
    return {
        "format": FORMAT,
        "federation": plan.federation.name,
        "model": model_in_words(plan),
        "records_available": len(every),
        "classes": classes,
        "guess": guess_loss(plan, classes),
        "majority": None if counts is None else float(counts.max() / counts.sum()),
        "plan_size": plan.objective.worst_group_size,
        "plan_tradeoff": plan.objective.tradeoff,
        "plan_measure": measure_of(plan),
        "task_digest": task_digest(plan),
    }


def _tried(
    trials: Trials, candidates: Sequence[AdvisedSetting], before: int, on_fit: OnFit | None
) -> AdviceTrials:
    """Return what the candidates reach, and tell of every training after those before."""
    count, done = trials.count(candidates), before

    def trained() -> None:
        nonlocal done
        done += 1
        if on_fit is not None:
            on_fit(done, before + count)

    made = trials.made(candidates, trained)
    if on_fit is not None:
        on_fit(before + count, before + count)
    return made


def _family(
    plan: Plan, sites: Mapping[ParticipantId, Splits], root: Path, grid: AdviceGrid
) -> tuple[ModelFamily, Dataset, Dataset, int | None]:
    """Return what is fitted, all records, those of them that are used, and the rounds; None where it is solved."""
    if plan.task.loss != CROSS_ENTROPY:
        raise PlanError(
            f"task.loss: is {plan.task.loss.name}, and advice on the group size compares with guessing a class",
            "look at group sizes with fedfair sweep",
        )
    every, seed = pooled_records(sites), plan.training.seed
    if not isinstance(plan.task.model, LinearModel):
        rounds = grid.rounds or plan.training.rounds
        return TrainedModels(plan, sites, root, TRAINED_FOLDS, rounds), every, every, rounds
    if grid.rounds is not None:
        raise PlanError("the plan's model is linear and is solved without rounds", "omit --rounds")
    used = sampled(every, _most_records(every), seed)
    return SolvedLinearModels(used, SOLVED_FOLDS, seed), every, used, None


def fit_all(
    family: ModelFamily, settings: Sequence[tuple[float, float]], on_fit: Callable[[int], None]
) -> tuple[FittedModel, list[FittedModel]]:
    """Return plain average training and the models of all settings, in the settings' order.

    Args:
        family: what is fitted.
        settings: group sizes and tradeoffs.
        on_fit: receives how many fits are done.
    """
    # A solver begins at its last end for the same size, so the mildest comes first.
    order = sorted(settings, key=lambda setting: (-setting[0], -setting[1]))
    found: dict[tuple[float, float], list[FoldLosses]] = {setting: [] for setting in ((1.0, 1.0), *order)}
    done = 0
    for fold in range(family.folds):
        for setting, losses in found.items():
            losses.append(family.fit(fold, *setting))
            done += 1
            on_fit(done)
    models = {setting: FittedModel(*setting, tuple(folds)) for setting, folds in found.items()}
    return models[1.0, 1.0], [models[setting] for setting in settings]


def linear_limits(records: Dataset) -> FamilyLimits:
    """Return the critical size of linear models over records, by the linear program or by its dual."""
    features, classes = scaled(records, standardised_columns(records)), records.schema.classes
    lowest, highest = critical_sizes(features, records.labels, classes)
    # Bounds may meet too, so they do not tell how they were found.
    method: CriticalMethod = "linear-program" if len(records) <= MAX_PROGRAM_RECORDS else "hinge-bounds"
    return FamilyLimits(lowest=lowest, highest=highest, method=method)


def trained_limits(
    family: ModelFamily,
    fitted: Sequence[FittedModel],
    guess: float,
    halvings: int,
    on_fit: Callable[[int], None],
) -> FamilyLimits:
    """Return the smallest size that training was seen to serve better than guessing, on training records.

    Each model's own losses tell from which size on it beats guessing. Then models of the first fold are trained
    for the group alone, at sizes that halve the way from the largest one of which no model did to the smallest
    that one did. That training finds no better model proves nothing, so there is no lower limit.

    Args:
        family: what is trained.
        fitted: models that are there already.
        guess: the loss of the uniform guess.
        halvings: how many models to train, at least 0.
        on_fit: receives how many of these are done; fewer where a model serves every record.
    """
    found = [smallest_served_size(fold.train.values, guess) for model in fitted for fold in model.folds]
    reached = min((size for size in found if size is not None), default=None)
    tried = [model.worst_group_size for model in fitted if not _beats(model, guess)]
    below = max((size for size in tried if reached is None or size < reached), default=0.0)
    for step in range(halvings):
        if reached == 0.0:  # every record is served: no size is below
            break
        size = 0.5 * (below + (1.0 if reached is None else reached))
        served = smallest_served_size(family.fit(0, size, 0.0).train.values, guess)
        if served is not None and (reached is None or served < reached):
            reached = served
        if served is None or served > size:
            below = size
        on_fit(step + 1)
    return FamilyLimits(lowest=None, highest=reached, method="training")


def _beats(model: FittedModel, guess: float) -> bool:
    return any(cvar(fold.train.values, model.worst_group_size) < guess for fold in model.folds)


def _settings(plan: Plan, grid: AdviceGrid, *, solved: bool) -> list[tuple[float, float]]:
    """Return all pairs of sizes and tradeoffs, and the plan's own pair where it is a mixture at all."""
    tradeoffs = grid.tradeoffs or (SOLVED_TRADEOFFS if solved else TRAINED_TRADEOFFS)
    pairs = {(size, tradeoff) for size in grid.sizes or SIZES for tradeoff in tradeoffs}
    own = (plan.objective.worst_group_size, plan.objective.tradeoff)
    if max(own) < 1.0 and not measures_excess(plan):
        pairs.add(own)
    return sorted(pairs)


def _most_records(records: Dataset) -> int:
    values = math.prod(records.schema.input_shape) * (records.schema.classes - 1)
    return max(MAX_VALUES // max(values, 1), MIN_SAMPLE)
