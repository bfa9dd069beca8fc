"""A result file as it is read back: the JSON contract `fedfair/result/1`, checked at the border.

Only what the tables and pages show is named here; other fields are left alone, so that a newer result still reads.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fedfair.errors import DataError

FORMAT = "fedfair/result/1"
MAX_RESULT_BYTES = 64 << 20


class GroupRisk(BaseModel):
    """The risk of the worst group of one size; losses in nats. All None where the group is too few people."""

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
    by_group_size: dict[str, GroupRisk]

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


class ResultDocument(BaseModel):
    """What a run came to."""

    model_config = ConfigDict(frozen=True)

    format: str
    plan_digest: str
    algorithm: str
    rounds: int
    threshold: float
    uniform_floor: float
    train: SplitRisk
    test: SplitRisk | None

    @property
    def shown(self) -> tuple[str, SplitRisk]:
        """Return the split that speaks for people the model never saw, or the training split without one."""
        return ("test", self.test) if self.test is not None else ("train", self.train)


def parse_result(text: str | bytes, place: str) -> ResultDocument:
    """Return a result file's content.

    Raises:
        DataError: the text is not a result of the format that is read here; names the first fault.
    """
    try:
        document = ResultDocument.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise DataError(
            f"{place} is not a result file: {where}: {first['msg']}", "give the result.json of a finished run"
        ) from error
    if document.format != FORMAT:
        raise DataError(f"{place} has format {document.format!r}, expected {FORMAT!r}")
    return document


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
