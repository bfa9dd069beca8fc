"""The references of a run as a file, so that a later run judges by them and trains none.

    save/references.safetensors          of a finished run, at the aggregator, at every site and of a simulation
    plan/plan.references.safetensors     beside a plan that names their digest, `objective.reference.run`

The lead copies the one to the other, and it travels with the plan as initial weights do. The digest covers the
best references, their shape, their temperature, the scaling of the features that they take, how far they came, and
the seed by which every site dealt its records. So a plan that names it deals the same records to the same folds.

Which records those were, only a site knows: its own copy, and that of a simulation, has a digest of them too.
No torch: the aggregator imports this module.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedfair.aggregation import model_file
from fedfair.aggregation.model_layout import Layout, LayoutEntry
from fedfair.aggregation.reference import TEMPERATURES, References, ReferenceShape, reference_shape
from fedfair.aggregation.requests import FeatureScaling, vector_sha256
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.aggregation.target_scaling import scaled_columns
from fedfair.errors import DataError, PlanError
from fedfair.file_formats import format_fault
from fedfair.plan.derived import given_references, reference_of, standardises
from fedfair.plan.digest import format_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.schema import Plan
from fedfair.run.carried import Carried
from fedfair.run.scaling_text import SCALING_KEY, parse_scaling, scaling_text
from fedfair.signed_message import labelled_message

FORMAT = "fedfair/references/1"
FILE = "references.safetensors"
SUFFIX = ".references.safetensors"

_TENSOR = "references"
TRAIN_ANEW = "or remove objective.reference.run, and the run trains its own"


class _About(BaseModel):
    """What a file says of its references beside their numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    widths: tuple[int, ...] = Field(min_length=2)
    folds: int = Field(ge=2)
    loss: str
    seed: int = Field(ge=0)
    sums: int = Field(ge=1)
    best_at: int = Field(ge=0)
    best_loss: float = Field(ge=0, allow_inf_nan=False)
    temperature: int = Field(ge=0, lt=len(TEMPERATURES))


@dataclass(frozen=True, slots=True)
class KeptReferences:
    """References that a run has trained, or has taken from an earlier one.

    Attributes:
        references: of which only the best are kept.
        shape: of them.
        loss: the name of the loss that their outputs are of.
        seed: of the plan, by which records were dealt to folds.
        scaling: of the features that they take; None where they take them as they are.
        trained_on: a digest of its training records by site, as far as its keeper knows them; no part of `digest`.
    """

    references: References
    shape: ReferenceShape
    loss: str
    seed: int
    scaling: FeatureScaling | None
    trained_on: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Return what a plan names: "sha256:" and 64 hex digits."""
        found, shape = self.references, self.shape
        fields = [
            vector_sha256(found.best),
            struct.pack("<QQdQ", found.sums, found.best_at, found.best_loss, found.temperature),
            struct.pack(f"<QQ{len(shape.widths)}Q", self.seed, shape.folds, *shape.widths),
            self.loss.encode(),
            scaling_digest(self.scaling),
        ]
        return format_digest(hashlib.sha256(labelled_message("fedfair/references-of-run/1", fields)).digest())


def kept_references(
    plan: Plan, schema: FeatureSchema, held: References | None, scaling: FeatureScaling | None
) -> KeptReferences | None:
    """Return the references that judge in a run; None where it has none, or they are not trained yet."""
    if held is None or not held.are_done(reference_of(plan)):
        return None
    about = reference_shape(plan, schema), plan.task.loss.name, plan.training.seed
    return KeptReferences(held, *about, scaling, {})


def write_references(path: Path, kept: KeptReferences) -> None:
    """Write references, replacing the file in one step.

    Raises:
        DataError: the file cannot be written.
    """
    held, shape = kept.references, kept.shape
    about = _About(
        widths=shape.widths,
        folds=shape.folds,
        loss=kept.loss,
        seed=kept.seed,
        sums=held.sums,
        best_at=held.best_at,
        best_loss=held.best_loss,
        temperature=held.temperature,
    )
    words = {"format": FORMAT, "about": about.model_dump_json(), "trained_on": json.dumps(dict(kept.trained_on))}
    if kept.scaling is not None:
        words[SCALING_KEY] = scaling_text(kept.scaling)
    layout = Layout((LayoutEntry(_TENSOR, (shape.folds, shape.dimension), True),), np.dtype(np.float64))
    model_file.save(path, layout, held.best, words)


def read_references(path: Path) -> KeptReferences:
    """Return the references of a file.

    Raises:
        DataError: it is missing or damaged, or holds no references.
    """
    _, vector, words = model_file.load(path)
    if words.get("format") != FORMAT:
        fault = format_fault(words.get("format", "(none)"), FORMAT, str(path))
        raise DataError(fault, f"give the file save/{FILE} of a finished run with measure: excess")
    try:
        about = _About.model_validate_json(words["about"])
        scaling = parse_scaling(words.get(SCALING_KEY), None)
        trained_on = {str(name): str(digest) for name, digest in json.loads(words["trained_on"]).items()}
        return _made(about, vector, scaling, trained_on)
    except (ValidationError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} holds no references that can be read: {error}", "copy the file again from where it was made"
        ) from error


def _made(
    about: _About, vector: NDArray[np.floating], scaling: FeatureScaling | None, trained_on: Mapping[str, str]
) -> KeptReferences:
    shape = ReferenceShape(about.widths, about.folds)
    if vector.dtype != np.float64 or vector.shape != (shape.folds * shape.dimension,):
        raise ValueError("its numbers are not of the shape that it states")
    told = about.sums, about.best_at, about.best_loss, about.temperature
    held = References(np.array(vector), np.array(vector), *told)
    return KeptReferences(held, shape, about.loss, about.seed, scaling, trained_on)


# ------------------------------------------------------------------ beside a plan


def references_beside(plan: Plan) -> Path | None:
    """Return where the references are that a plan takes from an earlier run; None for a plan without a file."""
    return None if plan.file is None else plan.file.with_suffix(SUFFIX)


def stated_references(plan: Plan, schema: FeatureSchema | None, place: Path | None) -> KeptReferences:
    """Return the references that a plan names, after comparing all that the plan says of them.

    Args:
        plan: a plan with `objective.reference.run`.
        schema: of its features; None where it is not known yet.
        place: the file; None for a plan that was not read from a file.

    Raises:
        DataError: the file cannot be read.
        PlanError: it is missing, or holds other references than the plan names, or none that fit the plan.
    """
    named = given_references(plan)
    if place is None or not place.exists():
        raise PlanError(
            f"{place or 'a file of references'} is missing: the plan takes the references {named} of an earlier "
            "run (objective.reference.run)",
            f"copy save/{FILE} of that run there, or call simulate(..., references=FILE); {TRAIN_ANEW}",
        )
    kept = read_references(place)
    if kept.digest != named:
        raise PlanError(
            f"{place} holds the references {kept.digest}, the plan names {named} (objective.reference.run)",
            "bring the file of the run whose result states this digest under references",
        )
    for fault, remedy in () if schema is None else _misfits(plan, schema, kept):
        raise PlanError(f"{place} {fault}", f"{remedy}; {TRAIN_ANEW}")
    return kept


def _misfits(plan: Plan, schema: FeatureSchema, kept: KeptReferences) -> tuple[tuple[str, str], ...]:
    """Return in what references differ from those that a plan could have trained, with what would mend it."""
    wanted, found = reference_shape(plan, schema), kept.shape
    columns = scaled_columns(plan.task.loss, len(schema.numeric)) if standardises(plan, len(schema.numeric)) else 0
    scaled = 0 if kept.scaling is None else len(kept.scaling.mean)
    inner = list(found.widths[1:-1])
    ends = (found.widths[0], found.widths[-1])
    rows = (
        (kept.loss, plan.task.loss.name, "is of the loss", "task.loss is", f"set task.loss: {kept.loss}"),
        (
            ends,
            (wanted.widths[0], wanted.widths[-1]),
            "has references of (features, outputs)",
            "the plan's records have",
            "give records with the columns and classes of that run",
        ),
        (
            inner,
            list(wanted.widths[1:-1]),
            "has references with hidden layers of",
            "objective.reference.hidden is",
            f"set objective.reference.hidden: {inner}",
        ),
        (
            found.folds,
            wanted.folds,
            "has references whose number of folds is",
            "objective.reference.folds is",
            f"set objective.reference.folds: {found.folds}",
        ),
        (
            kept.seed,
            plan.training.seed,
            "has references whose records were dealt to folds by the seed",
            "training.seed is",
            f"set training.seed: {kept.seed}, so that none judges a record that it has seen",
        ),
        (
            scaled,
            columns,
            "has references for so many standardised columns:",
            "the plan standardises",
            "set task.standardize as in that run",
        ),
    )
    return tuple(
        (f"{says} {theirs}, and {own_says} {own}", remedy)
        for theirs, own, says, own_says, remedy in rows
        if theirs != own
    )


def with_references(plan: Plan, schema: FeatureSchema, place: Path | None, carried: Carried) -> Carried:
    """Return what a run takes over, with the references that its plan names and their scaling.

    Raises:
        FedfairError: as `stated_references`; or the weights come with another scaling.
    """
    if given_references(plan) is None:
        return carried
    kept = stated_references(plan, schema, place)
    if carried.scaling is not None and scaling_digest(carried.scaling) != scaling_digest(kept.scaling):
        raise PlanError(
            f"{place} has references for columns in another scaling than that of training.initial",
            f"begin with a model of the run that trained them; {TRAIN_ANEW}",
        )
    return replace(carried, scaling=kept.scaling, references=kept.references)


def own_references(runs: Path, digest: str) -> KeptReferences | None:
    """Return the references with a digest among a site's own copies of runs; None where there are none."""
    for path in sorted(runs.glob(f"*/save/{FILE}")):
        try:
            kept = read_references(path)
        except DataError:
            # What cannot be read is no copy of them.
            continue
        if kept.digest == digest:
            return kept
    return None
