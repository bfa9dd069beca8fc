"""The shapes of a task's outputs and targets: what `task.loss` makes of a schema that the data tell.

A reader of data knows features and answers, and no loss. Decides how many numbers a model returns for a record,
and refuses answers that the loss has no meaning for. One place, so that a plan, a site and a saved model agree.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fedfair.errors import PlanError
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import (
    BinaryLoss,
    CrossEntropyLoss,
    HuberLoss,
    Loss,
    MultiLabelLoss,
    OrdinalLoss,
    OwnLoss,
    PinballLoss,
    SegmentationLoss,
    SquaredLoss,
    SurvivalLoss,
)

BINARY = 2
IMAGE_AXES = 3


def with_outputs(  # noqa: C901, PLR0911 - one case and one return for each loss
    loss: Loss, schema: FeatureSchema
) -> FeatureSchema:
    """Return the schema with the shapes that the loss asks for; unchanged under cross-entropy.

    Raises:
        PlanError: the data's answers are others than the loss takes.
    """
    match loss:
        case CrossEntropyLoss():
            return schema
        case BinaryLoss():
            if schema.classes != BINARY:
                raise PlanError(
                    f"task.loss: binary is for two classes, the data have {schema.classes}", "use cross_entropy"
                )
            return replace(schema, outputs=(1,))
        case OrdinalLoss():
            return replace(schema, outputs=(schema.classes - 1,), ordered=True)
        case SquaredLoss() | HuberLoss() | PinballLoss():
            _check_targets(loss, schema, ())
            return replace(schema, outputs=(1,))
        case MultiLabelLoss(labels=stated):
            count = stated if stated is not None else math.prod(schema.targets)
            _check_targets(loss, schema, (count,))
            return replace(schema, outputs=(count,))
        case SurvivalLoss(intervals=intervals):
            _check_targets(loss, schema, (2,))
            return replace(schema, outputs=(len(intervals),))
        case SegmentationLoss():
            if len(schema.input_shape) != IMAGE_AXES or schema.targets != schema.input_shape[1:]:
                raise PlanError(
                    "task.loss: segmentation needs images (channels, height, width) and masks (height, width), "
                    f"the data have {schema.input_shape} and {schema.targets}",
                    "let the data return a mask of the size of each image",
                )
            return replace(schema, outputs=(schema.classes, *schema.targets))
        case OwnLoss(outputs=outputs, targets=targets):
            if schema.classes:
                return replace(schema, outputs=outputs)
            _check_targets(loss, schema, targets)
            return replace(schema, outputs=outputs)


def planned_targets(loss: Loss, input_shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of one target as far as the loss alone tells it; None where only the data can.

    Args:
        loss: the plan's.
        input_shape: of one record's features.
    """
    match loss:
        case MultiLabelLoss(labels=count):
            return None if count is None else (count,)
        case SurvivalLoss():
            return (2,)
        case SegmentationLoss():
            return input_shape[1:]
        case OwnLoss(targets=targets):
            return targets
        case _:
            return ()


def _check_targets(loss: Loss, schema: FeatureSchema, expected: tuple[int, ...]) -> None:
    if schema.targets != expected or schema.classes:
        found = f"{schema.classes} classes" if schema.classes else f"answers of shape {schema.targets}"
        raise PlanError(
            f"task.loss: {loss.name} takes an answer of shape {expected}, the data have {found}",
            "use another loss, or let the data return such answers",
        )
