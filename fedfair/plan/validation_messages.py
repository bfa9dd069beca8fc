"""Words for what pydantic found: one sentence per fault, with file and line, key path, value and remedy.

    plan.yaml:12: training.rounds: must be >= 1, found 0 -> training rounds (T), an integer, at least 1

Decides how a fault is reported. The remedy is the field's own description, or the key that was probably meant, or
what the broken rule says. All faults of a file are reported together, in the order of its lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, TypeVar, get_args, get_origin

from pydantic import Tag, ValidationError
from pydantic_core import ErrorDetails

from fedfair.errors import PlanError
from fedfair.likeness import meant
from fedfair.plan.fields import LIST_WORD, RULE, WORD, Section
from fedfair.plan.meanings import meanings
from fedfair.plan.yaml_reader import Document, Place, resolve

MAX_SHOWN = 60
"""Characters of a value that a message repeats."""

MAX_FAULTS = 40
"""Faults that a message tells one by one."""

CHOICES = frozenset({"data_source", "loss_spec", "model_spec"})
"""Faults of a mapping that is none of several, of which a name or a single key says which one is meant."""

_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")

Described = TypeVar("Described", bound=Section)
Branch = tuple[str | None, type[Section]]

_OTHERWISE: Mapping[str | int, str] = {WORD: "a number or ", LIST_WORD: "a list or "}
_TYPES = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_from_float": "must be an integer",
    "int_type": "must be an integer",
    "mapping_type": "must be a mapping",
    "model_type": "must be a mapping",
    "none_required": "must be null",
    "string_type": "must be a text",
    "tuple_type": "must be a list",
}
_LIMITS: Mapping[str, Callable[[Mapping[str, object]], str]] = {
    "greater_than": lambda limit: f"must be > {limit['gt']:g}",
    "greater_than_equal": lambda limit: f"must be >= {limit['ge']:g}",
    "less_than": lambda limit: f"must be < {limit['lt']:g}",
    "less_than_equal": lambda limit: f"must be <= {limit['le']:g}",
    "too_short": lambda limit: f"must have at least {limit['min_length']} items",
    "too_long": lambda limit: f"must have at most {limit['max_length']} items",
    "string_too_short": lambda limit: f"must have at least {limit['min_length']} characters",
    "string_too_long": lambda limit: f"must have at most {limit['max_length']} characters",
}


def validated(model: type[Described], document: Document) -> Described:
    """Return the document's values as a section.

    Raises:
        PlanError: the values break the schema; the message tells all faults.
    """
    try:
        return model.model_validate(document.values)
    except ValidationError as error:
        raise PlanError(describe(error, model, document)) from error


def describe(error: ValidationError, model: type[Section], document: Document) -> str:
    """Return one line per fault, of at most 40 faults; several lines are under a heading."""
    faults = []
    for details in error.errors(include_url=False):
        place = tuple(part for part in details["loc"] if not _is_branch(part))
        text = f"{document.spot(place)}: {_path(place)}: {_sentence(details, model)}"
        faults.append((document.spot(place), text))
    texts = [text for _, text in sorted(faults, key=lambda fault: fault[0])]
    if len(texts) == 1:
        return texts[0]
    more = [f"and {len(texts) - MAX_FAULTS} more"] if len(texts) > MAX_FAULTS else []
    return "\n  ".join([f"{document.path} has {len(texts)} faults:", *texts[:MAX_FAULTS], *more])


def _sentence(details: ErrorDetails, model: type[Section]) -> str:
    kind, context, found = details["type"], details.get("ctx", {}), details["input"]
    if kind == RULE:
        return f"{context['fault']} -> {context['remedy']}"
    if kind == "extra_forbidden":
        return f"unknown key -> {_key_remedy(details['loc'], model)}"
    description = _walk(details["loc"], model)[0]
    remedy = f" -> {description}" if description else ""
    if kind == "missing":
        return f"is missing{remedy}"
    if isinstance(found, str) and isinstance(resolve(found), int | float) and kind in _TYPES:
        remedy = " -> write it without quotes"
    share = _share(details)
    if share:
        remedy = f" -> {share}; {description}" if description else f" -> {share}"
    if kind in CHOICES and isinstance(found, Mapping):
        return f"{_choice(found, details['loc'], model)}{remedy}"
    return f"{_demand(details)}, found {shown(found)}{remedy}"


def _share(details: ErrorDetails) -> str:
    """Return how a share is written that somebody has stated in percent; empty where that is not the fault."""
    kind, context, found = details["type"], details.get("ctx", {}), details["input"]
    percent = _PERCENT.fullmatch(found) if isinstance(found, str) else None
    if percent is not None and kind == "float_type":
        return f"write {found.strip()} as {float(percent[1]) / 100:g}"
    bound = context.get("le", context.get("lt")) if kind in {"less_than", "less_than_equal"} else None
    if bound == 1 and isinstance(found, int | float) and found <= 100:
        return f"it is a share: {found:g} % is {found / 100:g}"
    return ""


def _choice(found: Mapping[str, object], loc: Place, model: type[Section]) -> str:
    """Return what is wrong with a mapping that is none of those which may stand at a place."""
    known = sorted(str(tag).strip("<>") for tag, _ in _walk(loc, model)[1] if tag is not None)
    stated = found.get("name")
    if "name" in found or all("name" in section.model_fields for _, section in _walk(loc, model)[1]):
        said = f"name is {shown(stated)}" if "name" in found else "has no name"
    else:
        stated = next((key for key in found if key not in known), None)
        said = f"has the keys {', '.join(map(str, found))}" if len(found) != 1 else f"has the key {stated!r}"
    near = meant(str(stated), known)
    return f"{said}; it must be one of {', '.join(known)}{f'; did you mean {near!r}?' if near else ''}"


def _demand(details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "literal_error":
        return f"must be {_OTHERWISE.get(details['loc'][-1], '')}{context['expected']}"
    if kind in _LIMITS:
        return _LIMITS[kind](context)
    return _TYPES.get(kind, details["msg"])


def shown(value: object) -> str:
    """Return a value as a person would write it in YAML, cut to a readable length."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _is_branch(part: str | int) -> bool:
    return isinstance(part, str) and (part == "[key]" or (part.startswith("<") and part.endswith(">")))


def _path(place: Place) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".") or "the file"


def _key_remedy(loc: Place, model: type[Section]) -> str:
    known = sorted({name for _, section in _walk(loc[:-1], model)[1] for name in section.model_fields})
    near = meant(str(loc[-1]), known)
    return f"did you mean {near!r}?" if near else f"the keys here are {', '.join(known)}"


def _walk(loc: Place, model: type[Section]) -> tuple[str, list[Branch]]:
    """Return the description of the field at `loc`, and the sections whose keys may stand under it."""
    branches: list[Branch] = [(None, model)]
    description = ""
    for part in loc:
        if isinstance(part, str) and _is_branch(part):
            branches = [branch for branch in branches if branch[0] == part]
            continue
        owner = next((section for _, section in branches if part in section.model_fields), None)
        if owner is not None:
            description = meanings(owner).get(str(part), "")
            branches = list(_branches(owner.model_fields[str(part)].annotation, None))
    return description, branches


def _branches(annotation: object, tag: str | None) -> Iterator[Branch]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield tag, annotation
        return
    if get_origin(annotation) is Annotated:
        tag = next((item.tag for item in get_args(annotation) if isinstance(item, Tag)), tag)
    for inner in get_args(annotation):
        yield from _branches(inner, tag)
