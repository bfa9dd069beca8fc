"""Compares the federated model with what one site could have alone, on the site's own held-out records.

Decides who is compared: the federated model, the plan's model trained on this site's records alone, a logistic
regression on them, and the uniform guess. Nothing is sent, and no noise is added: a site may know everything about
its own records. The local model is trained as the plan trains, by as many rounds, with this site as the only one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.errors import DataError
from fedfair.fairness.cvar import tail_count
from fedfair.fairness.metrics import RiskSummary, summarise_losses
from fedfair.ids import ParticipantId
from fedfair.plan.algorithms import OptionsSection
from fedfair.plan.derived import earlier_plans, guess_loss, predicts_classes, reported_group_sizes, with_measure
from fedfair.plan.schema import Plan
from fedfair.run.saved_model import without_noise
from fedfair.simulation.evaluate import evaluate_sites
from fedfair.simulation.linear_family import scaled, standardised_columns
from fedfair.simulation.simulate import simulate_sites
from fedfair.tables.dataset import Dataset, Splits

FEDERATED, LOCAL, LOGISTIC = "federated model", "this site alone", "logistic regression"

MIN_PROBABILITY = 1e-12
"""A probability below this counts as this: a class that the regression never saw has none at all."""

_LOCAL_ALGORITHMS = ("fedsrcvar", "fedavg")
_MAX_STEPS = 1000


@dataclass(frozen=True, slots=True)
class SiteComparison:
    """How the models serve one site's held-out records.

    Attributes:
        participant: the site.
        split: test, or validation where no test records are held out.
        group_sizes: of the worst groups, as shares, ascending.
        risks: of each model, by its name.
        omitted: why a model is not among them, one sentence each.
        uniform: the loss of the uniform guess; None where guessing has no meaning.
        loss_unit: of every loss here.
    """

    participant: ParticipantId
    split: str
    group_sizes: tuple[float, ...]
    risks: Mapping[str, RiskSummary]
    omitted: tuple[str, ...]
    uniform: float | None
    loss_unit: str

    def records(self, group_size: float) -> int:
        """Return how many records the worst group of a size has, rounded up."""
        return math.ceil(tail_count(self.risks[FEDERATED].count, group_size))


def compare_at_site(
    plan: Plan, participant: ParticipantId, splits: Splits, code: Path, model_file: Path
) -> SiteComparison:
    """Return how the federated model serves a site's own records beside what the site could have alone.

    Args:
        plan: the plan that trained the model.
        participant: the site.
        splits: its records.
        code: where a "module:function" of the plan is looked for.
        model_file: the federated model.

    Raises:
        FedfairError: nothing is held out, or a model cannot be loaded or trained.
    """
    split, held_out = _held_out(splits)
    own = {participant: splits}
    sizes = reported_group_sizes(plan)
    federated = evaluate_sites(plan, code, own, model_file, exact=False).losses[participant][split]
    alone = simulate_sites(local_plan(plan, participant), own, code).losses[participant][split]
    risks = {
        FEDERATED: summarise_losses(federated.values, federated.correct, sizes),
        LOCAL: summarise_losses(alone.values, alone.correct, sizes),
    }
    omitted: tuple[str, ...] = ()
    guess = guess_loss(plan, splits.train.schema.classes)
    if not predicts_classes(plan):
        omitted = (f"no logistic regression: the plan's loss is the {plan.task.loss.title}",)
    elif len(np.unique(splits.train.labels)) > 1:
        risks[LOGISTIC] = summarise_losses(*logistic_losses(splits.train, held_out), sizes)
    else:
        omitted = ("no logistic regression: all training records of this site are of one class",)
    return SiteComparison(participant, split, sizes, risks, omitted, guess, plan.task.loss.unit)


def local_plan(plan: Plan, participant: ParticipantId) -> Plan:
    """Return the plan by which one site would train alone; it never leaves this process."""
    training, algorithm = plan.training, plan.training.algorithm
    if algorithm not in _LOCAL_ALGORITHMS:
        training = training.model_copy(update={"algorithm": _LOCAL_ALGORITHMS[0], "options": OptionsSection()})
    if earlier_plans(plan):
        # What the federation continued from is its own work; alone, a site would have trained all rounds by
        # itself.
        training = training.model_copy(update={"initial": None})
    sections = {
        "federation": plan.federation.model_copy(
            update={"collaborators": (participant,), "min_collaborators": None, "roster": {}}
        ),
        "training": training.model_copy(update={"control_variates": False}),
        "evaluation": plan.evaluation.model_copy(update={"site_means": False, "site_weights": {}}),
        "secure_aggregation": plan.secure_aggregation.model_copy(update={"mode": "off"}),
    }
    return without_noise(with_measure(plan).model_copy(update=sections))


def logistic_losses(train: Dataset, held_out: Dataset) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the losses of a logistic regression (n,), in nats, and which records it classifies correctly.

    Its columns are standardised by the training records, a missing value is their mean, and the penalty is that of
    scikit-learn.

    Args:
        train: records of at least two classes.
        held_out: the records that are asked about.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    scaling = standardised_columns(train)
    model = LogisticRegression(max_iter=_MAX_STEPS)
    with warnings.catch_warnings():
        # A model that has not quite ended is still what a site would have.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(scaled(train, scaling), train.labels)
    found = model.predict_proba(scaled(held_out, scaling))
    chances = np.zeros((len(held_out), train.schema.classes))
    chances[:, model.classes_] = found
    own = chances[np.arange(len(held_out)), held_out.labels]
    return -np.log(np.maximum(own, MIN_PROBABILITY)), chances.argmax(axis=1) == held_out.labels


def _held_out(splits: Splits) -> tuple[str, Dataset]:
    for name, part in (("test", splits.test), ("validation", splits.validation)):
        if part is not None and len(part):
            return name, part
    raise DataError(
        "this site holds no records out, so nothing says how a model serves people that it has not seen",
        "name a file of test records in data.test of collaborator.yaml, where the plan's data allow that",
    )
