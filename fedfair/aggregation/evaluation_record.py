"""The record of an evaluation: which model it is of, and the sums that it is made of.

A training run keeps the sums behind the evaluation of its output model, so that they can be published
(`fedfair.aggregation.evaluation_file`) and certified long after the run. No torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation.dp_histogram import possible_header
from fedfair.aggregation.evaluation_file import EvaluationRecord, split_sums
from fedfair.aggregation.evaluation_sums import confused_classes, planned_layout
from fedfair.aggregation.requests import histogram_spec
from fedfair.plan.derived import guess_loss, protects_records, published_sites
from fedfair.plan.digest import format_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import CROSS_ENTROPY, loss_in_words
from fedfair.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """One evaluation sum, and what it is about.

    Attributes:
        header: float64 array, the total over all sites as it was opened.
        vector_sha256: 32 bytes, see `vector_sha256`.
        threshold: the threshold that was broadcast with the model.
        round: training rounds that the model has behind it.
        contributors: how many sites contributed.
        replaced: how many losses were replaced because they were not finite or too large.
    """

    header: NDArray[np.float64]
    vector_sha256: bytes
    threshold: float
    round: int
    contributors: int
    replaced: int = 0


def evaluation_record(
    plan: Plan, plan_digest: bytes, schema: FeatureSchema, evaluated: EvaluatedModel, *, masked: bool
) -> EvaluationRecord:
    """Return what is published about an evaluation; of sums under noise the nearest ones that records may have.

    Args:
        plan: the plan that was run.
        plan_digest: its digest, 32 bytes.
        schema: of the features.
        evaluated: the sums.
        masked: whether the contributions were masked on their way.
    """
    spec, loss = histogram_spec(plan, schema), plan.task.loss
    is_usual, header = loss == CROSS_ENTROPY, evaluated.header
    if protects_records(plan):
        header = possible_header(header, spec, confused_classes(plan, schema))
    return EvaluationRecord(
        plan_digest=format_digest(plan_digest),
        model_digest=format_digest(evaluated.vector_sha256),
        round=evaluated.round,
        threshold=evaluated.threshold,
        participants=evaluated.contributors,
        classes=confused_classes(plan, schema) or None,
        masked=masked,
        bins=spec.bins,
        loss_range=spec.loss_range,
        splits=split_sums(header, planned_layout(plan, schema), published_sites(plan), plan.evaluation.min_group),
        replaced=evaluated.replaced,
        loss=None if is_usual else loss_in_words(loss),
        guess=None if is_usual else guess_loss(plan, schema.classes),
    )
