"""A model in a file with everything that is needed to use it again, and a training run that only evaluates it.

Beside the tensors a file carries, as strings: the threshold, the rounds behind the model, the plan's digest, and
the scaling of the features that the model expects, without which its figures would be those of another model.
Decides these words; the format is `model_file.py`'s. No torch: the aggregator imports this module.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedfair.aggregation import model_file
from fedfair.aggregation.model_layout import Layout
from fedfair.aggregation.requests import FeatureScaling, GlobalModel
from fedfair.errors import DataError, PlanError
from fedfair.ids import RoundNumber
from fedfair.plan.derived import is_unevaluated, standardises
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.privacy import PrivacySection
from fedfair.plan.schema import Plan
from fedfair.run.training_run import TrainingRun

SCALING_KEY = "feature_scaling"


@dataclass(frozen=True, slots=True)
class SavedModel:
    """The content of a model file.

    Attributes:
        model: the vector, in its layout's width, and the threshold.
        round: training rounds that it has behind it.
        plan_digest: of the plan that it was trained by, "sha256:" and 64 hex digits; empty if not said.
        scaling: of the features that it expects; None where it takes them as they are.
    """

    model: GlobalModel
    round: RoundNumber
    plan_digest: str
    scaling: FeatureScaling | None


def model_words(
    model: GlobalModel, rounds: int, plan_digest: str, scaling: FeatureScaling | None
) -> dict[str, str]:
    """Return the strings that a model's file carries; `load_saved` reads them back exactly."""
    words = {"threshold": repr(model.threshold), "round": str(rounds), "plan_digest": plan_digest}
    if scaling is not None:
        columns = {"mean": scaling.mean.tolist(), "scale": scaling.scale.tolist()}
        words[SCALING_KEY] = json.dumps(columns, separators=(",", ":"))
    return words


def load_saved(path: Path, plan: Plan, layout: Layout, schema: FeatureSchema) -> SavedModel:
    """Return the model in a file, if it is one of this plan's shape.

    Args:
        path: the file.
        plan: the plan that it is to be evaluated by.
        layout: of the plan's model.
        schema: of the features.

    Raises:
        DataError: the file cannot be read, holds another model, or lacks the scaling that the plan asks for.
    """
    found, vector, words = model_file.load(path)
    if found.digest != layout.digest:
        raise DataError(
            f"{path} holds a model of {found.dimension} values in {len(found.entries)} tensors, not the plan's "
            f"{layout.dimension} in {len(layout.entries)}, or of other names",
            "give the model that this plan has trained, or the plan that has trained this model",
        )
    try:
        threshold, rounds = float(words["threshold"]), int(words["round"])
        scaling = _scaling(words.get(SCALING_KEY), len(schema.numeric))
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} does not say its threshold, its round or its scaling as fedfair writes them: {error}",
            "give a model that fedfair has saved",
        ) from error
    if not (math.isfinite(threshold) and threshold >= 0.0 and 0 <= rounds <= plan.training.rounds):
        raise DataError(f"{path} says threshold {threshold} and round {rounds} of {plan.training.rounds}")
    if scaling is None and standardises(plan, len(schema.numeric)):
        raise DataError(
            f"{path} does not say how its features were scaled, and the plan standardises them",
            "give a model that was saved after the standardisation; save/init.safetensors is from before it",
        )
    return SavedModel(GlobalModel(vector, threshold), RoundNumber(rounds), words.get("plan_digest", ""), scaling)


def _scaling(text: str | None, numeric: int) -> FeatureScaling | None:
    if text is None:
        return None
    columns = json.loads(text)
    mean, scale = (np.array(columns[key], np.float64) for key in ("mean", "scale"))
    sound = mean.shape == scale.shape == (numeric,) and np.isfinite(mean).all() and np.isfinite(scale).all()
    if not sound or not (scale > 0.0).all():
        raise ValueError(f"the scaling is not of {numeric} numeric columns, or not positive")
    return FeatureScaling(mean, scale)


def evaluation_plan(plan: Plan, rounds: int, *, exact: bool) -> Plan:
    """Return a plan by which nothing is trained any more: what is due is the evaluation of the output model.

    It is no plan that could be written down (its rounds may be 0), and never leaves this process.
    """
    training = plan.training.model_copy(update={"rounds": rounds, "output": "last", "threshold_init": "bound"})
    return with_method(plan, exact=exact).model_copy(update={"training": training})


def with_method(plan: Plan, *, exact: bool) -> Plan:
    """Return the plan with another way of evaluating the output model."""
    method = "exact" if exact else "histogram"
    return plan.model_copy(update={"evaluation": plan.evaluation.model_copy(update={"method": method})})


def without_noise(plan: Plan) -> Plan:
    """Return the plan without differential privacy, for sums that never leave one machine."""
    return plan.model_copy(update={"privacy": PrivacySection()})


def evaluation_run(
    plan: Plan, layout: Layout, schema: FeatureSchema, saved: SavedModel, *, exact: bool
) -> TrainingRun:
    """Return a training run that evaluates a saved model and then is finished.

    Args:
        plan: the plan.
        layout: of its model.
        schema: of the features.
        saved: the model.
        exact: whether an exact evaluation follows that of the histograms.

    Raises:
        PlanError: the plan protects whole collaborators, which its evaluation sums would not.
    """
    if is_unevaluated(plan):
        raise PlanError(
            "privacy.collaborator_level covers training sums, and no evaluation sum is made under this plan",
            "evaluate the saved model with `fedfair evaluate`, on data that the promise is not about",
        )
    training_run = TrainingRun(evaluation_plan(plan, saved.round, exact=exact), layout, schema, saved.model.vector)
    training_run.resume_at(saved.model.threshold, saved.round, saved.scaling)
    return training_run
