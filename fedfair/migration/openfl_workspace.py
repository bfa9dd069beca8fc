"""From an OpenFL workspace on this disk to a workspace of fedfair, with the list of what is left to do.

Decides which files are read, and in which order things are refused. Plan and lists are read as YAML; Python code
is not read, and the two modules that are written refuse until somebody has completed them. Everything is decided,
and the new plan is validated, before the first file is written; all of them appear together or none. Source:
OpenFL 1.5 to 1.9, the task runner's workspace.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from fedfair.errors import PlanError
from fedfair.migration.findings import Finding, FindingKind, as_markdown
from fedfair.migration.openfl_plan import SETTINGS, OpenflPlan, key_findings, read_plan
from fedfair.migration.openfl_values import (
    DEFAULT_ROUNDS,
    Sites,
    federation_name,
    plan_values,
    scalar,
    sites_of,
)
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import parse_document, read_text
from fedfair.templates import filled
from fedfair.workspace.create import PLAN_FILE, collaborator_text, gitignore_text, make_folders

PLAN, COLLABORATORS, DATA = "plan/plan.yaml", "plan/cols.yaml", "plan/data.yaml"
REPORT = "MIGRATION.md"
_HERE = "fedfair.migration"


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
