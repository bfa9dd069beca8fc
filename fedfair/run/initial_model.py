"""The model before round 1 as a file beside its plan, so that a host without torch knows what a plan is bound to.

`plan/plan.yaml` has `plan/plan.initial.safetensors`. Whoever has torch writes it (`fedfair plan freeze`,
`fedfair workspace export`), and it travels with the workspace. The aggregator reads it and computes the plan's
digest from it. It is nobody's word: every site makes the model itself from the plan's seed, approves the digest
over its weights, and refuses an aggregator with another digest.

Where the plan names initial weights of its own (`training.initial`), nobody makes them: they are in this file, and
every host compares them with the digest in the plan. So are the feature scaling that they were trained with, and,
in `plan/plan.initial.state`, the state of a continued run.

Decides what is written beside the weights, and when a file is out of date: it names all that a model before
round 1 is a function of. The format of the tensors is `model_file.py`'s. No torch: the aggregator imports this
module.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfair.aggregation import model_file
from fedfair.aggregation.distributed_dp import distributed_dp
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import FeatureScaling
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.errors import PlanError
from fedfair.file_formats import format_fault
from fedfair.plan.digest import (
    canonical_json,
    code_digest,
    format_digest,
    parse_digest,
    plan_digest,
    stated,
    weights_digest,
)
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.initial import InitialSection
from fedfair.plan.loading import workspace_of
from fedfair.plan.module_code import code_digests
from fedfair.plan.schema import Plan
from fedfair.run.carried import NOTHING, Carried
from fedfair.run.reference_file import SUFFIX as REFERENCES_SUFFIX
from fedfair.run.reference_file import with_references
from fedfair.run.scaling_text import SCALING_KEY, parse_scaling, scaling_text
from fedfair.signed_message import labelled_message

FORMAT = "fedfair/initial-model/1"
SUFFIX = ".initial.safetensors"
STATE_SUFFIX = ".initial.state"
LABEL = "fedfair/initial-model-source/v1"
FREEZE_AGAIN = "run `fedfair plan freeze --from FILE` again, and have every site approve the plan"
NOT_STATED = "remove plan.initial.yaml beside the plan to begin with the plan's seed"
REMEDY = "run `fedfair plan freeze` where torch is installed, and bring the file beside the plan here"


@dataclass(frozen=True, slots=True)
class InitialModel:
    """The model before round 1, and what the plan is bound to by it.

    Attributes:
        layout: where the model's tensors lie.
        vector: array (d,) in the layout's width.
        schema: what the model must accept and return.
        plan_digest: 32 bytes, what a site approves.
        carried: what the run takes over beside the weights.
    """

    layout: Layout
    vector: NDArray[np.floating]
    schema: FeatureSchema
    plan_digest: bytes
    carried: Carried = NOTHING

    @property
    def initial_weights(self) -> bytes:
        """Return the digest of the vector, 32 bytes, which is computed anew."""
        return vector_digest(self.vector)


def initial_model_file(plan_file: Path) -> Path:
    """Return where the model before round 1 of a plan is."""
    return plan_file.with_suffix(SUFFIX)


def state_file(plan_file: Path) -> Path:
    """Return where the state is that the run of a plan continues from."""
    return plan_file.with_suffix(STATE_SUFFIX)


def vector_digest(vector: NDArray[np.floating]) -> bytes:
    """Return the 32 bytes by which a plan's digest knows initial weights, array (d,) in the plan's width."""
    little = np.ascontiguousarray(vector, vector.dtype.newbyteorder("<"))
    return weights_digest(little.data.cast("B"))


def write_initial_model(
    plan_file: Path,
    plan: Plan,
    layout: Layout,
    vector: NDArray[np.floating],
    schema: FeatureSchema,
    scaling: FeatureScaling | None = None,
    *,
    place: Path | None = None,
) -> Path:
    """Write the model before round 1 beside its plan, and return where it is.

    Args:
        plan_file: the plan's file.
        plan: its content.
        layout: of the model.
        vector: array (d,) in the layout's width.
        schema: what the model must accept and return.
        scaling: of the features, which the weights were trained with; None where none comes with them.
        place: where to write it; None for beside the plan.

    Raises:
        DataError: the file cannot be written.
        PlanError: the plan's code cannot be read.
    """
    place = place or initial_model_file(plan_file)
    words = {"format": FORMAT, "source": format_digest(_source(plan, plan_file)), "schema": schema.to_json()}
    if scaling is not None:
        words[SCALING_KEY] = scaling_text(scaling)
    model_file.save(place, layout, vector, words)
    return place


def is_current(plan_file: Path, plan: Plan) -> bool:
    """Return whether there is a file beside the plan, made of what the plan says now.

    Raises:
        DataError: there is one that cannot be read.
        PlanError: it has a format that this version does not know, or the plan's code cannot be read.
    """
    place = initial_model_file(plan_file)
    return place.exists() and _words_of(place)[2]["source"] == format_digest(_source(plan, plan_file))


def read_initial_model(plan_file: Path, plan: Plan) -> InitialModel:
    """Return the model before round 1 from the file beside its plan; no torch and no code of the plan is needed.

    Args:
        plan_file: the plan's file.
        plan: its content.

    Raises:
        DataError: the file cannot be read.
        PlanError: there is none, it was made of another plan or code, it holds other weights than the plan names,
            or it has an unknown format.
    """
    place = initial_model_file(plan_file)
    if not place.exists():
        raise PlanError(f"{place} is missing: the model before round 1, which this host does not make", REMEDY)
    layout, vector, words = _words_of(place)
    carried = NOTHING
    if plan.training.initial is not None:
        carried = _carried(plan.training.initial, plan_file, vector, words)
    schema = FeatureSchema.from_json(words["schema"])
    carried = with_references(plan, schema, plan_file.with_suffix(REFERENCES_SUFFIX), carried)
    if parse_digest(words["source"]) != _source(plan, plan_file):
        raise PlanError(f"{place} is out of date: task, seed, precision or code of the plan has changed", REMEDY)
    distributed_dp(plan, layout.dimension)
    digest = plan_digest(
        plan,
        layout_digest=layout.digest,
        initial_weights_digest=vector_digest(vector),
        code_digests=code_digests(plan.task.references, workspace_of(plan_file)),
    )
    return InitialModel(layout, vector, schema, digest, carried)


@dataclass(frozen=True, slots=True)
class StatedWeights:
    """The initial weights that a plan names.

    Attributes:
        layout: where the tensors lie.
        vector: array (d,) in the layout's width.
        carried: what the run takes over beside them.
    """

    layout: Layout
    vector: NDArray[np.floating]
    carried: Carried = NOTHING


def stated_weights(plan: Plan, plan_file: Path | None) -> StatedWeights:
    """Return the initial weights that a plan names, from the files beside it, after comparing every digest.

    Args:
        plan: a plan with `training.initial`.
        plan_file: its file; None for a plan that was not read from one.

    Raises:
        DataError: a file cannot be read.
        PlanError: a file is missing, or holds something else than the plan names.
    """
    stated = plan.training.initial
    if stated is None or plan_file is None:
        raise PlanError(
            "training.initial names initial weights, and there is no file beside the plan that holds them",
            "read the plan from its file; or give the model: fedfair.simulate(..., initial_model=FILE)",
        )
    place = initial_model_file(plan_file)
    if not place.exists():
        raise PlanError(
            f"{place} is missing: the plan names initial weights {stated.weights}",
            f"bring the file that `fedfair plan freeze --from` wrote beside the plan; or {NOT_STATED}",
        )
    layout, vector, words = _words_of(place)
    return StatedWeights(layout, vector, _carried(stated, plan_file, vector, words))


def _carried(
    stated: InitialSection, plan_file: Path, vector: NDArray[np.floating], words: dict[str, str]
) -> Carried:
    """Return what comes with the weights of a file, after comparing every digest."""
    place, found = initial_model_file(plan_file), format_digest(vector_digest(vector))
    if found != stated.weights:
        raise PlanError(
            f"{place} holds initial weights {found}, the plan names {stated.weights}; one of them was changed "
            "after `fedfair plan freeze --from`",
            f"bring the file back that belongs to the plan; or the lead: {FREEZE_AGAIN}",
        )
    scaling = _stated_scaling(stated, words, place)
    state = None if stated.continues is None else _read_state(state_file(plan_file))
    return Carried(scaling, state)


def _stated_scaling(stated: InitialSection, words: dict[str, str], place: Path) -> FeatureScaling | None:
    try:
        scaling = parse_scaling(words.get(SCALING_KEY), None)
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(f"{place} has a feature scaling that cannot be read: {error}", FREEZE_AGAIN) from error
    if scaling is None and stated.scaling is None:
        return None
    found = "none" if scaling is None else format_digest(scaling_digest(scaling))
    if found != stated.scaling:
        raise PlanError(
            f"{place} holds the feature scaling {found}, the plan names {stated.scaling or 'none'}; one of them "
            "was changed after `fedfair plan freeze --from`",
            f"bring the file back that belongs to the plan; or the lead: {FREEZE_AGAIN}",
        )
    return scaling


def _read_state(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError as error:
        raise PlanError(
            f"{place} cannot be read: {error.strerror}; it is the state that the plan's run continues from",
            "bring the file that `fedfair plan extend` wrote beside the plan",
        ) from error


def check_initial_model(plan_file: Path, vector: NDArray[np.floating]) -> None:
    """Refuse a file beside the plan that holds other weights than this host makes; no file is no fault.

    Args:
        plan_file: the plan's file.
        vector: array (d,), what this host makes of the plan's seed.

    Raises:
        DataError: the file cannot be read.
        PlanError: the weights differ, or the file has an unknown format.
    """
    place = initial_model_file(plan_file)
    if not place.exists():
        return
    theirs, own = vector_digest(_words_of(place)[1]), vector_digest(vector)
    if theirs != own:
        raise PlanError(
            f"{place} holds other initial weights than the plan's seed gives here: {format_digest(theirs)}, here "
            f"{format_digest(own)}",
            "ask the lead to run `fedfair plan freeze` and to export the workspace again, or use the same torch",
        )


def _words_of(place: Path) -> tuple[Layout, NDArray[np.floating], dict[str, str]]:
    layout, vector, words = model_file.load(place)
    found = words.get("format", "(none)")
    if found != FORMAT or not {"source", "schema"} <= words.keys():
        raise PlanError(
            format_fault(found, FORMAT, str(place)),
            "run `fedfair plan freeze` with this version, or use the version of fedfair that wrote it",
        )
    return layout, vector, words


def _source(plan: Plan, plan_file: Path) -> bytes:
    """Return a digest over all that the model before round 1 is a function of."""
    training = plan.training
    made_of: dict[str, object] = {"task": stated(plan.task), "precision": training.precision}
    if training.initial is None or training.parameters is not None:
        made_of["seed"] = training.seed
    if training.initial is not None:
        made_of["initial"] = stated(training.initial)
    if training.parameters is not None:
        made_of["parameters"] = stated(training.parameters)
    code = code_digest(code_digests(plan.task.references, workspace_of(plan_file)))
    return hashlib.sha256(labelled_message(LABEL, [canonical_json(made_of), code])).digest()
