"""The excess over the attainable in a plan: which losses have one, and what excludes `measure: excess`.

    r(theta; x) = E[loss(theta; x, y)] - min over a of E[loss(a; y)],   y drawn from a reference's q(.|x)

For probabilities that is the Kullback-Leibler divergence KL(q(.|x) || p_theta(.|x)), for a number under squared
error (output - mean of q)^2. The reference is trained in the run itself, before round 1 (`aggregation.reference`).
No torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from fedfair.plan.fields import MASKED_NUMBERS, Fault
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
from fedfair.plan.sections import (
    EvaluationSection,
    ObjectiveSection,
    ReferenceSection,
    SecureAggregationSection,
    TrainingSection,
)
from fedfair.plan.sources import CsvSource, section_of
from fedfair.plan.task import LinearModel, MlpModel, ModelSpec, TaskSection

REFERENCE_COUNTS = 9
"""Counts in a sum of references beside those of each: records, those judged, and a loss for each temperature."""

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


def room_faults(
    objective: ObjectiveSection, task: TaskSection, masks: SecureAggregationSection
) -> Iterator[Fault]:
    """Yield why the references of a stated `measure: excess` fit into no masked sum, as far as the plan tells."""
    inputs = task.known_inputs
    if objective.measure == "excess" and masks.mode != "off" and inputs is not None:
        fault = reference_room(reference_in(objective), inputs, _fewest_outputs(task))
        yield from () if fault is None else (fault,)


def reference_room(reference: ReferenceSection, inputs: int, outputs: int) -> Fault | None:
    """Return the fault of references that no masked sum has room for; None where they fit.

    Args:
        reference: how they are trained.
        inputs: features of a record.
        outputs: numbers that one of them returns for a record.
    """
    numbers = reference_numbers(reference, inputs, outputs)
    if numbers <= MASKED_NUMBERS:
        return None
    hidden = ", ".join(map(str, reference.hidden))
    return Fault(
        _PLACE,
        f"is excess, and {reference.folds} references of {inputs} inputs, hidden layers [{hidden}] and {outputs} "
        f"outputs put {numbers} numbers into a sum; a masked one has room for {MASKED_NUMBERS}",
        "set measure: loss, or narrower layers under objective.reference.hidden",
    )


def reference_numbers(reference: ReferenceSection, inputs: int, outputs: int) -> int:
    """Return how many numbers a masked sum of references has in its header: two for the change of a weight."""
    layers = itertools.pairwise((inputs, *reference.hidden, outputs))
    weights = reference.folds * sum((entering + 1) * leaving for entering, leaving in layers)
    return 2 * weights + reference.folds + REFERENCE_COUNTS


def _fits(reference: ReferenceSection, task: TaskSection) -> bool:
    """Return whether a masked sum has room for the references, as far as the plan tells; not of pictures."""
    section, inputs = section_of(task.data), task.known_inputs
    if inputs is None or (section is not None and not section.has_numeric_columns):
        return task.has_numeric_columns
    return reference_room(reference, inputs, _fewest_outputs(task)) is None


def _fewest_outputs(task: TaskSection) -> int:
    """Return the fewest outputs that a reference can have, as far as the plan tells."""
    match task.loss:
        case SquaredLoss():
            return 1
        case SurvivalLoss(intervals=intervals):
            return len(intervals)
        case MultiLabelLoss(labels=stated):
            listed = task.data.csv.labels if isinstance(task.data, CsvSource) else ()
            return stated or max(len(listed), 1)
        case _:
            return task.fewest_classes


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
