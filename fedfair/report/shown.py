"""Prints `fedfair report --json`: the fields of a result that tables and pages show, and no others."""

from __future__ import annotations

from typing import Any

from fedfair.results.document import JsonObject, ResultDocument

FIELDS = (
    "format", "setting", "plan_digest", "plan", "algorithm", "rounds", "threshold", "uniform_floor", "train",
    "validation", "test", "history", "privacy", "secure_aggregation", "timing", "traffic", "evaluation",
    "versions", "state", "outcome", "left",
)  # fmt: skip

_GROUPS = {"__all__": {"at_least"}}
_SPLIT = {"confusion": True, "scores": True, "metrics": True, "above_range": True, "by_group_size": _GROUPS}
_PAST = {"accuracy": True, "metrics": True, "by_group_size": _GROUPS}
_NOT_SHOWN: dict[str, Any] = {
    "train": _SPLIT,
    "validation": _SPLIT,
    "test": _SPLIT,
    "history": {"__all__": {"validation": True, "train": _PAST, "test": _PAST}},
    "privacy": True,
    "secure_aggregation": {"colluders"},
    "timing": {"rounds_per_second"},
    "evaluation": {"method", "given_up"},
}


def shown(document: ResultDocument) -> JsonObject:
    """Return those fields as JSON values; what the file does not say has its default, but for promises."""
    values = document.model_dump(mode="json", include=set(FIELDS), exclude=_NOT_SHOWN)
    for name, risk in document.splits.items():
        # Few results have figures about scores, or another loss; the others are printed as they always were.
        if risk is not None and risk.scores is not None:
            values[name]["scores"] = risk.scores.model_dump(mode="json")
        if risk is not None and risk.metrics is not None:
            values[name]["metrics"] = dict(risk.metrics)
        if risk is not None and risk.above_range is not None:
            values[name]["above_range"] = risk.above_range
        if risk is not None and risk.accuracy is None:
            del values[name]["accuracy"]
    if document.plan is not None and document.plan.loss is None:
        del values["plan"]["loss"]
    values["privacy"] = document.privacy.model_dump(mode="json", exclude_unset=True)
    told = {name: values[name] for name in FIELDS}
    # An older result has no verdict, and nothing is said in its place.
    return told if document.verdict is None else told | {"verdict": document.verdict.model_dump(mode="json")}
