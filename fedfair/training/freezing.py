"""Writes the model before round 1 beside its plan, where torch is installed: for hosts that have none.

It is made from the plan's seed, or its weights come from a file, which every site then approves by their digest.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation import model_file
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.errors import DataError, PlanError
from fedfair.plan.derived import learns_threshold, standardises, threshold_beginning
from fedfair.plan.digest import format_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.initial import InitialSection
from fedfair.plan.loading import load_plan, workspace_of
from fedfair.plan.parameters import FROZEN_SUFFIX
from fedfair.plan.schema import Plan
from fedfair.plan.sections import unevaluated_faults
from fedfair.run.carried import Carried
from fedfair.run.initial_model import StatedWeights, vector_digest, write_initial_model
from fedfair.run.initial_section import check_not_by_hand, write_initial_section
from fedfair.run.model_description import describe_model
from fedfair.run.saved_model import sites_digest
from fedfair.tables.source_modules import declared_schema
from fedfair.training.assembly import built, width_of
from fedfair.training.binding import PlanBinding, plan_binding
from fedfair.training.flat_model import FlatModel, layout_of
from fedfair.training.imported_weights import STRICT, Allowance, ImportedWeights, import_weights
from fedfair.training.lora import is_factor
from fedfair.training.travelling import parts_of

FROZEN_FORMAT = "fedfair/frozen-parameters/1"


@dataclass(frozen=True, slots=True)
class BegunPlan:
    """A plan whose run begins with weights from a file.

    Attributes:
        plan: with `training.initial`.
        held: the weights.
        imported: what was taken from the file, and what there is to say of it.
        frozen: the tensors of the file that the plan freezes, and their values; None where it freezes none.
    """

    plan: Plan
    held: StatedWeights
    imported: ImportedWeights
    frozen: tuple[Layout, NDArray[np.floating]] | None = field(default=None, repr=False)


def freeze_plan(plan_file: Path) -> PlanBinding:
    """Write the model before round 1 beside its plan, and return what the plan is bound to.

    Raises:
        FedfairError: the plan or its model cannot be used, or the file cannot be written.
    """
    plan = load_plan(plan_file)
    made = plan_binding(plan, workspace_of(plan_file))
    write_initial_model(plan_file, plan, made.layout, made.vector, made.schema, made.carried.scaling)
    return made


def freeze_from(
    plan_file: Path, source: Path, allowed: Allowance = STRICT, *, new_threshold: bool = False
) -> tuple[PlanBinding, ImportedWeights]:
    """Begin a plan's run with the weights of a file: write them and their digest beside the plan.

    Args:
        plan_file: the plan's file.
        source: a model that fedfair has saved, a `.safetensors` file, or a state dict of torch.
        allowed: differences between the file and the model that somebody has agreed to.
        new_threshold: leave the threshold of the file, and begin as the plan says.

    Returns:
        What the plan is bound to now, and what was taken.

    Raises:
        DataError: the file is missing, unreadable, or of another model.
        PlanError: the plan or its model cannot be used, or its run continues from an earlier one.
    """
    plan = load_plan(plan_file)
    check_not_by_hand(plan_file)
    if plan.training.initial is not None and plan.training.initial.continues is not None:
        raise PlanError(
            f"the run of {plan_file} continues from an earlier one, so its weights are those of that run's end",
            "give another plan; or remove plan.initial.yaml, and set training.rounds to those of a new run",
        )
    schema = declared_schema(plan)
    if schema is None:
        raise PlanError(
            "task: only the data can tell how many features and classes there are, so no file can be compared",
            "state task.input_shape and task.classes",
        )
    begun = begin_with(plan, schema, workspace_of(plan_file), source, allowed, new_threshold=new_threshold)
    if begun.frozen is not None:
        model_file.save(plan_file.with_suffix(FROZEN_SUFFIX), *begun.frozen, {"format": FROZEN_FORMAT})
    stated = begun.plan.training.initial
    if stated is not None:
        write_initial_section(plan_file, stated)
    held = begun.held
    # The files are compared with each other again, as every site does.
    read = load_plan(plan_file)
    write_initial_model(plan_file, read, held.layout, held.vector, schema, held.carried.scaling)
    return freeze_plan(plan_file), begun.imported


def begin_with(
    plan: Plan,
    schema: FeatureSchema,
    workspace: Path,
    source: Path,
    allowed: Allowance = STRICT,
    *,
    new_threshold: bool = False,
) -> BegunPlan:
    """Return a plan whose run begins with the weights of a file; nothing is written.

    The threshold of a fedfair model comes with it where the plan learns one, states none, and no evaluation before
    round 1 gives it. Its scaling always comes with it: under another one its weights would be another model.

    Args:
        plan: the plan.
        schema: what the model must accept and return.
        workspace: where the source of a "module:function" is.
        source: as for `freeze_from`.
        allowed: as for `freeze_from`.
        new_threshold: as for `freeze_from`.

    Raises:
        FedfairError: as for `freeze_from`.
    """
    module = built(plan, schema, workspace)
    travels = parts_of(module, plan.training.parameters).travel
    model = FlatModel(module, width_of(plan))
    imported = import_weights(source, model, describe_model(plan, schema), _with_adapters_of(plan, model, allowed))
    model.load(imported.vector)
    layout = layout_of(module, model.flat.dtype, travels)
    held = {entry.name for entry in layout.entries}
    whole, imported = imported.vector, replace(imported, vector=_part(model.layout, imported.vector, held))
    _check_origin(source, imported, scales=standardises(plan, len(schema.numeric)))
    same_sites = imported.sites == sites_digest(plan.federation.collaborators)
    scaling = imported.scaling
    section = InitialSection(
        weights=format_digest(vector_digest(imported.vector)),
        scaling=None if scaling is None else format_digest(scaling_digest(scaling)),
        same_sites=same_sites,
        frozen=format_digest(layout.frozen) if layout.frozen else None,
    )
    is_open = learns_threshold(plan) and threshold_beginning(_with_initial(plan, section)) == "bound"
    if new_threshold or not is_open:
        imported = replace(imported, threshold=None)
    section = section.model_copy(update={"threshold": imported.threshold})
    _check_begins(plan, section)
    begun = _with_initial(plan, section)
    weights = StatedWeights(layout, imported.vector, Carried(scaling))
    if not layout.frozen:
        return BegunPlan(begun, weights, imported)
    rest = tuple(entry for entry in model.layout.entries if entry.name not in held)
    frozen = Layout(rest, layout.dtype), _part(model.layout, whole, {entry.name for entry in rest})
    return BegunPlan(begun.with_frozen(source), weights, imported, frozen)


def _part(layout: Layout, vector: NDArray[np.floating], names: Collection[str]) -> NDArray[np.floating]:
    """Return the values of some tensors of a vector, in the order of their names."""
    return np.concatenate([vector[place] for entry, place in layout.slices() if entry.name in names])


def _with_adapters_of(plan: Plan, model: FlatModel, allowed: Allowance) -> Allowance:
    """Return what may be missing from a file, with the adapters, which the plan's seed makes."""
    stated = plan.training.parameters
    if stated is None or stated.lora is None:
        return allowed
    own = tuple(entry.name for entry in model.layout.entries if is_factor(entry.name))
    return replace(allowed, missing=(*allowed.missing, *own))


def _with_initial(plan: Plan, section: InitialSection) -> Plan:
    return plan.model_copy(update={"training": plan.training.model_copy(update={"initial": section})})


def _check_origin(source: Path, imported: ImportedWeights, *, scales: bool) -> None:
    """Refuse weights that tell of one site, or whose features are scaled in another way than the plan's.

    Raises:
        DataError: they do, or they are.
    """
    if imported.fine_tuned_at:
        raise DataError(
            f"{source} was fine-tuned at {imported.fine_tuned_at}: it tells of that site's records, and every "
            "site would get it",
            "give a model of the federation",
        )
    if imported.scaling is not None and not scales:
        raise DataError(
            f"{source} scales its features by the means and deviations of its own run, and the plan does not",
            "set task.standardize: secure; the scaling of the file is then kept, and no sum is made of columns",
        )
    if imported.is_described and scales and imported.scaling is None:
        raise DataError(
            f"{source} does not say how its features were scaled, and the plan standardises them",
            "give a model that was saved after the standardisation; save/init.safetensors is from before it",
        )


def _check_begins(plan: Plan, section: InitialSection) -> None:
    """Refuse, before anything is written, a plan that needs the figures of weights that it may not evaluate.

    Raises:
        PlanError: it does.
    """
    for fault in unevaluated_faults(plan.training, section):
        place = ".".join(("training", *map(str, fault.place)))
        raise PlanError(f"{place} {fault.message}", fault.remedy)
