"""Refuses plans whose promise of differential privacy to whole collaborators would be false.

The promise is about everything that leaves a site, and a sum over ten sites has room for little noise. It covers
the training sums, and every other kind is refused: a histogram of ten sites' losses under noise for one site would
tell nothing. What the noise is worth is `fedfair.privacy`'s business.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.fields import Fault
from fedfair.plan.losses import predicts_number
from fedfair.plan.privacy import PRIVATE_ALGORITHMS, PrivacySection
from fedfair.plan.sections import EvaluationSection, SecureAggregationSection, TrainingSection
from fedfair.plan.task import TaskSection

_WHY = "privacy.collaborator_level"


def collaborator_level_faults(
    privacy: PrivacySection,
    training: TrainingSection,
    task: TaskSection,
    evaluation: EvaluationSection,
    secure_aggregation: SecureAggregationSection,
) -> Iterator[Fault]:
    """Yield what excludes a promise to whole collaborators; nothing for a plan that makes none."""
    if privacy.collaborator_level is None:
        return
    if privacy.sample_level is not None:
        message = "cannot be combined with privacy.sample_level: this version accounts for one of them"
        yield Fault(("privacy", "collaborator_level"), message, "set one of the two to null")
    yield from _training_faults(training)
    yield from _sum_faults(secure_aggregation)
    yield from _evaluation_faults(evaluation, training)
    if task.standardize == "secure" and (task.has_numeric_columns or predicts_number(task.loss)):
        yield Fault(
            ("task", "standardize"),
            f"is secure, whose sum of columns carries no noise of {_WHY}",
            "set standardize: ranges, which scales every column by its declared range and releases nothing",
        )


def _training_faults(training: TrainingSection) -> Iterator[Fault]:
    if training.algorithm not in PRIVATE_ALGORITHMS:
        yield Fault(
            ("training", "algorithm"),
            f"{training.algorithm} reveals more than sums of clipped changes, which is all that {_WHY} covers",
            f"choose {' or '.join(PRIVATE_ALGORITHMS)}, or set collaborator_level: null",
        )
    if training.weights != "uniform":
        yield Fault(
            ("training", "weights"),
            f"is {training.weights}, so that weights would tell how many records a site has, which {_WHY} hides",
            "set weights: uniform",
        )


def _sum_faults(stated: SecureAggregationSection) -> Iterator[Fault]:
    if stated.mode == "off":
        yield Fault(
            ("secure_aggregation", "mode"),
            f"is off, but {_WHY} shares the noise out, and one site's share alone hides too little",
            "set mode: malicious",
        )
    if not isinstance(stated.clip, str):
        yield Fault(
            ("secure_aggregation", "clip"),
            f"is {stated.clip:g}, but {_WHY} clips by its own norm",
            "omit it; privacy.collaborator_level.clip is used",
        )


def _evaluation_faults(evaluation: EvaluationSection, training: TrainingSection) -> Iterator[Fault]:
    """Yield what needs an evaluation, of which a plan with this promise makes none."""
    none = f"{_WHY} allows no evaluation sums"
    if evaluation.method == "exact":
        yield Fault(("evaluation", "method"), f"is exact, but {none}", "set method: histogram, which is not used")
    if evaluation.site_means:
        yield Fault(("evaluation", "site_means"), f"is true, but {none}", "set site_means: false")
    if evaluation.scores:
        yield Fault(("evaluation", "scores"), f"is true, but {none}", "set scores: false")
    if training.threshold_init == "quantile":
        yield Fault(("training", "threshold_init"), f"is quantile, but {none}", "set a number, or bound")
