"""A model in a file with everything that is needed to use it again, and a training run that only evaluates it.

Beside the tensors a file carries, as strings: the threshold, which of the run's models it is and the rounds behind
it, the plan's digest, the scaling of the features that the model expects, without which its figures would be those
of another model, the calibration of its scores, the sets of its answers, and the description of what it takes and
returns. Aggregator, sites and simulations write the same file. Decides these words and the digest by which a saved
model is approved; the format is `model_file.py`'s, the description `model_description.py`'s. No torch: the
aggregator imports this module.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fedfair.aggregation import model_file
from fedfair.aggregation.calibration import NOT_SAID, Calibration, Uncalibrated
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import FeatureScaling, GlobalModel, vector_sha256
from fedfair.aggregation.round_subject import scaling_digest
from fedfair.aggregation.target_scaling import scaled_columns
from fedfair.conformal.prediction_sets import NOTHING_SAID, NoSets, PredictionSets, parse_sets, set_fields
from fedfair.errors import DataError, PlanError
from fedfair.ids import RoundNumber
from fedfair.plan.derived import is_unevaluated, keeps_parameters, needs_every_site, standardises, with_measure
from fedfair.plan.digest import format_digest, parse_digest
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.privacy import PrivacySection
from fedfair.plan.schema import Plan
from fedfair.run.answer_terms import AnswerTerms
from fedfair.run.calibration_text import calibration_fields, parse_calibration
from fedfair.run.model_description import (
    ModelDescription,
    NumberColumn,
    describe_model,
    difference,
    read_description,
)
from fedfair.run.scaling_text import SCALING_KEY, parse_scaling, scaling_text
from fedfair.run.training_run import TrainingRun
from fedfair.run.which_model import KINDS, WhichModel
from fedfair.signed_message import labelled_message
from fedfair.version import __version__

KIND_KEY, ROUNDS_KEY = "which_model", "rounds"
FINE_TUNED_KEY = "fine_tuned_at"
INITIAL_WEIGHTS_KEY = "initial_weights_digest"
IDENTITY_LABEL = "fedfair/saved-model/v1"
SITES_KEY = "sites_digest"
SITES_LABEL = "fedfair/sites/v1"
ANOTHER_MODEL = "give the model that this plan has trained, or the plan that has trained this model"


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The content of a model file.

    Attributes:
        model: the vector, in its layout's width, and the threshold.
        round: training rounds that it has behind it.
        plan_digest: of the plan that it was trained by, "sha256:" and 64 hex digits; empty if not said.
        scaling: of the features that it expects; None where it takes them as they are.
        which: which of the run's models it is; None where unstated.
        calibration: what makes probabilities of its scores, or why nothing does.
        sets: how sets are made of its answers, or why none are.
    """

    model: GlobalModel
    round: RoundNumber
    plan_digest: str
    scaling: FeatureScaling | None
    which: WhichModel | None = None
    calibration: Calibration | Uncalibrated = NOT_SAID
    sets: PredictionSets | NoSets = NOTHING_SAID


@dataclass(frozen=True, slots=True)
class ModelOrigin:
    """The words that all model files of one run share.

    Attributes:
        federation: the name of the plan's federation.
        plan_digest: "sha256:" and 64 hex digits.
        description: of what the model takes and returns.
        fine_tuned_at: the site that has fine-tuned it on its own records; empty for a model of the federation.
        initial_weights: 32 bytes, the digest of the model before round 1; None where the file does not say it.
        sites: 32 bytes, by `sites_digest`, of those that have evaluated it, all of them in every evaluation; None
            where the file does not say it, or where an evaluation may have been without some of them.
    """

    federation: str
    plan_digest: str
    description: ModelDescription
    fine_tuned_at: str = ""
    initial_weights: bytes | None = None
    sites: bytes | None = None

    @classmethod
    def of_plan(
        cls, plan: Plan, plan_digest: str, schema: FeatureSchema, initial_weights: bytes | None = None
    ) -> ModelOrigin:
        """Return the origin of the plan's models; the schema is of its features."""
        description = describe_model(plan, schema)
        sites = sites_digest(plan.federation.collaborators) if needs_every_site(plan) else None
        return cls(plan.federation.name, plan_digest, description, initial_weights=initial_weights, sites=sites)


@dataclass(frozen=True, slots=True)
class DescribedModel:
    """A model file, read without its plan.

    Attributes:
        layout: where its tensors lie.
        saved: the model.
        origin: what it says of its plan, its columns and its label.
    """

    layout: Layout
    saved: TrainedModel
    origin: ModelOrigin


RunModel: TypeAlias = Literal["initial", "present", "best", "trained"]
"""A model that a run has now: the one before round 1, the global model (at the end the output model), the best one
right after its evaluation, or the end of training."""


def saved_of(training_run: TrainingRun, which: RunModel, plan_digest: str) -> TrainedModel:
    """Return a model that a run has now, as its file has it.

    Args:
        training_run: the run.
        which: which model.
        plan_digest: "sha256:" and 64 hex digits.
    """
    rounds, done = training_run.rounds_total, training_run.rounds_done
    said: WhichModel | None
    match which:
        case "initial":
            model, said = training_run.model, WhichModel("initial", 0, rounds)
        case "best":
            model, said = training_run.best, WhichModel("best", int(done), rounds)
        case "trained":
            model, said = training_run.trained, WhichModel("last", int(done), rounds)
        case "present":
            model, said = training_run.model, training_run.which
    answers, rounds_done = training_run.answers_of(model), done if said is None else RoundNumber(said.round)
    scaling = training_run.scaling
    return TrainedModel(model, rounds_done, plan_digest, scaling, said, answers.calibration, answers.sets)


def save_model(path: Path, layout: Layout, saved: TrainedModel, origin: ModelOrigin) -> None:
    """Write a model's file in one step; `read_saved` reads the same back, bit for bit.

    Args:
        path: the file; its folder exists.
        layout: where the tensors lie.
        saved: the model; its plan is the origin's.
        origin: of the run.

    Raises:
        LocalProtocolError: the vector does not fit the layout.
        DataError: the file cannot be written.
    """
    model_file.save(path, layout, saved.model.vector, model_words(saved, origin))


def model_words(saved: TrainedModel, origin: ModelOrigin) -> dict[str, str]:
    """Return the strings that a model's file carries; `read_saved` reads them back exactly."""
    words = {
        "threshold": repr(saved.model.threshold),
        "round": str(int(saved.round)),
        "plan_digest": origin.plan_digest,
        "federation": origin.federation,
        "fedfair": __version__,
        **origin.description.words(),
    }
    if origin.fine_tuned_at:
        words[FINE_TUNED_KEY] = origin.fine_tuned_at
    if origin.initial_weights is not None:
        words[INITIAL_WEIGHTS_KEY] = format_digest(origin.initial_weights)
    if origin.sites is not None:
        words[SITES_KEY] = format_digest(origin.sites)
    if saved.which is not None:
        words |= {KIND_KEY: saved.which.kind, ROUNDS_KEY: str(saved.which.rounds)}
    if saved.scaling is not None:
        words[SCALING_KEY] = scaling_text(saved.scaling)
    return words | calibration_fields(saved.calibration) | set_fields(saved.sets)


def read_saved(path: Path) -> DescribedModel:
    """Return the model in a file and what the file says of it; no plan is needed.

    Raises:
        DataError: the file cannot be read, was altered, or lacks what fedfair writes.
    """
    layout, vector, words = model_file.load(path)
    try:
        description = read_description(words)
        threshold, rounds = float(words["threshold"]), int(words["round"])
        scaling = parse_scaling(words.get(SCALING_KEY), _numeric_columns(description))
        which = _which(words, rounds)
        stated = words.get(INITIAL_WEIGHTS_KEY)
        weights = None if stated is None else parse_digest(stated)
        sites = None if SITES_KEY not in words else parse_digest(words[SITES_KEY])
        labels = len(description.label.labels)
        calibration = parse_calibration(words, labels)
        sets = parse_sets(words, description.record_loss, 1 if labels == 2 else labels)
    except (KeyError, ValueError, TypeError, PlanError) as error:
        raise DataError(
            f"{path} does not say its threshold, its round, its scaling or its columns as fedfair writes them: "
            f"{error}",
            "give a model that fedfair has saved",
        ) from error
    if not (math.isfinite(threshold) and threshold >= 0.0 and rounds >= 0):
        raise DataError(f"{path} says threshold {threshold} and round {rounds}")
    digest = words.get("plan_digest", "")
    model = GlobalModel(vector, threshold)
    saved = TrainedModel(model, RoundNumber(rounds), digest, scaling, which, calibration, sets)
    tuned = words.get(FINE_TUNED_KEY, "")
    origin = ModelOrigin(words.get("federation", ""), digest, description, tuned, weights, sites)
    return DescribedModel(layout, saved, origin)


def load_saved(path: Path, plan: Plan, layout: Layout, schema: FeatureSchema) -> TrainedModel:
    """Return the model in a file, if it takes and returns what this plan's model does.

    Args:
        path: the file.
        plan: the plan that it is to be evaluated by.
        layout: of the plan's model.
        schema: of the features.

    Raises:
        DataError: the file cannot be read, holds another model, or lacks the scaling that the plan asks for. The
            message names the first difference, a column before all else.
    """
    found = read_saved(path)
    saved, numeric = found.saved, len(schema.numeric)
    columns = scaled_columns(plan.task.loss, numeric)
    other = difference(found.origin.description, describe_model(plan, schema))
    if other:
        raise DataError(f"{path} holds no model of this plan: {other}", ANOTHER_MODEL)
    if found.layout.digest != layout.digest:
        raise DataError(
            f"{path} holds a model of {found.layout.dimension} values in {len(found.layout.entries)} tensors, not "
            f"the plan's {layout.dimension} in {len(layout.entries)}, or of other names",
            ANOTHER_MODEL,
        )
    if saved.round > plan.training.rounds:
        raise DataError(
            f"{path} says threshold {saved.model.threshold} and round {saved.round} of {plan.training.rounds}"
        )
    if saved.scaling is None and standardises(plan, numeric):
        raise DataError(
            f"{path} does not say how its features were scaled, and the plan standardises them",
            "give a model that was saved after the standardisation; save/init.safetensors is from before it",
        )
    if saved.scaling is not None and len(saved.scaling.mean) != columns:
        raise DataError(f"{path} scales {len(saved.scaling.mean)} columns, the plan has {columns} of numbers")
    return saved


def check_trained_by(saved: TrainedModel, path: Path, digest: str, remedy: str) -> None:
    """Refuse a model that another plan has trained.

    Args:
        saved: the model.
        path: its file.
        digest: of this plan, "sha256:" and 64 hex digits.
        remedy: what to do about it.

    Raises:
        DataError: it says another plan, or none.
    """
    if saved.plan_digest != digest:
        words = f"{path} was trained by the plan {saved.plan_digest or '(not said)'}, this plan is {digest}"
        raise DataError(words, remedy)


def model_identity(layout: Layout, model: GlobalModel, scaling: FeatureScaling | None) -> bytes:
    """Return 32 bytes by which a saved model is known and approved; no other model has them.

    They cover what its figures depend on: the layout, every value, the threshold and the scaling of the features.
    """
    threshold = struct.pack("<d", model.threshold)
    fields = [layout.digest, vector_sha256(model.vector), threshold, scaling_digest(scaling)]
    return hashlib.sha256(labelled_message(IDENTITY_LABEL, fields)).digest()


def sites_digest(names: Iterable[str]) -> bytes:
    """Return 32 bytes that stand for a set of sites, whatever their order."""
    message = labelled_message(SITES_LABEL, [name.encode() for name in sorted(names)])
    return hashlib.sha256(message).digest()


def _which(words: Mapping[str, str], rounds_done: int) -> WhichModel | None:
    """Return which model a file says it holds; None of a file that does not say it."""
    stated = words.get(KIND_KEY)
    if stated is None:
        return None
    kind = next((known for known in KINDS if known == stated), None)
    if kind is None:
        raise ValueError(f"{KIND_KEY} is {stated!r}, not one of {', '.join(KINDS)}")
    return WhichModel(kind, rounds_done, int(words[ROUNDS_KEY]))


def _numeric_columns(description: ModelDescription) -> int | None:
    """Return how many columns a scaling has, the target included; None where the description cannot tell."""
    numbers = [column for column in description.columns if isinstance(column, NumberColumn)]
    unknown = any(column.name is None for column in numbers)
    return None if unknown else scaled_columns(description.record_loss, len(numbers))


def evaluation_plan(plan: Plan, rounds: int, *, exact: bool) -> Plan:
    """Return a plan by which nothing is trained any more: what is due is the evaluation of the output model.

    It is no plan that could be written down (its rounds may be 0), and never leaves this process.
    """
    training = plan.training.model_copy(
        update={"rounds": rounds, "output": "last", "threshold_init": "bound", "initial": None}
    )
    evaluating = with_method(plan, exact=exact)
    # References belong to a run, and so do those that come from an earlier one.
    stated = evaluating.objective.reference
    reference = None if stated is None else stated.model_copy(update={"run": None})
    objective = evaluating.objective.model_copy(update={"reference": reference})
    return evaluating.model_copy(update={"training": training, "objective": objective})


def with_method(plan: Plan, *, exact: bool) -> Plan:
    """Return the plan with another way of evaluating the output model; what is measured stays."""
    method = "exact" if exact else "histogram"
    evaluation = plan.evaluation.model_copy(update={"method": method, "slices": None, "release_audit": None})
    return with_measure(plan).model_copy(update={"evaluation": evaluation})


def without_noise(plan: Plan) -> Plan:
    """Return the plan without differential privacy, for sums that never leave one machine; the measure stays."""
    return with_measure(plan).model_copy(update={"privacy": PrivacySection()})


def evaluation_run(
    plan: Plan, layout: Layout, schema: FeatureSchema, saved: TrainedModel, *, exact: bool, has_kept: bool = False
) -> TrainingRun:
    """Return a training run that evaluates a saved model and then is finished.

    Args:
        plan: the plan.
        layout: of its model.
        schema: of the features.
        saved: the model.
        exact: whether an exact evaluation follows that of the histograms.
        has_kept: whether the part of the model that sites keep is at hand.

    Raises:
        PlanError: the plan protects whole collaborators, which its evaluation sums would not; or sites keep a part
            of the model, which is not at hand.
    """
    if keeps_parameters(plan) and not has_kept:
        raise PlanError(
            "every site keeps a part of this plan's model, and a saved model is without: all sites cannot "
            "evaluate it on demand",
            "evaluate it at each site, whose own part lies beside its copy of the model; the run itself has "
            "evaluated it",
        )
    if is_unevaluated(plan):
        raise PlanError(
            "no evaluation sum is made under this plan (privacy.collaborator_level, or statistics)",
            "evaluate the saved model with `fedfair evaluate`, on data that the promise is not about",
        )
    training_run = TrainingRun(evaluation_plan(plan, saved.round, exact=exact), layout, schema, saved.model.vector)
    answers = AnswerTerms(saved.calibration, saved.sets)
    training_run.resume_at(saved.model.threshold, saved.round, saved.scaling, saved.which, answers)
    return training_run
