"""From arrays of each site to a plan and the records that it trains on.

Decides which plan stands behind arrays: a table with a label, whose defaults are those of a new workspace.
Checking the arrays is `fedfair.tables.in_memory`'s business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from fedfair.errors import DataError, PlanError
from fedfair.ids import ParticipantId, parse_participant_id
from fedfair.plan.derived import learns_threshold, measures_excess
from fedfair.plan.feature_schema import FeatureSchema
from fedfair.plan.losses import (
    CROSS_ENTROPY,
    LOSSES,
    Loss,
    LossSpec,
    SegmentationLoss,
    has_classes,
    takes_classes,
)
from fedfair.plan.schema import Plan
from fedfair.plan.sources import CsvSource
from fedfair.plan.stated_sections import Stated, from_sections, with_sections
from fedfair.plan.task_outputs import with_outputs
from fedfair.studies.advice.settings import LOSS
from fedfair.tables.dataset import Splits
from fedfair.tables.in_memory import (
    SPLIT_NAMES,
    LabelCoding,
    RawRecords,
    SiteArrays,
    check_alike,
    coding_of,
    dataset_of,
    read_pair,
)
from fedfair.tables.source import finished
from fedfair.tables.source_modules import check_declared, declared_schema, for_loss

LABEL = "label"

NUMBERS = LabelCoding(None, 0)
"""The coding of answers that are no classes."""

DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "federation": {"name": "simulation"},
    "task": {"model": {"name": "linear"}},
    "training": {"rounds": 300},
    "evaluation": {},
}
"""Sections as a new workspace states them; what a caller states lies over them."""

BY_LOSS: Mapping[str, float] = {"worst_group_size": LOSS.worst_group_size, "tradeoff": LOSS.tradeoff}
"""The objective where no excess can be measured; a smaller group would often get a guess."""


@dataclass(frozen=True, slots=True)
class ArrayFederation:
    """Arrays that have become a federation.

    Attributes:
        plan: by which they are trained.
        sites: the records of every site.
        coding: the classes of the labels.
    """

    plan: Plan
    sites: Mapping[ParticipantId, Splits]
    coding: LabelCoding

    @property
    def schema(self) -> FeatureSchema:
        """The features of all sites' records."""
        return next(iter(self.sites.values())).train.schema


def federation_of(arrays: Mapping[str, SiteArrays], plan: Plan | None, sections: Stated) -> ArrayFederation:
    """Return the federation of sites whose records are arrays.

    Args:
        arrays: the records of each site, by its name.
        plan: the plan; None for one that is made from the arrays and the sections.
        sections: keys of a plan that differ from the defaults; none where a plan is given.

    Raises:
        DataError: the arrays are no records of one kind.
        PlanError: the sections break the plan's rules, or the plan is for other sites or other records.
    """
    loss = _stated_loss(sections) if plan is None else plan.task.loss
    classified = takes_classes(loss, _stated_classes(sections) if plan is None else plan.task.classes)
    raw = _read(arrays, classes=classified)
    everything = [part for parts in raw.values() for part in parts.values()]
    check_alike(everything)
    own_test = any("test" in parts for parts in raw.values())
    if plan is None:
        coding = coding_of(everything, _stated_classes(sections)) if classified else NUMBERS
        schema = _schema(everything, coding)
        plan = _plan(raw, schema, coding, everything[0].label_name or LABEL, sections, loss)
    else:
        if sections:
            raise PlanError(
                f"both a plan and {', '.join(sections)} are given",
                "state everything in the plan, or omit the plan",
            )
        _check_names(plan, arrays)
        declared = declared_schema(plan)
        coding = _planned_coding(plan, everything, declared) if classified else NUMBERS
        schema = declared or _schema(everything, coding)
    schema = with_outputs(plan.task.loss, schema)
    check_declared(plan.task, schema)
    if own_test and plan.task.test_fraction > 0:
        raise PlanError(
            f"task.test_fraction is {plan.task.test_fraction}, and a site brings its own test records",
            "omit test_fraction",
        )
    sites = {
        ParticipantId(name): for_loss(plan.task.loss, _splits(parts, coding, schema))
        for name, parts in raw.items()
    }
    return ArrayFederation(plan, {name: finished(plan, name, own) for name, own in sites.items()}, coding)


def _stated_loss(sections: Stated) -> Loss:
    """Return the loss that the sections state, checked as the plan will be.

    Raises:
        PlanError: there is no such loss, or none whose answers arrays can be.
    """
    stated = _stated_of_task(sections, "loss")
    if stated is None:
        return CROSS_ENTROPY
    try:
        loss: Loss = TypeAdapter[Loss](LossSpec).validate_python(stated)
    except ValidationError as error:
        raise PlanError(f"task.loss: {error.errors()[0]['msg']}", f"name one of {', '.join(LOSSES)}") from error
    if isinstance(loss, SegmentationLoss):
        raise PlanError(
            "task.loss: segmentation of arrays has no plan of its own",
            'let a "module:function" in the plan return images and masks',
        )
    return loss


def _read(arrays: object, *, classes: bool) -> dict[str, dict[str, RawRecords]]:
    if not isinstance(arrays, Mapping):
        raise DataError(
            f"the records are {type(arrays).__name__}, not a plan and not a mapping from sites to their records",
            'give {"clinic-a": (features, labels), "clinic-b": ...}',
        )
    if not arrays:
        raise DataError("there are no sites", 'give {"clinic-a": (features, labels), "clinic-b": ...}')
    found = {}
    for name, given in arrays.items():
        if not isinstance(name, str):
            raise DataError(f"{name!r} is no name of a site", "name every site by a text, such as clinic-a")
        parse_participant_id(name)
        parts = given if isinstance(given, Mapping) else {"train": given}
        unknown = [part for part in parts if part not in SPLIT_NAMES]
        if unknown or "train" not in parts:
            fault = f"{unknown[0]!r} is no split" if unknown else "there are no training records"
            raise DataError(f"{name}: {fault}", f"the splits are {', '.join(SPLIT_NAMES)}, and train is needed")
        found[name] = {
            part: read_pair(name if part == "train" else f"{name}, {part}", pair, classes=classes)
            for part, pair in parts.items()
        }
    return found


def _stated_classes(sections: Stated) -> int | None:
    classes = _stated_of_task(sections, "classes")
    return classes if isinstance(classes, int) and classes > 1 else None


def _stated_of_task(sections: Stated, key: str) -> object:
    task = sections.get("task", {})
    return task.get(key) if isinstance(task, Mapping) else getattr(task, key, None)


def _schema(parts: list[RawRecords], coding: LabelCoding) -> FeatureSchema:
    shape, targets = parts[0].features.shape[1:], parts[0].labels.shape[1:]
    if len(shape) > 1:
        return FeatureSchema(shape, coding.count, targets=targets)
    named = next((part.names for part in parts if part.names is not None), None)
    names = named or tuple(f"x{place}" for place in range(shape[0]))
    return FeatureSchema(shape, coding.count, tuple(range(shape[0])), names, targets=targets)


def _plan(
    raw: Mapping[str, object],
    schema: FeatureSchema,
    coding: LabelCoding,
    label: str,
    sections: Stated,
    loss: Loss,
) -> Plan:
    stated = with_sections(DEFAULTS, sections, Plan.model_fields)
    task, federation = stated["task"], stated["federation"]
    for key, owner in (("collaborators", federation), ("data", task), ("partition", task)):
        if key in owner:
            raise PlanError(f"{key} is stated, and the arrays say it already", f"omit {key}")
    table = len(schema.input_shape) == 1
    federation["collaborators"] = list(raw)
    task["data"] = {"csv": _table(schema, coding, label, loss)}
    task.setdefault("standardize", "secure" if table else "none")
    task.setdefault("input_shape", list(schema.input_shape))
    if schema.classes:
        task.setdefault("classes", schema.classes)
    if has_classes(loss) and "privacy" not in sections:
        stated["evaluation"].setdefault("scores", True)
    return _measured(from_sections(Plan, stated, "simulate"))


def _measured(plan: Plan) -> Plan:
    """Return the plan with a group that the loss serves, where nobody states a measure and it is the loss."""
    objective = plan.objective
    if objective.measure is not None or measures_excess(plan) or not learns_threshold(plan):
        return plan
    return plan.with_(
        objective={key: value for key, value in BY_LOSS.items() if key not in objective.model_fields_set}
    )


def _table(schema: FeatureSchema, coding: LabelCoding, label: str, loss: Loss) -> dict[str, object]:
    columns: object = list(schema.names) if schema.names else "all"
    while label in schema.names:
        label += "_"
    if not coding.count:
        return {**_answer_keys(schema, label, loss), "numeric": columns}
    found: dict[str, object] = {"label": label, "numeric": columns}
    if coding.values is not None:
        found["label_values"] = [list(values) for values in coding.values]
    return found


def _answer_keys(schema: FeatureSchema, label: str, loss: Loss) -> dict[str, object]:
    """Return the keys of a table that name the columns of answers without classes."""
    match loss.answers:
        case "labels":
            count = schema.targets[0] if schema.targets else 1
            return {"labels": [f"{label}{place}" for place in range(count)]}
        case "time":
            return {"time": f"{label}_time", "event": f"{label}_event"}
        case _:
            return {"target": label}


def _check_names(plan: Plan, arrays: Mapping[str, SiteArrays]) -> None:
    named = plan.federation.collaborators
    differing = sorted(set(named) ^ set(arrays))
    if differing:
        raise PlanError(
            f"the plan and the arrays do not name the same sites: {', '.join(differing[:5])}",
            f"give the records of {', '.join(named[:5])}",
        )


def _planned_coding(plan: Plan, parts: list[RawRecords], declared: FeatureSchema | None) -> LabelCoding:
    data = plan.task.data
    values = data.csv.label_classes if isinstance(data, CsvSource) else None
    if values is not None:
        return LabelCoding(values, len(values))
    return coding_of(parts, declared.classes if declared is not None else plan.task.classes)


def _splits(parts: Mapping[str, RawRecords], coding: LabelCoding, schema: FeatureSchema) -> Splits:
    held = {name: dataset_of(raw, coding, schema) for name, raw in parts.items()}
    return Splits(held["train"], held.get("validation"), held.get("test"))
