"""A result file as it is read back: the JSON contract `fedfair/result/1`, checked at the border.

Only what the tables and pages show is named here; other fields are left alone, so that a newer result still reads.
What older results lack is None or empty.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from fedfair.errors import DataError

FORMAT = "fedfair/result/1"
MAX_RESULT_BYTES = 64 << 20

_REMEDY = "give the result.json of a finished run"
_OPENING = b'{\n  "format": "fedfair/result/'
"""What every result file of any version begins with."""

USUAL_SIZE = 0.1
"""The group size that is looked for where a result does not say for which it was trained."""


def _is_share(text: str) -> str:
    if not 0.0 < float(text) <= 1.0:
        raise ValueError(f"a group size is above 0 and at most 1, not {text}")
    return text


Size = Annotated[str, AfterValidator(_is_share)]
"""A share of all people, as JSON spells the keys of an object."""


class GroupRisk(BaseModel):
    """The risk of the worst group of one size; losses in nats. All None where the group is too few people.

    The bound alone is None where the sums carried noise for differential privacy, so that `worst` is an estimate.
    """

    model_config = ConfigDict(frozen=True)

    worst: float | None
    best: float | None
    disparity: float | None
    bound: tuple[float, float] | None


class SplitRisk(BaseModel):
    """Risks over the records of one split."""

    model_config = ConfigDict(frozen=True)

    n: int
    mean: float
    accuracy: float
    by_group_size: Annotated[dict[Size, GroupRisk], Field(min_length=1)]

    def worst(self, group_size: float) -> GroupRisk | None:
        """Return the risk at a group size, or None where the plan did not ask for it."""
        return next((risk for key, risk in self.by_group_size.items() if float(key) == group_size), None)

    def worst_risk(self, group_size: float) -> float:
        """Return the mean loss of the worst group of a size.

        Raises:
            DataError: the result does not tell of groups of this size.
        """
        risk = self.worst(group_size)
        if risk is None or risk.worst is None:
            raise DataError(
                f"the result does not say how the worst {group_size:.0%} of {self.n} people fare",
                "name the size in evaluation.group_sizes, and see evaluation.min_group",
            )
        return risk.worst


class PastRisk(BaseModel):
    """Risks over the records of one split at one moment of the run."""

    model_config = ConfigDict(frozen=True)

    mean: float
    worst: float | None
    by_group_size: dict[Size, GroupRisk] = {}


class Moment(BaseModel):
    """One evaluation on the way."""

    model_config = ConfigDict(frozen=True)

    round: int
    threshold: float
    train: PastRisk
    test: PastRisk | None = None


class PlanWords(BaseModel):
    """What was agreed: the objective, and the whole plan as headings and sentences."""

    model_config = ConfigDict(frozen=True)

    federation: str
    collaborators: int
    worst_group_size: float
    tradeoff: float
    summary: tuple[tuple[str, str], ...]


class RoundSeconds(BaseModel):
    """How long training rounds took, in seconds; `curve` has pairs of a round and seconds."""

    model_config = ConfigDict(frozen=True)

    count: int
    median: float
    p90: float
    longest: float
    curve: tuple[tuple[int, float], ...]


class EvaluationWords(BaseModel):
    """How the last risks were found."""

    model_config = ConfigDict(frozen=True)

    replaced_losses: int = 0


class Timing(BaseModel):
    """How long the run took."""

    model_config = ConfigDict(frozen=True)

    seconds: float
    rounds: RoundSeconds | None = None


class RoundBytes(BaseModel):
    """Bytes of one collaborator for each training round, with its share of all the other sums."""

    model_config = ConfigDict(frozen=True)

    bytes_up: float
    bytes_down: float


class Traffic(BaseModel):
    """Bytes that travelled, or would."""

    model_config = ConfigDict(frozen=True)

    basis: Literal["measured", "computed"]
    bytes_up: int
    bytes_down: int
    per_round: RoundBytes


class Protection(BaseModel):
    """How the sums were protected, and what is promised of those of a deployment."""

    model_config = ConfigDict(frozen=True)

    mode: str
    masked: bool
    guarantee: str


class Departure(BaseModel):
    """A collaborator that left a run in words, after how many rounds, and what it said."""

    model_config = ConfigDict(frozen=True)

    collaborator: str
    round: int
    reason: str


class ResultDocument(BaseModel):
    """What a run came to."""

    model_config = ConfigDict(frozen=True)

    format: str
    setting: Literal["simulation", "deployment"] | None = None
    plan_digest: str
    plan: PlanWords | None = None
    algorithm: str
    rounds: int
    threshold: float
    uniform_floor: float
    train: SplitRisk
    validation: SplitRisk | None = None
    test: SplitRisk | None
    history: tuple[Moment, ...] = ()
    privacy: dict[str, JsonValue] = {}
    secure_aggregation: Protection | None = None
    timing: Timing | None = None
    traffic: Traffic | None = None
    evaluation: EvaluationWords = EvaluationWords()
    versions: dict[str, str] = {}
    state: str | None = None
    outcome: str = ""
    left: tuple[Departure, ...] = ()

    @property
    def shown(self) -> tuple[str, SplitRisk]:
        """Return the split that speaks for people the model never saw, or the training split without one."""
        return ("test", self.test) if self.test is not None else ("train", self.train)

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


def _refuse_controls(value: JsonValue, place: str, where: str) -> None:
    """Refuse text that would speak to a terminal instead of a reader, wherever it stands."""
    match value:
        case str():
            if any(unicodedata.category(sign) == "Cc" and sign not in "\n\t" for sign in value):
                raise DataError(f"{place} is not a result file: {where} holds control characters", _REMEDY)
        case list():
            for item in value:
                _refuse_controls(item, place, where)
        case dict():
            for key, item in value.items():
                _refuse_controls(key, place, where)
                _refuse_controls(item, place, f"{where}.{key}" if where else key)


def parse_result(text: str | bytes, place: str) -> ResultDocument:
    """Return a result file's content.

    Raises:
        DataError: the text is not a result of the format that is read here; names the first fault.
    """
    try:
        document = ResultDocument.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        if first["loc"] == ("train",) and first["input"] is None:
            raise DataError(
                f"{place} has no figures: its plan protects whole collaborators, so that nothing was evaluated",
                "evaluate the saved model with `fedfair evaluate`, and report on that",
            ) from error
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise DataError(f"{place} is not a result file: {where}: {first['msg']}", _REMEDY) from error
    _refuse_controls(document.model_dump(mode="json"), place, "")
    if document.format != FORMAT:
        raise DataError(f"{place} has format {document.format!r}, expected {FORMAT!r}")
    return document


def check_result_place(path: Path) -> None:
    """Refuse, before the work, a place where a result may not go.

    Raises:
        DataError: its folder does not exist, there is a folder, or a file that is no result of fedfair's.
    """
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist", "create it, or name another file")
    if path.is_dir():
        raise DataError(f"{path} is a folder", "name a file in it")
    if not path.is_file():
        return
    with path.open("rb") as source:
        begin = source.read(len(_OPENING))
    # An empty file is what `mktemp` makes.
    if begin and begin != _OPENING:
        raise DataError(f"{path} exists and is no result of fedfair's", "move it away, or name another file")


def read_result(path: Path) -> ResultDocument:
    """Return the result in a file.

    Raises:
        DataError: there is no such file, it is too large, or it is not a result.
    """
    if not path.is_file():
        raise DataError(f"there is no result file {path}", "run `fedfair simulate` or the aggregator first")
    if path.stat().st_size > MAX_RESULT_BYTES:
        raise DataError(f"{path} has {path.stat().st_size} bytes, more than a result can have")
    return parse_result(path.read_bytes(), str(path))
