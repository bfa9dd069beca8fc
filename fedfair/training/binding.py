"""Binds a plan before anybody approves it: schema, layout, the model before round 1, and code.

The digest over all of it is what a site signs and what the aggregator must run. It is a function of the plan and
the workspace, and of no data. Its canonical form is `fedfair.plan.digest`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.reference import check_room
from fedfair.aggregation.target_scaling import scaled_columns
from fedfair.errors import PlanError
from fedfair.plan.digest import plan_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import Loss
from fedfair.plan.module_code import code_digests
from fedfair.plan.schema import Plan
from fedfair.run.carried import NOTHING, Carried
from fedfair.run.initial_model import FREEZE_AGAIN, NOT_STATED, StatedWeights, stated_weights, vector_digest
from fedfair.run.reference_file import references_beside, with_references
from fedfair.tables.source_modules import declared_schema
from fedfair.training.assembly import flat_model


@dataclass(frozen=True, slots=True)
class PlanBinding:
    """A plan with everything that follows from it.

    Attributes:
        schema: what the model must accept and return.
        layout: where the model's tensors lie.
        vector: array (d,) in the layout's width, the model before round 1.
        digest: 32 bytes, what a site approves.
        initial_weights: 32 bytes, the digest of the vector.
        carried: what the run takes over beside the weights.
    """

    schema: FeatureSchema
    layout: Layout
    vector: NDArray[np.floating] = field(repr=False)
    digest: bytes
    initial_weights: bytes
    carried: Carried = NOTHING


def plan_binding(plan: Plan, workspace: Path) -> PlanBinding:
    """Return what the plan is bound to.

    Args:
        plan: the plan.
        workspace: where the source of a "module:function" is.

    Raises:
        PlanError: the plan does not say what the model's input and output are, or its model cannot be made.
    """
    return bound(plan, stated_schema(plan), workspace)


def stated_schema(plan: Plan) -> FeatureSchema:
    """Return what the plan says of the model's input and output. Raises PlanError where it does not say."""
    schema = declared_schema(plan)
    if schema is None:
        raise PlanError(
            "task: only the data can tell how many features and classes there are, and a plan is approved "
            "without them",
            "state task.input_shape and task.classes",
        )
    return schema


def bound(
    plan: Plan,
    schema: FeatureSchema,
    workspace: Path,
    given: StatedWeights | None = None,
    *,
    references: Path | None = None,
) -> PlanBinding:
    """Return the binding for a schema that is known from the data, as in a simulation.

    Args:
        plan: the plan.
        schema: what the model must accept and return.
        workspace: where the source of a "module:function" is.
        given: the initial weights that the plan names; None where they are in the files beside it.
        references: the file of those that the plan takes from an earlier run; None for that beside it.

    Raises:
        PlanError: the model cannot be made, or is too large for the noise that the plan asks for; its references
            are too wide for a masked sum; or the initial weights are not those that the plan names, or of another
            model.
    """
    check_room(plan, schema)
    made = initial_model(plan, schema, workspace)
    return bound_to(made, plan, schema, workspace, given, references=references)


def bound_to(
    made: tuple[Layout, NDArray[np.floating]],
    plan: Plan,
    schema: FeatureSchema,
    workspace: Path,
    given: StatedWeights | None = None,
    *,
    references: Path | None = None,
) -> PlanBinding:
    """Return the binding to a model that was made, here or elsewhere; no code of the plan is run.

    Args:
        made: layout of the plan's model, and its vector as the plan's seed makes it.
        plan: as for `bound`, and so are the others.
        schema: what the model must accept and return.
        workspace: where the source of a "module:function" is.
        given: the initial weights that the plan names.
        references: the file of those that the plan takes from an earlier run.

    Raises:
        PlanError: as `bound`.
    """
    layout, vector = made
    carried = NOTHING
    if plan.training.initial is not None:
        held = given or stated_weights(plan, plan.file)
        check_fits(held, layout, schema, plan.task.loss)
        vector, carried = held.vector, held.carried
    carried = with_references(plan, schema, references or references_beside(plan), carried)
    distributed_dp(plan, layout.dimension)
    weights = vector_digest(vector)
    digest = plan_digest(
        plan,
        layout_digest=layout.digest,
        initial_weights_digest=weights,
        code_digests=code_digests(plan.task.references, workspace),
    )
    return PlanBinding(schema, layout, vector, digest, weights, carried)


def check_fits(held: StatedWeights, layout: Layout, schema: FeatureSchema, loss: Loss) -> None:
    """Refuse initial weights of another model than the plan's.

    Raises:
        PlanError: the tensors or the scaled columns are others.
    """
    theirs = held.layout
    if theirs.digest != layout.digest:
        raise PlanError(
            f"the initial weights are {theirs.dimension} {theirs.dtype} values in {len(theirs.entries)} tensors, "
            f"the plan's model has {layout.dimension} {layout.dtype} in {len(layout.entries)}, or of other names",
            f"the task or the precision was changed after `fedfair plan freeze --from`: {FREEZE_AGAIN}; or "
            f"{NOT_STATED}",
        )
    scaling = held.carried.scaling
    columns = scaled_columns(loss, len(schema.numeric))
    if scaling is not None and scaling.mean.shape != (columns,):
        raise PlanError(
            f"the initial weights scale {len(scaling.mean)} columns, the plan has {columns}",
            f"{FREEZE_AGAIN}; or {NOT_STATED}",
        )


def initial_model(plan: Plan, schema: FeatureSchema, workspace: Path) -> tuple[Layout, NDArray[np.floating]]:
    """Return the layout of the plan's model, and its vector as the plan's seed makes it."""
    model = flat_model(plan, schema, torch.device("cpu"), workspace)
    return model.layout, model.vector()
