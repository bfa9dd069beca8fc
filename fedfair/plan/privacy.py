"""The plan's section on differential privacy: noise for every record, or for every collaborator.

Decides which keys exist and what excludes a promise before anything runs. What the noise protects, and what it is
worth, is `fedfair.privacy`'s business; how often a site's own budget allows it is the site's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from fedfair.plan.fields import Fault, PositiveFloat, Section
from fedfair.plan.losses import HuberLoss, PinballLoss, SquaredLoss
from fedfair.plan.sections import EvaluationSection, TrainingSection
from fedfair.plan.sources import CsvSource, section_of
from fedfair.plan.task import ResnetModel, TaskSection

PRIVATE_ALGORITHMS = ("fedsrcvar", "fedavg")
"""Whose rounds reveal nothing of a record but the noised steps."""

MIN_GHOST_CLIP = 0.05
"""Opacus multiplies the squared norms of what enters a layer and of what comes back. A square below 2^-149 is lost
and one above 2^128 refused, so that a gradient of up to sqrt(2^-149 2^128 d) = 6.9e-4 sqrt(d) may seem to be 0, of
a layer with d outputs: below this clip for d up to 5000."""


class SampleLevelSection(Section):
    """Differential privacy of every record, by noise in every local step (DP-SGD)."""

    noise_multiplier: PositiveFloat
    """noise of a local step, in units of what one record can change (sigma), above 0"""

    clip: PositiveFloat = 1.0
    """largest norm of one record's gradient that counts in full (C), above 0"""

    clipping: Literal["before_weighting", "joint"] = "before_weighting"
    """before_weighting (a record's gradient is clipped, then weighted), or joint (for comparison)"""

    threshold_scale: PositiveFloat = 1.0
    """weight of the threshold's gradient beside the model's in one noised step (kappa), above 0"""

    delta: float = Field(default=1e-5, gt=0, lt=1)
    """delta at which epsilon is stated, between 0 and 1"""

    gradients: Literal["auto", "hooks", "ghost"] = "auto"
    """hooks (one gradient for every record in memory), ghost (their norms only), or auto (neither where the model
    is linear or mlp, else hooks): equal results"""

    evaluation_noise_multiplier: PositiveFloat = 20.0
    """noise of an evaluation sum, in units of what one record can change, above 0"""

    standardisation_noise_multiplier: PositiveFloat = 20.0
    """noise of the standardisation sum, in units of what one record can change, above 0"""


class CollaboratorLevelSection(Section):
    """Differential privacy of every collaborator, by noise shares inside the masked sum."""

    noise_multiplier: PositiveFloat
    """noise of a training sum without any colluder's share, in units of what one collaborator can change (z),
    above 0"""

    clip: PositiveFloat
    """largest norm of one collaborator's change of model and threshold together, above 0; longer ones are
    shortened to it"""

    delta: float = Field(default=1e-5, gt=0, lt=1)
    """delta at which epsilon is stated, between 0 and 1"""


class PrivacySection(Section):
    """Differential privacy."""

    sample_level: SampleLevelSection | None = None
    """protects every record: {noise_multiplier: ..., clip: ...}; null for no noise"""

    collaborator_level: CollaboratorLevelSection | None = None
    """protects every collaborator: {noise_multiplier: ..., clip: ...}; null for no noise"""


def privacy_faults(
    privacy: PrivacySection, training: TrainingSection, task: TaskSection, evaluation: EvaluationSection
) -> Iterator[Fault]:
    """Yield what in a plan would make its promise of differential privacy false; places start from the plan."""
    asked = [name for name in type(privacy).model_fields if getattr(privacy, name) is not None]
    if training.control_variates and asked:
        yield Fault(
            ("training", "control_variates"),
            f"is true, but privacy.{asked[0]} does not cover a site's control variate, which carries what its "
            "records did in earlier rounds into later ones",
            f"set control_variates: false, or {asked[0]}: null",
        )
    parameters = training.parameters
    if parameters is not None and parameters.keep is not None and asked:
        yield Fault(
            ("training", "parameters", "keep"),
            f"is stated, but privacy.{asked[0]} does not cover what stays at a site, which carries what its "
            "records did in earlier rounds into later ones",
            f"remove keep, or set {asked[0]}: null",
        )
    if privacy.sample_level is not None:
        yield from _step_faults(privacy.sample_level, training)
        yield from _model_faults(task)
        yield from _range_faults(task)
        yield from _target_faults(task)
        yield from _filling_faults(task)
        yield from _evaluation_faults(evaluation)


def _step_faults(asked: SampleLevelSection, training: TrainingSection) -> Iterator[Fault]:
    if training.algorithm not in PRIVATE_ALGORITHMS:
        yield Fault(
            ("training", "algorithm"),
            f"{training.algorithm} reveals losses of the records, to which privacy.sample_level adds no noise",
            f"choose {' or '.join(PRIVATE_ALGORITHMS)}, or set sample_level: null",
        )
    if training.resample == "round" and training.local_steps > 1:
        yield Fault(
            ("training", "resample"),
            "is round, but privacy.sample_level counts on a batch of its own, drawn at random, for every step",
            "set resample: step",
        )
    if training.precision == "fp16":
        message = "is fp16, in which gradients overflow before privacy.sample_level can clip them"
        yield Fault(("training", "precision"), message, "set precision: bf16 or fp32")
    if training.precision == "bf16" and asked.gradients == "ghost":
        message = "is ghost, whose second pass would round the clipped gradients to the 8 bits of bf16"
        yield Fault(("privacy", "sample_level", "gradients"), message, "set gradients: hooks, or precision: fp32")
    if training.precision != "fp64" and asked.gradients == "ghost" and asked.clip < MIN_GHOST_CLIP:
        message = f"is {asked.clip:g}, and ghost multiplies squares, of which fp32 loses some that matter then"
        remedy = f"set gradients: hooks, or a clip of at least {MIN_GHOST_CLIP:g}"
        yield Fault(("privacy", "sample_level", "clip"), message, remedy)
    if training.compile:
        message = "is true, but a compiled model has no gradients of single records for privacy.sample_level"
        yield Fault(("training", "compile"), message, "set compile: false")


def _model_faults(task: TaskSection) -> Iterator[Fault]:
    if isinstance(task.model, ResnetModel) and task.model.norm == "batch":
        yield Fault(
            ("task", "model", "norm"),
            "is batch, which mixes the records of a batch, so that no record has a gradient of its own to clip",
            "set norm: group",
        )


def _evaluation_faults(evaluation: EvaluationSection) -> Iterator[Fault]:
    """Yield the evaluations that would let numbers of single records out without noise."""
    if evaluation.method == "exact":
        yield Fault(
            ("evaluation", "method"),
            "is exact, which finds the losses of single records; privacy.sample_level cannot add noise to that",
            "set method: histogram, whose sums carry noise",
        )
    if evaluation.site_means:
        yield Fault(
            ("evaluation", "site_means"),
            "is true, but privacy.sample_level adds no noise to the means of single sites",
            "set site_means: false",
        )
    if evaluation.scores:
        yield Fault(
            ("evaluation", "scores"),
            "is true, but privacy.sample_level adds no noise to histograms of scores",
            "set scores: false",
        )


def _filling_faults(task: TaskSection) -> Iterator[Fault]:
    """Yield the means that fill gaps: of a site's own records, so that one record would change all the others."""
    if task.standardize != "none":
        return
    message = "is none, which fills a gap with the mean of a site's records: each would change all others"
    section = section_of(task.data)
    if isinstance(task.data, CsvSource):
        table = task.data.csv
        if "mean" in (table.missing, *table.missing_of.values()):
            remedy = "set standardize: ranges, which fills in the middle of the range, or missing: zero"
            yield Fault(("task", "standardize"), message, remedy)
    elif section is not None and section.missing_number == "mean":
        yield Fault(("task", "standardize"), message, "set standardize: ranges, which fills in the middle")


def _target_faults(task: TaskSection) -> Iterator[Fault]:
    """Yield a target without a range: noise for its sum would have no scale."""
    loss = task.loss
    if task.standardize != "secure" or not isinstance(loss, SquaredLoss | HuberLoss | PinballLoss):
        return
    if loss.target_range is None:
        yield Fault(
            ("task", "loss", "target_range"),
            "is null, but privacy.sample_level adds noise to the sum of the targets in units of their range",
            "declare the [least, greatest] target, or set task.standardize: ranges",
        )


def _range_faults(task: TaskSection) -> Iterator[Fault]:
    """Yield the numeric columns without a range: noise for their sums would have no scale."""
    if task.standardize != "secure" or not task.has_numeric_columns:
        return
    place = ("task", "standardize")
    why = "privacy.sample_level adds noise to the sums of the numeric columns in units of their ranges"
    if isinstance(task.data, CsvSource) and not isinstance(task.data.csv.numeric, str):
        if task.missing_ranges:
            remedy = "declare [least, greatest] for each under task.data.csv.ranges, or set standardize: none"
            yield Fault(place, f"is secure, but {why}, and {', '.join(task.missing_ranges)} declare none", remedy)
    elif task.missing_ranges:
        remedy = "list the numeric columns of a csv with their ranges, or set standardize: none"
        yield Fault(place, f"is secure, but {why}, and these data declare none", remedy)
    else:
        remedy = "set standardize: ranges, which scales every record by itself and releases nothing"
        yield Fault(place, f"is secure, but {why}, which would be of no use here", remedy)
