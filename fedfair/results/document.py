"""The result of a run: the one model of the JSON contract `fedfair/result/1`, which is written and read.

A simulation, an aggregator and a site build a `ResultDocument` and write `to_text` of it; reports, certificates,
sweeps and reproductions read it (`reading.py`). Its JSON has the fields that were set, in the order in which they
stand here: a field that is None is null in the file, and one that was never set is not in the file. What older
results lack has a default; a field that a newer result has is not looked at. What a group's figures are is
`risks.py`'s business, what is said beside them `parts.py`'s.
"""

from __future__ import annotations

import json
from typing import Literal, TypeAlias

from pydantic import Field

from fedfair.errors import LocalProtocolError
from fedfair.plan.losses import NATS
from fedfair.results.baselines import BaselineFigures
from fedfair.results.calibration import CalibrationFigures
from fedfair.results.frozen import FrozenPart
from fedfair.results.parts import (
    Departure,
    EvaluationFields,
    LateSite,
    PlanFields,
    PrivacyFields,
    ReferenceFigures,
    ReportedProtection,
    ReturnedModel,
    Timing,
    Traffic,
)
from fedfair.results.prediction_sets import SetFigures
from fedfair.results.release import ReleaseFigures
from fedfair.results.risks import CollaboratorRisk, Moment, ObjectiveFigures, PastRisk, SplitRisk
from fedfair.results.slices import SliceFigures
from fedfair.results.statistics_fields import StatisticsFields
from fedfair.results.survey import SurveyFields
from fedfair.results.verdict import RunVerdict

FORMAT = "fedfair/result/1"

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | None"
JsonObject: TypeAlias = dict[str, Json]

USUAL_SIZE = 0.1
"""The group size that is looked for where a result does not say for which it was trained."""

_FORMAT_FIELD = Field(description="the name of this contract", json_schema_extra={"const": FORMAT})


class ResultDocument(FrozenPart):
    """The result of a run."""

    format: str = _FORMAT_FIELD
    setting: Literal["simulation", "deployment"] | None = None
    """simulation (exact figures) or deployment (figures from sums)"""

    plan_digest: str
    """of the plan that was run: sha256: and 64 hex digits"""

    plan: PlanFields | None = None
    """what was agreed"""

    algorithm: str
    """training.algorithm of the plan"""

    centralised: bool | None = None
    """whether it trained on records in one place"""

    rounds: int
    """training rounds done"""

    threshold: float
    """the threshold of the output model"""

    model: ReturnedModel | None = None
    """which of the run's models all figures are of; omitted where it is not known"""

    objective: ObjectiveFigures | None = None
    """what the plan minimises"""

    uniform_floor: float | None = None
    """the loss of guessing, which gives every class the same probability; omitted where guessing has no meaning"""

    train: SplitRisk | None
    """risks over training records; null where nothing was evaluated"""

    validation: SplitRisk | None = None
    """risks over validation records"""

    test: SplitRisk | None
    """risks over test records; null where there are none"""

    verdict: RunVerdict | None = None
    """whether the model is worse than what could be had without training it"""

    history: tuple[Moment, ...] = ()
    """every evaluation on the way; of 10,000 or more, evenly spaced ones"""

    left_out: tuple[int, ...] = ()
    """rounds whose due evaluation could not be had"""

    evaluation: EvaluationFields = EvaluationFields()
    """how the last risks were found"""

    privacy: PrivacyFields = PrivacyFields()
    """what differential privacy is promised"""

    secure_aggregation: ReportedProtection | None = None
    """how the sums were protected"""

    timing: Timing | None = None
    """how long the run took; null at a site"""

    traffic: Traffic | None = None
    """bytes that travelled, or would; null if not known"""

    versions: dict[str, str] = Field(default={})
    """of the software that ran"""

    collaborators: dict[str, CollaboratorRisk | None] | None = None
    """the figures of each collaborator's own records, where the result may tell of it"""

    state: str | None = None
    """running, finished, stopped or aborted; omitted for a simulation"""

    outcome: str = ""
    """the same in words"""

    left: tuple[Departure, ...] = ()
    """who left the run, and why"""

    late: tuple[LateSite, ...] = ()
    """whom sums continued without, because it was too slow; omitted where there was none"""

    engine: Literal["loop", "vectorised", "ray"] | None = None
    """which engine computed a simulation; omitted where none was computed"""

    survey: SurveyFields | None = None
    """what the training records of all sites look like; omitted without a survey"""

    calibration: CalibrationFigures | None = None
    """what makes probabilities of the model's scores; omitted without classes"""

    sets: SetFigures | None = None
    """sets of the model's answers, and what they promise; omitted where the plan's models get none"""

    baselines: BaselineFigures | None = None
    """what was trained beside the model, to compare with; omitted where nothing was"""

    references: ReferenceFigures | None = None
    """what the references of measure: excess reached; omitted where none judged"""

    slices: SliceFigures | None = None
    """the people whom the output model serves worst, by their columns; omitted where none were looked for"""

    release: ReleaseFigures | None = None
    """whether the output model may leave; omitted where no audit is planned"""

    statistics: StatisticsFields | None = None
    """statistics of columns, of a run that trained nothing; omitted where one was trained"""

    @property
    def loss_title(self) -> str:
        """Return what the loss is called, without its unit."""
        words = None if self.plan is None else self.plan.loss
        return "loss" if words is None else words.rpartition(" in ")[0]

    @property
    def loss_unit(self) -> str:
        """Return the unit of every loss in the result."""
        words = None if self.plan is None else self.plan.loss
        return NATS if words is None else words.rpartition(" in ")[2]

    @property
    def shown(self) -> tuple[str, SplitRisk]:
        """Return the split that speaks for people the model never saw, or the training split without one."""
        return ("test", self.test) if self.test is not None else ("train", self.trained)

    @property
    def trained(self) -> SplitRisk:
        """Return the risks over training records; a result that was read from a file has them.

        Raises:
            LocalProtocolError: nothing was evaluated.
        """
        if self.train is None:
            raise LocalProtocolError("a result without figures has nothing to show")
        return self.train

    @property
    def splits(self) -> dict[str, SplitRisk | None]:
        """Return the risks over every split, by its name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def past(self, moment: Moment) -> PastRisk | None:
        """Return what was known then about the split that is shown."""
        return moment.test if self.test is not None else moment.train

    def past_worst(self, past: PastRisk, group_size: float) -> float | None:
        """Return the risk of the worst group of a size at an earlier moment; None where it was not recorded."""
        recorded = next((risk for size, risk in past.by_group_size.items() if float(size) == group_size), None)
        if recorded is not None:
            return recorded.worst
        return past.worst if self.plan is not None and self.plan.worst_group_size == group_size else None

    @property
    def worst_group_size(self) -> float:
        """Return the group size that speaks for the run: the reported one that is nearest to its plan's.

        An older result, which does not state its plan, speaks for about a tenth.
        """
        groups = self.shown[1].by_group_size
        told = [float(size) for size, risk in groups.items() if risk.worst is not None] or [*map(float, groups)]
        wanted = USUAL_SIZE if self.plan is None else self.plan.worst_group_size
        return min(told, key=lambda size: abs(size - wanted))


class UnfinishedResult(FrozenPart):
    """The result of a run that ended before its first evaluation: its state, and no figures."""

    format: str = _FORMAT_FIELD
    plan_digest: str
    """of the plan that was run: sha256: and 64 hex digits"""

    rounds: int
    """training rounds done"""

    state: str
    """running, stopped or aborted"""

    outcome: str
    """the same in words"""

    left: tuple[Departure, ...]
    """who left the run, and why"""

    late: tuple[LateSite, ...] = ()
    """whom sums continued without, because it was too slow; omitted where there was none"""


def to_json(result: ResultDocument | UnfinishedResult) -> JsonObject:
    """Return a result as JSON values: the fields that were set, in the order of the model."""
    # By way of a list, a tuple of values is what JSON makes of it.
    values: JsonObject = json.loads(to_text(result))
    return values


def to_text(result: ResultDocument | UnfinishedResult) -> str:
    """Return the content of a result file."""
    return json.dumps(result.model_dump(exclude_unset=True), indent=2) + "\n"
