"""The excess over the attainable in a plan: which losses have one, and what excludes `measure: excess`.

    r(theta; x) = E[loss(theta; x, y)] - min over a of E[loss(a; y)],   y drawn from a reference's q(.|x)

For probabilities that is the Kullback-Leibler divergence KL(q(.|x) || p_theta(.|x)), for a number under squared
error (output - mean of q)^2. The reference is trained in the run itself, before round 1 (`aggregation.reference`).
No torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from fedfair.plan.fields import MAX_PLANNED_NUMBERS, Fault
from fedfair.plan.losses import (
    BinaryLoss,
    CrossEntropyLoss,
    Loss,
    MultiLabelLoss,
    OrdinalLoss,
    SquaredLoss,
    SurvivalLoss,
)
from fedfair.plan.privacy import PrivacySection
from fedfair.plan.sections import EvaluationSection, ObjectiveSection, ReferenceSection, TrainingSection
from fedfair.plan.task import LinearModel, MlpModel, ModelSpec, TaskSection

_PLACE = ("objective", "measure")
_NAMED = "cross_entropy, binary, ordinal, multi_label, squared or survival"


def has_excess(loss: Loss) -> bool:
    """Return whether a reference tells the least expected value of a loss."""
    return isinstance(
        loss, CrossEntropyLoss | BinaryLoss | OrdinalLoss | MultiLabelLoss | SquaredLoss | SurvivalLoss
    )


def may_say_more(reference: ReferenceSection, model: ModelSpec) -> bool | None:
    """Return whether a reference can say more than the model, whose excess is else nothing; None where unknown."""
    match model:
        case LinearModel():
            return True
        case MlpModel(hidden=hidden):
            return len(reference.hidden) > len(hidden) or sum(reference.hidden) > sum(hidden)
        case _:
            return None


def excess_faults(
    objective: ObjectiveSection,
    training: TrainingSection,
    task: TaskSection,
    evaluation: EvaluationSection,
    privacy: PrivacySection,
) -> Iterator[Fault]:
    """Yield what excludes a stated `measure: excess`; of a plan by the loss, a reference that nothing uses."""
    if objective.measure == "excess":
        yield from _exclusions(training, task, evaluation, privacy)
    elif objective.reference is not None and not takes_excess(objective, training, task, evaluation, privacy):
        message = "is stated, and measure: loss has no reference"
        yield Fault(("objective", "reference"), message, "set measure: excess, or remove reference")


def takes_excess(
    objective: ObjectiveSection,
    training: TrainingSection,
    task: TaskSection,
    evaluation: EvaluationSection,
    privacy: PrivacySection,
) -> bool:
    """Return whether the excess is measured: as stated, else where it can be and a reference can say more."""
    if objective.measure is not None:
        return objective.measure == "excess"
    reference = reference_in(objective)
    useful = not objective.is_mean and may_say_more(reference, task.model) and _fits(reference, task)
    return bool(useful) and not any(_exclusions(training, task, evaluation, privacy))


def _fits(reference: ReferenceSection, task: TaskSection) -> bool:
    """Return whether a masked sum has room for the references, as far as the plan tells; not of pictures."""
    inputs = task.known_inputs
    if inputs is None:
        return task.has_numeric_columns
    layers = itertools.pairwise((inputs, *reference.hidden))
    return reference.folds * sum((entering + 1) * leaving for entering, leaving in layers) <= MAX_PLANNED_NUMBERS


def reference_in(objective: ObjectiveSection) -> ReferenceSection:
    """Return how the references of an objective are trained."""
    return objective.reference or ReferenceSection()


def _exclusions(
    training: TrainingSection, task: TaskSection, evaluation: EvaluationSection, privacy: PrivacySection
) -> Iterator[Fault]:
    if not has_excess(task.loss):
        message = f"is excess, and no reference tells the least expected {task.loss.name} of a person"
        yield Fault(_PLACE, message, f"use a loss of {_NAMED}, or measure: loss")
    if training.algorithm != "fedsrcvar":
        message = f"is excess, and {training.algorithm} follows the loss"
        yield Fault(_PLACE, message, "set training.algorithm: fedsrcvar, or measure: loss")
    for level in ("sample_level", "collaborator_level"):
        if getattr(privacy, level) is not None:
            message = f"is excess, and the sums that train its reference carry no noise of privacy.{level}"
            yield Fault(_PLACE, message, "set measure: loss, or remove the noise")
    if evaluation.method == "exact":
        message = "is excess, and an exact evaluation asks for quantiles of the loss"
        yield Fault(_PLACE, message, "set evaluation.method: histogram, or measure: loss")
