"""Values of an OpenFL workspace in the units of a plan of fedfair.

Decides what the written plan takes: names, rounds, epochs, batch, quorum, deadline, address and device. What a
key means without its value stands in `openfl_keys.yaml`.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedfair.errors import FedfairError, PlanError
from fedfair.ids import MAX_NAME_LENGTH, parse_participant_id
from fedfair.migration.findings import Finding, FindingKind
from fedfair.migration.openfl_plan import SETTINGS, TEMPLATE, OpenflPlan
from fedfair.plan.yaml_reader import resolve

DEFAULT_ROUNDS = 256
"""Of OpenFL's aggregator, where a plan states none."""

DEFAULT_PORT = 8443
MIN_SITES = 2
_STRAGGLERS = ("straggler_handling_policy",)


@dataclass(frozen=True, slots=True)
class Sites:
    """Who takes part.

    Attributes:
        names: as the new plan has them, in order.
        paths: by new name, what `plan/data.yaml` gives the site.
        findings: about names.
    """

    names: tuple[str, ...]
    paths: Mapping[str, str]
    findings: tuple[Finding, ...]


def sites_of(named: Sequence[tuple[str, str]], paths: Mapping[str, tuple[str, str]], count: int) -> Sites:
    """Return who takes part.

    Args:
        named: names of `plan/cols.yaml`, each with its place.
        paths: of `plan/data.yaml`, by name: the text and its place.
        count: how many the plan speaks of; 0 where it does not.

    Raises:
        PlanError: two names become the same.
    """
    places = dict(named) or {name: place for name, (_, place) in paths.items()}
    new: dict[str, str] = {}
    findings = []
    for name, place in places.items():
        usable = _usable(name)
        if usable in new.values():
            raise PlanError(
                f"{place}: {name!r} becomes {usable!r}, as another collaborator does", "rename one of them"
            )
        new[name] = usable
        words = "" if usable == name else "names are 1 to 40 of a-z, 0-9 and '-': they are part of certificates"
        becomes = f"federation.collaborators: {usable}"
        findings.append(Finding(FindingKind.CARRIED_OVER, place, f"collaborator {name}", name, becomes, words))
    names, wanted = [*new.values()], max(count, MIN_SITES)
    made_up = [f"collaborator{number}" for number in range(1, wanted + 1)]
    for name in [name for name in made_up if name not in names][: max(0, wanted - len(names))]:
        words = "a name was made up, because the workspace names fewer: write the site's real name"
        becomes = "federation.collaborators"
        findings.append(Finding(FindingKind.BY_HAND, "plan/cols.yaml", "collaborators", name, becomes, words))
        names.append(name)
    for name in (name for name in paths if name not in new):
        words = "plan/cols.yaml does not name it, so it takes no part"
        findings.append(Finding(FindingKind.BY_HAND, paths[name][1], f"collaborator {name}", name, "", words))
    kept = {new[name]: text for name, (text, _) in paths.items() if name in new}
    return Sites(tuple(names), kept, tuple(findings))


def _usable(name: str) -> str:
    text = _plain_letters(name) or "site"
    try:
        return parse_participant_id(text)
    except FedfairError:
        return f"site-{text}"[:MAX_NAME_LENGTH]


def federation_name(text: str) -> str:
    """Return a text, such as a folder's name, as the name of a federation."""
    return _plain_letters(text) or "federation"


def _plain_letters(text: str) -> str:
    """Return a text in a-z, 0-9 and inner hyphens, without accents; empty where nothing of it is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MAX_NAME_LENGTH].strip("-")


def plan_values(plan: OpenflPlan, count: int) -> dict[str, str | int | None]:
    """Return what the written plan takes, by the names of its template; None for fedfair's default.

    Args:
        plan: the old plan.
        count: number of collaborators.

    Raises:
        PlanError: a value is of the wrong kind or out of range.
    """
    host = plan.get("network", SETTINGS, "agg_addr")
    if not isinstance(host, str | None):
        raise _fault(plan, ("network", SETTINGS, "agg_addr"), host, "the name of a host")
    task = plan.training_task or ""
    batch = _whole(plan, "data_loader", SETTINGS, "batch_size")
    stated = str(plan.get("tasks", task, "aggregation_type", TEMPLATE) or "").rpartition(".")[2]
    cutoff = _positive(plan, *_STRAGGLERS, SETTINGS, "straggler_cutoff_time")
    return {
        "host": "localhost" if host in (None, "auto") else scalar(str(host)),
        "port": _whole(plan, "network", SETTINGS, "agg_port") or DEFAULT_PORT,
        "needed_sites": _needed_sites(plan, count),
        "deadline": None if cutoff is None else max(1, math.ceil(cutoff)),
        "rounds": _whole(plan, "aggregator", SETTINGS, "rounds_to_train") or DEFAULT_ROUNDS,
        "epochs": _whole(plan, "tasks", task, "kwargs", "epochs") or 1,
        "batch_size": _whole(plan, "tasks", task, "kwargs", "batch_size") if batch is None else batch,
        "server": {"AdamAdaptiveAggregation": "adam", "YogiAdaptiveAggregation": "yogi"}.get(stated),
        "device": _device(plan),
    }


def scalar(text: str) -> str:
    """Return a text as a scalar of YAML that is read as the same text."""
    return text if re.fullmatch(r"[a-z][a-z0-9.-]*", text) and resolve(text) == text else json.dumps(text)


def _needed_sites(plan: OpenflPlan, count: int) -> int | str:
    name = str(plan.get(*_STRAGGLERS, TEMPLATE) or "").rpartition(".")[2]
    by_share = name in {"PercentagePolicy", "PercentageBasedStragglerHandling"}
    if not by_share and name not in {"CutoffTimePolicy", "CutoffTimeBasedStragglerHandling"}:
        return "null"
    least = _whole(plan, *_STRAGGLERS, SETTINGS, "minimum_reporting") or 1
    share = _positive(plan, *_STRAGGLERS, SETTINGS, "percent_collaborators_needed")
    if by_share:
        share = 1.0 if share is None else share
        if share > 1:
            place = plan.place(*_STRAGGLERS, SETTINGS, "percent_collaborators_needed")
            raise PlanError(f"{place}: percent_collaborators_needed is {share:g}", "it is a share, above 0 to 1")
        least = max(least, math.ceil(share * count))
    return min(max(least, MIN_SITES), count)


def _device(plan: OpenflPlan) -> str | None:
    stated = plan.get("task_runner", SETTINGS, "device")
    if isinstance(stated, str):
        return next((known for known in ("cpu", "cuda", "mps") if stated.startswith(known)), "auto")
    policy = plan.get("collaborator", SETTINGS, "device_assignment_policy")
    return {"CPU_ONLY": "cpu", "CUDA_PREFERRED": "auto"}.get(str(policy))


def _number(plan: OpenflPlan, key: tuple[str, ...]) -> object:
    """Return a value, and a number that stands in quotes as the number, as OpenFL's own int(...) takes it."""
    value = plan.get(*key)
    return resolve(value) if isinstance(value, str) else value


def _whole(plan: OpenflPlan, *key: str) -> int | None:
    """Return a whole number of at least 1; None where there is none."""
    value = _number(plan, key)
    if value in (None, "auto"):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _fault(plan, key, value, "a whole number of at least 1")
    return value


def _positive(plan: OpenflPlan, *key: str) -> float | None:
    """Return a finite number above 0; None where there is none."""
    value = _number(plan, key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _fault(plan, key, value, "a number above 0")
    return float(value)


def _fault(plan: OpenflPlan, key: tuple[str, ...], value: object, expected: str) -> PlanError:
    return PlanError(f"{plan.place(*key)}: {'.'.join(key)} is {value!r}", f"it must be {expected}")
