"""Refuses plans whose release audit would say less than it seems to, or more than noise allows.

The held-out records of an audit must differ from the training records in nothing but a draw: so they are those
that the plan holds out, record by record, and that chose no model. Its counts carry no noise: beside the few
records at the end of the scores, on which everything hangs, the noise that protects records would leave nothing to
be told.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedfair.plan.fields import Fault
from fedfair.plan.privacy import PrivacySection
from fedfair.plan.sections import EvaluationSection, TrainingSection
from fedfair.plan.task import TaskSection

_PLACE = ("evaluation", "release_audit")


def audit_faults(
    evaluation: EvaluationSection, training: TrainingSection, task: TaskSection, privacy: PrivacySection
) -> Iterator[Fault]:
    """Yield what excludes a release audit; nothing for a plan without one."""
    if evaluation.release_audit is None:
        return
    for level in ("sample_level", "collaborator_level"):
        if getattr(privacy, level) is not None:
            message = f"is stated, but an audit is counts without noise, which privacy.{level} does not allow"
            yield Fault(_PLACE, message, "set release_audit: null")
    if not task.test_fraction:
        chooses = validation_chooses(training)
        if not task.validation_fraction or chooses:
            held = "validation records have chosen the model" if chooses else "no records are held out by the plan"
            yield Fault(_PLACE, f"is stated, but {held}", "state task.test_fraction, or set release_audit: null")


def validation_chooses(training: TrainingSection) -> bool:
    """Return whether the validation records, where there are any, have a say in which model a run returns."""
    return training.output == "best" or training.patience is not None
