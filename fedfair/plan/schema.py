"""The plan: what a consortium agrees on, as strict values. This is the reference of `plan.yaml`.

Decides which keys exist, their types, ranges and defaults, and which of them exclude each other. Reading the
file and wording the faults is `loading.py`'s business. In words, not Greek: worst_group_size is
rho, tradeoff is epsilon, gamma is gamma, local_steps is tau, threshold is c, loss_bound is B.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, PrivateAttr, model_validator

from fedfair.plan.audit_terms import audit_faults
from fedfair.plan.collaborator_privacy import collaborator_level_faults
from fedfair.plan.excess_terms import excess_faults, room_faults
from fedfair.plan.fields import (
    Fault,
    Section,
)
from fedfair.plan.losses import NO_LOSS_RANGE, has_classes, has_natural_range, loss_range_remedy
from fedfair.plan.parameters import FROZEN_SUFFIX
from fedfair.plan.privacy import PrivacySection, privacy_faults
from fedfair.plan.sections import (
    MAX_SITE_MEANS,
    EvaluationSection,
    FederationSection,
    ObjectiveSection,
    SecureAggregationSection,
    TrainingSection,
)
from fedfair.plan.slice_terms import slice_faults
from fedfair.plan.stated_sections import from_sections, with_sections
from fedfair.plan.statistics_section import StatisticsSection, statistics_faults, without_training
from fedfair.plan.survey_terms import survey_faults
from fedfair.plan.task import TaskSection


def _needs_no_training(schema: dict[str, Any]) -> None:
    """Let an editor take a plan of statistics, which states no training."""
    schema["required"] = [name for name in schema["required"] if name != "training"]


class Plan(Section):
    """Everything that a consortium agrees on before a run."""

    model_config = ConfigDict(json_schema_extra=_needs_no_training)

    federation: FederationSection
    """who takes part, and how long they wait for each other"""

    task: TaskSection
    """what is learnt: data, splits, model"""

    objective: ObjectiveSection = ObjectiveSection()
    """what is minimised: the mean loss of the worst group and the overall mean"""

    training: TrainingSection
    """how the model is trained"""

    secure_aggregation: SecureAggregationSection = SecureAggregationSection()
    """how sums are protected from the aggregator"""

    privacy: PrivacySection = PrivacySection()
    """differential privacy"""

    evaluation: EvaluationSection = EvaluationSection()
    """what is measured, from sums alone"""

    statistics: StatisticsSection | None = None
    """{columns, by, min_group, epsilon, delta}: statistics in place of training"""

    _workspace: Path | None = PrivateAttr(default=None)
    _file: Path | None = PrivateAttr(default=None)
    _frozen: Path | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _without_training(cls, values: Any) -> Any:  # noqa: ANN401 - whatever a file says
        """Take a plan of statistics without training, model and label."""
        asks = isinstance(values, Mapping) and values.get("statistics") is not None
        return without_training(values) if asks else values

    @property
    def workspace(self) -> Path | None:
        """The folder that the plan's paths and code start from; None for a plan that was not read from a file."""
        return self._workspace

    @property
    def file(self) -> Path | None:
        """The file that the plan was read from; None for a plan that was not read from one."""
        return self._file

    @property
    def frozen_place(self) -> Path | None:
        """The place of the frozen parameters here: a site's own, or beside the plan's file; None for neither."""
        beside = None if self._file is None else self._file.with_suffix(FROZEN_SUFFIX)
        return self._frozen or beside

    def with_frozen(self, place: Path) -> Plan:
        """Return the same plan, whose frozen parameters are at a place of this host."""
        plan = self.model_copy()
        plan._frozen = place  # noqa: SLF001 - of a copy
        return plan

    def __eq__(self, other: object) -> bool:
        """Return whether both state the same; where a plan was read from is no part of what it states."""
        return isinstance(other, Plan) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def with_(self, **sections: Mapping[str, object] | Section) -> Plan:
        """Return this plan with other values for some keys, checked as a whole.

        Args:
            sections: the keys that change, by section, such as `training={"rounds": 50}`; all others stay.

        Raises:
            PlanError: the plan would break a rule; the message tells all faults.
        """
        stated = with_sections(self.model_dump(mode="json", exclude_unset=True), sections, Plan.model_fields)
        found = from_sections(Plan, stated, "the changed plan")
        found._workspace = self._workspace  # noqa: SLF001 - its own class
        return found

    def faults(self) -> Iterator[Fault]:
        """Yield every rule of its own that the section breaks."""
        count = len(self.federation.collaborators)
        drawn = self.training.options.drawn_collaborators
        if drawn is not None and drawn > count:
            yield Fault(
                ("training", "options", "drawn_collaborators"),
                f"is {drawn}, but there are only {count} collaborators",
                f"use 1 to {count}, or null for all",
            )
        if self.evaluation.site_means and count > MAX_SITE_MEANS:
            yield Fault(
                ("evaluation", "site_means"),
                f"is true for {count} collaborators, the sum of an evaluation has room for {MAX_SITE_MEANS}",
                "use false, or name fewer collaborators",
            )
        for name in self.evaluation.site_weights:
            if name not in self.federation.collaborators:
                known = ", ".join(self.federation.collaborators)
                yield Fault(
                    ("evaluation", "site_weights", name), f"{name!r} is no collaborator", f"they are {known}"
                )
        if self.training.algorithm == "bpf" and self.objective.tradeoff == 1:
            yield Fault(("objective", "tradeoff"), "is 1, which is no BPF but the mean", "use erm, or less than 1")
        partition = self.task.partition
        if partition is not None and partition.fractions is not None and len(partition.fractions) != count:
            yield Fault(
                ("task", "partition", "fractions"),
                f"has {len(partition.fractions)} shares for {count} collaborators",
                "give one share for each collaborator, in their order",
            )
        init, bound = self.training.threshold_init, self.objective.loss_bound
        if bound is not None and isinstance(init, int | float) and init > bound:
            yield Fault(
                ("training", "threshold_init"),
                f"is {init}, above objective.loss_bound {bound}",
                f"use a number from 0 to {bound}, or bound",
            )
        if self.training.patience is not None and self.privacy != PrivacySection():
            message = "is stated, and evaluations that carry noise, or none, tell of no model that it is better"
            yield Fault(("training", "patience"), message, "leave patience out")
        yield from self._answer_faults()
        colluders = self.secure_aggregation.colluders
        if colluders and colluders > count - 2:
            yield Fault(
                ("secure_aggregation", "colluders"),
                f"is {colluders} of {count} collaborators, which leaves no two honest ones",
                f"use 0 to {max(count - 2, 0)}",
            )
        yield from privacy_faults(self.privacy, self.training, self.task, self.evaluation)
        yield from collaborator_level_faults(
            self.privacy, self.training, self.task, self.evaluation, self.secure_aggregation
        )
        yield from excess_faults(self.objective, self.training, self.task, self.evaluation, self.privacy)
        yield from room_faults(self.objective, self.task, self.secure_aggregation)
        yield from survey_faults(self.task, self.federation, self.secure_aggregation, self.privacy)
        yield from slice_faults(self.evaluation, self.federation, self.task, self.secure_aggregation, self.privacy)
        yield from audit_faults(self.evaluation, self.training, self.task, self.privacy)
        yield from self._statistics_faults()

    def _statistics_faults(self) -> Iterator[Fault]:
        others = {"objective": self.objective, "evaluation": self.evaluation, "privacy": self.privacy}
        masks = self.secure_aggregation
        yield from statistics_faults(self.statistics, self.task, self.federation, self.training, masks, others)

    def _answer_faults(self) -> Iterator[Fault]:
        """Yield what only makes sense for classes, where a record's answer is none."""
        loss = self.task.loss
        if has_classes(loss):
            return
        if self.evaluation.loss_range is None and not has_natural_range(loss):
            yield Fault(("evaluation", "loss_range"), NO_LOSS_RANGE, loss_range_remedy(loss))
        if self.evaluation.scores:
            message = f"is true, and {loss.name} gives no probabilities of classes"
            yield Fault(("evaluation", "scores"), message, "set scores: false")
        if self.training.algorithm == "fedminmax" and self.training.options.group_column is None:
            yield Fault(
                ("training", "options", "group_column"),
                f"is not stated, and {loss.name} has no classes that could be the groups",
                "name a categorical column, or choose another algorithm",
            )
