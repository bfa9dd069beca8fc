"""Prints `fedfair report --json`: the fields of a result that tables and pages show, and no others."""

from __future__ import annotations

from typing import Any

from fedfair.results.document import JsonObject, ResultDocument
from fedfair.results.risks import SplitRisk

FIELDS = (
    "format", "setting", "plan_digest", "plan", "algorithm", "rounds", "threshold", "uniform_floor", "train",
    "validation", "test", "history", "privacy", "secure_aggregation", "timing", "traffic", "evaluation",
    "versions", "state", "outcome", "left",
)  # fmt: skip

_GROUPS = {"__all__": {"at_least", "likely"}}
_RARE = ("scores", "metrics", "above_range", "hedged", "mean_likely", "accuracy_likely")
_SPLIT = {**dict.fromkeys((*_RARE, "confusion"), True), "by_group_size": _GROUPS}
_PAST = {"accuracy": True, "metrics": True, "mean_likely": True, "by_group_size": _GROUPS}
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
        if risk is not None:
            values[name] |= _rare_figures(risk)
            for size, group in risk.by_group_size.items():
                if group.likely is not None:
                    values[name]["by_group_size"][size]["likely"] = list(group.likely)
            if risk.accuracy is None:
                del values[name]["accuracy"]
    if document.plan is not None and document.plan.loss is None:
        del values["plan"]["loss"]
    values["privacy"] = document.privacy.model_dump(mode="json", exclude_unset=True)
    told = {name: values[name] for name in FIELDS}
    if document.baselines is not None:
        told["baselines"] = document.baselines.model_dump(mode="json", exclude_unset=True)
    if document.calibration is not None:
        told["calibration"] = document.calibration.model_dump(mode="json", exclude_unset=True)
    if document.sets is not None:
        told["sets"] = document.sets.model_dump(mode="json", exclude_unset=True)
    # An older result has no verdict, and nothing is said in its place.
    verdict = document.verdict
    return told if verdict is None else told | {"verdict": verdict.model_dump(mode="json", exclude_unset=True)}


def _rare_figures(risk: SplitRisk) -> JsonObject:
    """Return figures that few results have: the others are printed as they always were."""
    found: JsonObject = risk.model_dump(mode="json", include=set(_RARE), exclude_none=True)
    return {name: found[name] for name in _RARE if name in found}
