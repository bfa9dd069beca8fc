"""From an OpenFL workspace on this disk to a workspace of fedfair, with the list of what is left to do.

Decides which files are read, and in which order things are refused. Plan and lists are read as YAML; Python code
is not read, and the two modules that are written refuse until somebody has completed them. Names, rounds, epochs,
batch, quorum, deadline, address and device are put into the units of the new plan. Everything is decided,
and the new plan is validated, before the first file is written; all of them appear together or none. Source:
OpenFL 1.5 to 1.9, the task runner's workspace.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import shutil
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from fedfair.errors import FedfairError, PlanError
from fedfair.ids import MAX_NAME_LENGTH, parse_participant_id
from fedfair.migration.openfl_plan import (
    SETTINGS,
    TEMPLATE,
    Finding,
    FindingKind,
    OpenflPlan,
    as_markdown,
    key_findings,
    read_plan,
)
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import parse_document, read_text, resolve
from fedfair.templates import filled
from fedfair.workspace.create import PLAN_FILE, collaborator_text, gitignore_text, make_folders

DEFAULT_ROUNDS = 256
"""Of OpenFL's aggregator, where a plan states none."""

DEFAULT_PORT = 8443
MIN_SITES = 2
_STRAGGLERS = ("straggler_handling_policy",)

PLAN, COLLABORATORS, DATA = "plan/plan.yaml", "plan/cols.yaml", "plan/data.yaml"
REPORT = "MIGRATION.md"
_HERE = "fedfair.migration"


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


@dataclass(frozen=True, slots=True)
class Migration:
    """A workspace of fedfair that has not been written yet.

    Attributes:
        files: text by path.
        findings: what became of every key.
    """

    files: Mapping[str, str]
    findings: tuple[Finding, ...]


def migrate(folder: Path, federation: str | None, defaults: Path | None) -> Migration:
    """Return the workspace of fedfair that an OpenFL workspace becomes.

    Args:
        folder: holds `plan/plan.yaml`.
        federation: name of the new federation; None takes the folder's.
        defaults: OpenFL's own folder `workspace`, for included files that the workspace lacks.

    Raises:
        PlanError: the folder is no workspace of OpenFL's task runner, or a file of it is at fault.
    """
    if not (folder / PLAN).is_file():
        raise PlanError(
            f"{folder} is no OpenFL workspace: it has no {PLAN}", "give the folder that `fx workspace create` made"
        )
    plan, findings = read_plan(folder, PLAN, defaults)
    count = plan.get("data_loader", SETTINGS, "collaborator_count")
    sites = sites_of(
        _named(folder), _data_paths(folder), count if isinstance(count, int) and 0 < count < 1000 else 0
    )
    roots, shards = _roots(sites.paths)
    origin = " ".join(folder.resolve().name.split())
    name = federation or federation_name(origin)
    module = (f"w{name}" if name[0].isdigit() else name).replace("-", "_")
    values = plan_values(plan, len(sites.names))
    known = {"origin": origin, "federation": name, "module": module, "shards": shards}
    known["collaborators"] = list(map(scalar, sites.names))
    text = filled(_HERE, "plan.yaml.jinja", **known, **values)
    # Values that no plan of fedfair may have are refused before anything is written.
    validated(Plan, parse_document(text, Path("the new plan/plan.yaml")))
    findings += sites.findings
    findings += (_with_value(finding, values, module) for finding in key_findings(plan))
    findings += _code_findings(plan, values)
    findings += (_place_of(site, sites, roots.get(site)) for site in sites.names)
    files = {
        str(PLAN_FILE): text,
        f"src/{module}_model.py": filled(_HERE, "model.py.jinja", module=module),
        f"src/{module}_loader.py": filled(_HERE, "loader.py.jinja", module=module),
        ".gitignore": gitignore_text(),
        REPORT: as_markdown(origin, findings),
    }
    for site in sites.names:
        files[f"sites/{site}/collaborator.yaml"] = _site_text(site, roots.get(site), values["device"])
    return Migration(files, tuple(findings))


def write(migration: Migration, output: Path) -> list[Path]:
    """Write the new workspace whole, or nothing of it.

    Args:
        migration: what is written.
        output: a folder that does not exist, or is empty.

    Returns:
        The files.

    Raises:
        PlanError: the folder holds something already.
    """
    check_output(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    # A folder beside the target is on the same disk, so that one rename shows all files at once.
    hidden = output.absolute().with_name(f".{output.absolute().name}.{secrets.token_hex(8)}")
    try:
        make_folders(hidden)
        for path, text in migration.files.items():
            (hidden / path).parent.mkdir(parents=True, exist_ok=True)
            (hidden / path).write_text(text, encoding="utf-8", errors="surrogateescape")
        if output.exists():
            output.rmdir()
        hidden.rename(output)
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    return [output / path for path in migration.files]


def check_output(output: Path) -> None:
    """Refuse a folder that holds something.

    Raises:
        PlanError: it is a file, or not empty.
    """
    if output.is_symlink() or (output.exists() and (not output.is_dir() or any(output.iterdir()))):
        raise PlanError(
            f"{output} exists and is not an empty folder; nothing was written", "name another: --output"
        )


def _named(folder: Path) -> list[tuple[str, str]]:
    """Return the collaborators of `plan/cols.yaml`, each with its place; none where there is no such file."""
    text = read_text(folder / COLLABORATORS) if (folder / COLLABORATORS).is_file() else ""
    if all(not line.strip() or line.strip().startswith("#") for line in text.splitlines()):
        return []
    document = parse_document(text, Path(COLLABORATORS))
    named = document.values.get("collaborators", False)
    if not isinstance(named, list | None):
        raise PlanError(
            f"{document.spot(('collaborators',))}: has no list `collaborators`",
            "write it as `collaborators: [one, two]`, or leave the list empty",
        )
    places = [str(document.spot(("collaborators", index))) for index in range(len(named or []))]
    for name, place in zip(named or [], places, strict=True):
        if not isinstance(name, str | int):
            raise PlanError(f"{place}: {name!r} is no name of a collaborator", "write a text")
    return [(str(name), place) for name, place in zip(named or [], places, strict=True)]


def _data_paths(folder: Path) -> dict[str, tuple[str, str]]:
    """Return by collaborator the text of `plan/data.yaml`, which is lines of name,path, with its place."""
    found: dict[str, tuple[str, str]] = {}
    text = read_text(folder / DATA) if (folder / DATA).is_file() else ""
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line or line.startswith("#"):
            continue
        name, comma, path = (part.strip() for part in line.partition(","))
        if not comma or not name:
            raise PlanError(f"{DATA}:{number}: {line[:60]!r} is not name,path", "write it like one,data/one")
        if name in found:
            raise PlanError(f"{DATA}:{number}: {name!r} is listed twice", "remove one of the lines")
        found[name] = path, f"{DATA}:{number}"
    return found


def _roots(paths: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """Return each site's folder by `plan/data.yaml`, and whether it gives numbers of shards in place of paths."""
    if paths and all(text.lstrip("-").isdigit() or not text for text in paths.values()):
        return {}, True
    split = {site: PurePosixPath(text) for site, text in paths.items()}
    if len({path.name for path in split.values()}) == 1 and all(path.suffix for path in split.values()):
        return {site: str(path.parent) for site, path in split.items()}, False
    return dict(paths), False


def _with_value(finding: Finding, values: Mapping[str, str | int | None], module: str) -> Finding:
    """Return a finding with what was written for its key."""
    written = {
        "federation.min_collaborators": values["needed_sites"],
        "federation.round_deadline_seconds": values["deadline"],
        "federation.aggregator.host": values["host"],
        "federation.aggregator.port": values["port"],
        "training.rounds": values["rounds"],
        "training.local_epochs": values["epochs"],
        "training.batch_size": values["batch_size"],
        "task.model": f"{module}_model:build",
        "task.data": f"{module}_loader:records",
        "device": values["device"],
    }.get(finding.becomes)
    if finding.kind not in (FindingKind.CARRIED_OVER, FindingKind.BY_HAND) or written is None:
        return finding
    return replace(finding, becomes=f"{finding.becomes}: {written}")


def _code_findings(plan: OpenflPlan, values: Mapping[str, str | int | None]) -> Iterator[Finding]:
    """Yield what only the code says, and what the plan leaves out."""
    hand, loader = FindingKind.BY_HAND, plan.place("data_loader")
    words = "the optimiser is in the code: state its rate for plain steps; fedfair's defaults need no tuning"
    yield Finding(hand, plan.place("task_runner"), "optimizer", "", "training.learning_rate", words)
    for key in ("input_shape", "classes"):
        words = f"the loader's code says it: state task.{key} in plan/plan.yaml"
        yield Finding(hand, loader, key, "", f"task.{key}", words)
    if values["batch_size"] is None:
        words = "the plan states none, so fedfair's 256 records count; state it if your code has another default"
        yield Finding(hand, loader, "batch_size", "", "training.batch_size", words)
    if plan.training_task is None:
        words = "no task trains: to evaluate a model that is there use `fedfair aggregator evaluate`"
        yield Finding(hand, plan.place("tasks"), "tasks", "", "", words)
    if plan.get("aggregator", SETTINGS, "rounds_to_train") is None:
        words = f"OpenFL's default of {DEFAULT_ROUNDS} rounds was written"
        place = plan.place("aggregator")
        yield Finding(FindingKind.CARRIED_OVER, place, "rounds_to_train", "", "training.rounds", words)


def _place_of(site: str, sites: Sites, root: str | None) -> Finding:
    text = sites.paths.get(site, "")
    file = f"sites/{site}/collaborator.yaml"
    if root is None:
        words = f"state data.root in {file}: the folder with this site's own records"
        return Finding(FindingKind.BY_HAND, DATA, f"data of {site}", text, "data.root", words)
    words = "a relative path starts from the folder of collaborator.yaml"
    return Finding(FindingKind.CARRIED_OVER, DATA, f"data of {site}", text, f"data.root in {file}", words)


def _site_text(site: str, root: str | None, device: object) -> str:
    """Return a site's own file with the most careful terms, and what the old workspace says of it."""
    text = collaborator_text(site)
    if root is not None:
        text = text.replace("root: null}", "root: '{}'}}".format(root.replace("'", "''")))
    return text if device is None else text.replace("device: null ", f"device: {device} ")
