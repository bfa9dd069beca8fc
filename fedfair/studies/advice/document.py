"""The advice on a plan: the one model of the JSON contract `fedfair/advice/1`.

Losses are in nats. Figures of held-out records come from cross-validation: every record is held out once, from the
model of one fold that it had no part in. An error is a standard error over records.
"""

from __future__ import annotations

import json
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from fedfair.plan.sections import Measure

FORMAT = "fedfair/advice/1"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

_FROZEN = ConfigDict(frozen=True, strict=True)

CriticalMethod: TypeAlias = Literal["linear-program", "hinge-bounds", "training", "none"]


class AdvisedGroup(BaseModel):
    """The risk of the worst group of one size under one model."""

    model_config = _FROZEN

    size: float = Field(description="share of the records, above 0 to 1")
    worst: float = Field(description="mean loss of the worst group of this size")
    error: float = Field(description="its standard error over records")


class AdvisedFigures(BaseModel):
    """The figures of one model over training records or over held-out ones."""

    model_config = _FROZEN

    mean: float = Field(description="overall mean loss")
    error: float = Field(description="its standard error over records")
    accuracy: float | None = Field(description="share classified correctly, 0 to 1; null without classes")
    groups: tuple[AdvisedGroup, ...] = Field(description="the worst groups, by increasing size")

    def group(self, size: float) -> AdvisedGroup:
        """Return the risk at one of the sizes."""
        return next(group for group in self.groups if group.size == size)


class AdvisedModel(BaseModel):
    """The models of one group size and one tradeoff, one from each fold, taken together."""

    model_config = _FROZEN

    worst_group_size: float = Field(description="rho that it was trained for; 1 for plain average training")
    tradeoff: float = Field(description="epsilon that it was trained with; 1 for plain average training")
    train: AdvisedFigures = Field(description="over the records that each was trained on, mean of the folds")
    held_out: AdvisedFigures = Field(description="over the records that each was not trained on")
    worst_gain: float = Field(description="held out: its worst group's loss below that of plain training")
    worst_gain_error: float = Field(description="standard error of that difference, record by record")
    mean_cost: float = Field(description="held out: the overall mean loss above that of plain training")
    mean_cost_error: float = Field(description="standard error of that difference, record by record")


class FamilyLimits(BaseModel):
    """The critical group size of the family of models: the smallest that some model of it serves above guessing.

    Below `lowest` no model of the family serves the worst group of these training records better than guessing.
    """

    model_config = _FROZEN

    lowest: float | None = Field(description="no model beats guessing at smaller sizes; null where not known")
    highest: float | None = Field(description="some model beats guessing at larger sizes; null where none did")
    method: CriticalMethod = Field(
        description="linear-program, hinge-bounds (its dual), training, or none where it was not looked for"
    )


class TriedSetting(BaseModel):
    """One setting of the plan with the held-out figures that the plan's own training reaches by it."""

    model_config = _FROZEN

    measure: Measure = Field(description="objective.measure")
    worst_group_size: float = Field(description="objective.worst_group_size; 1 for plain average training")
    tradeoff: float = Field(description="objective.tradeoff; 1 for plain average training")
    learning_rate: float | None = Field(description="the rate that replaces the plan's; null for the plan's own")
    held_out: AdvisedFigures = Field(
        description="over the records that each was not trained on; errors cover what differs between folds too"
    )
    train: AdvisedFigures = Field(description="over the records that each was trained on, mean of the folds")
    mean_cost: float = Field(description="held out: the mean loss above that of plain training")
    mean_cost_error: float = Field(description="standard error of that difference, record by record")
    worst_gain: float = Field(description="held out: its worst group's loss below that of plain training")
    worst_gain_error: float = Field(description="standard error of that difference, record by record")
    base_gain: float | None = Field(
        description="held out: the mean loss below the base rate's; null where that is unknown"
    )
    base_gain_error: float | None = Field(description="standard error of that difference, record by record")
    untrained: int = Field(description="folds in which the untrained model was returned, as none was better")


class AdviceTrials(BaseModel):
    """Settings of the plan, each tried by the plan's own training: its rounds, its rates, its returned model."""

    model_config = _FROZEN

    rounds: int = Field(description="training rounds of each model")
    folds: int = Field(description="parts of the records that were held out, one after the other")
    parts: int = Field(description="parts of equal size into which the records were divided")
    records: int = Field(description="training and validation records that were used; never test records")
    base_rate: float | None = Field(
        description="held-out mean loss of the constant that knows the training answers, or of the uniform guess "
        "where that is lower; null where unknown"
    )
    tried: tuple[TriedSetting, ...] = Field(description="every setting, plain average training first")
    chosen: int | None = Field(description="place of the recommended one among them; null where none is")


class Recommendation(BaseModel):
    """The settings of the objective to write into the plan."""

    model_config = _FROZEN

    worst_group_size: float = Field(description="objective.worst_group_size")
    tradeoff: float = Field(description="objective.tradeoff; 1 is plain average training")
    kind: Literal["protect", "plain"] = Field(description="protect, or plain where protection gains nothing")
    sure: bool = Field(description="whether it serves that worst group above guessing by two standard errors")
    measure: Measure = Field(default="loss", description="objective.measure")
    learning_rate: float | None = Field(default=None, description="a rate in place of the plan's; null to keep it")


class AdviceDocument(BaseModel):
    """Advice on the group size and the tradeoff of a plan."""

    model_config = _FROZEN

    format: str = Field(description="the name of this contract", json_schema_extra={"const": FORMAT})
    federation: str = Field(description="name of the plan's federation")
    model: str = Field(description="the family of models, in words")
    fitted: Literal["solver", "training", "trials"] = Field(
        description="how the curves were made: solver (the optimum of a linear model), training (simulated rounds "
        "of the plan), or trials (there are none: only the trials were made)"
    )
    rounds: int | None = Field(description="training rounds of each model; null for a solver")
    folds: int = Field(description="parts of the records, each held out once")
    records: int = Field(description="training and validation records that were used; never test records")
    records_available: int = Field(description="training and validation records that there are")
    classes: int = Field(description="number of classes")
    guess: float | None = Field(description="loss of the uniform guess, log(classes); null without a meaning")
    majority: float | None = Field(description="share of the most frequent class; null without classes")
    plan_size: float = Field(description="objective.worst_group_size of the plan")
    plan_tradeoff: float = Field(description="objective.tradeoff of the plan")
    plan_measure: Measure = Field(default="loss", description="objective.measure of the plan")
    sizes: tuple[float, ...] = Field(description="group sizes of the figures, increasing")
    plain: AdvisedModel = Field(description="plain average training")
    models: tuple[AdvisedModel, ...] = Field(description="every other model, by size, then by tradeoff")
    family: FamilyLimits = Field(description="the critical group size over training records")
    served_from: float | None = Field(
        description="smallest size whose held-out worst group plain training, or a model for this size, serves "
        "better than guessing; null for none"
    )
    surely_served_from: float | None = Field(description="the same by two standard errors; null for none")
    recommendation: Recommendation | None = Field(description="null where nothing beats guessing")
    by_loss: Recommendation | None = Field(
        default=None, description="beside trials: what the curves recommend where the loss is measured"
    )
    trials: AdviceTrials | None = Field(default=None, description="null where none were made")
    task_digest: str | None = Field(
        default=None, description="of the plan's task, wherever its records are: sha256: and 64 hex digits"
    )
    sentences: tuple[str, ...] = Field(description="the advice in words; the first one is the recommendation")
    notes: tuple[str, ...] = Field(description="what the figures do not cover, in words")
    seconds: float = Field(description="time that it took")


def to_text(advice: AdviceDocument) -> str:
    """Return the content of `advice.json`."""
    return json.dumps(advice.model_dump(mode="json"), indent=2) + "\n"


def advice_schema() -> dict[str, JsonValue]:
    """Return the JSON Schema (draft 2020-12) of `fedfair/advice/1`; a newer version may write more keys."""
    shape: TypeAdapter[AdviceDocument] = TypeAdapter(AdviceDocument)
    return {
        **shape.json_schema(),
        "$schema": DIALECT,
        "title": FORMAT,
        "description": "Advice of fedfair on the group size and the tradeoff of a plan; losses are in nats.",
    }
