"""From an OpenFL workspace on this disk to a workspace of fedfair, with the list of what is left to do.

Decides which files are read, and in which order things are refused. Files are read as text: a foreign plan is
YAML, a foreign module is parsed and never imported. Everything is decided, and the new plan is validated,
before the first file is written; all of them appear together or none. Source: OpenFL 1.5 to 1.9, the task
runner's workspace.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from fedfair.errors import PlanError
from fedfair.migration.data_loader import (
    UNFINISHED,
    DataFacts,
    MigratedLoader,
    data_facts,
    migrate_loader,
    site_paths,
)
from fedfair.migration.findings import Finding, FindingKind, as_markdown
from fedfair.migration.openfl_config import DEFAULTS, SETTINGS, TEMPLATE, OpenflConfig, included_files, resolved
from fedfair.migration.openfl_plan import (
    Modules,
    Sites,
    check_kind,
    code_findings,
    federation_name,
    key_findings,
    plan_text,
    plan_values,
    sites_of,
)
from fedfair.migration.source_modules import Collection, SourceModule
from fedfair.migration.task_runner import MigratedModel, check_framework, find_class, migrate_model
from fedfair.plan.schema import Plan
from fedfair.plan.validation_messages import validated
from fedfair.plan.yaml_reader import Document, Value, decoded, parse_document, read_document, read_text
from fedfair.workspace.create import FOLDERS, PLAN_FILE
from fedfair.workspace.templates import GITIGNORE, collaborator_text

PLAN, COLLABORATORS, DATA = "plan/plan.yaml", "plan/cols.yaml", "plan/data.yaml"
REPORT = "MIGRATION.md"
MAX_SOURCES = 300
MAX_SOURCE_BYTES = 1 << 20
"""Of one Python file; the plan's files have a limit of their own."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A workspace of fedfair that has not been written yet.

    Attributes:
        files: text by path.
        findings: what became of every key and of the code.
    """

    files: Mapping[str, str]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Old:
    """All that is read of the old workspace."""

    name: str
    config: OpenflConfig
    sources: Mapping[str, SourceModule]
    named: tuple[tuple[str, str], ...]
    paths: Mapping[str, tuple[str, str]]
    findings: tuple[Finding, ...]


def migrate(folder: Path, federation: str | None, defaults: Path | None) -> Migration:
    """Return the workspace of fedfair that an OpenFL workspace becomes.

    Args:
        folder: holds `plan/plan.yaml`.
        federation: name of the new federation; None takes the folder's.
        defaults: OpenFL's own folder `workspace`, for included files that the workspace lacks.

    Raises:
        PlanError: the folder is no workspace of OpenFL's task runner with PyTorch, or a file of it is at fault.
    """
    old = _read(folder, defaults)
    try:
        return _migrated(old, federation)
    except RecursionError as error:
        raise PlanError(
            f"{folder}: its code is nested too deeply to be read", "give the workspace without generated code"
        ) from error


def _migrated(old: _Old, federation: str | None) -> Migration:
    config = old.config
    check_kind(config)
    template = config.place("task_runner", TEMPLATE)
    named = config.get("task_runner", TEMPLATE)
    module, runner = find_class(named, template, "task_runner.template", old.sources)
    direct = check_framework(module, runner, template, "task_runner.template", old.sources)
    count = config.get("data_loader", SETTINGS, "collaborator_count")
    sites = sites_of(old.named, old.paths, count if isinstance(count, int) and 0 < count < 1000 else 0)
    where = site_paths(sites.paths)
    name = federation or federation_name(old.name)
    stem = f"w{name}" if name[0].isdigit() else name
    modules = Modules(f"{stem.replace('-', '_')}_loader", f"{stem.replace('-', '_')}_model")

    settings = _mapping(config.get("task_runner", SETTINGS))
    settings.pop("device", None)
    of_model, of_loader = Collection(old.sources), Collection(old.sources)
    model = migrate_model(module, runner, settings, of_model, direct=direct, path=f"src/{modules.model}.py")
    place = config.place("data_loader", TEMPLATE)
    facts, loader = DataFacts(None, None, place), None
    if config.get("data_loader", TEMPLATE) is not None:
        owner, node = find_class(config.get("data_loader", TEMPLATE), place, "data_loader.template", old.sources)
        arguments = _mapping(config.get("data_loader", SETTINGS))
        facts = data_facts(owner, node)
        loader = migrate_loader(owner, node, arguments, where, of_loader, path=f"src/{modules.loader}.py")

    values = plan_values(config, len(sites.names), model.optimizer)
    text = plan_text(_one_line(old.name), name, sites, values, facts, where, modules)
    _check(text)
    loader_is_whole = loader is not None and loader.is_whole
    findings = [*old.findings, *sites.findings]
    findings += key_findings(
        config, values, modules, model_is_whole=model.is_whole, loader_is_whole=loader_is_whole
    )
    findings += [*code_findings(values, model.optimizer, facts, config), *model.findings]
    findings += [] if loader is None else loader.findings
    findings += _packages(of_model, "at every site and at the aggregator") if model.is_whole else []
    findings += _packages(of_loader, "at every site") if loader_is_whole else []
    findings += [_place_of(site, sites, where.roots.get(site)) for site in sites.names]
    files = {
        str(PLAN_FILE): text,
        f"src/{modules.model}.py": _module_text(_one_line(old.name), "model", model, of_model),
        f"src/{modules.loader}.py": _loader_text(_one_line(old.name), loader, of_loader, modules.loader),
        ".gitignore": GITIGNORE,
        REPORT: as_markdown(_one_line(old.name), findings),
    }
    files |= {
        f"sites/{site}/collaborator.yaml": _site_text(site, where.roots.get(site), values.device)
        for site in sites.names
    }
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
        for name in FOLDERS:
            (hidden / name).mkdir(parents=True, exist_ok=True)
        (hidden / "cert").chmod(0o700)
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


def _read(folder: Path, defaults: Path | None) -> _Old:
    if not folder.is_dir():
        raise PlanError(
            f"{folder} is no folder", "give the OpenFL workspace, the folder that holds plan/plan.yaml"
        )
    if not (folder / PLAN).is_file():
        raise PlanError(
            f"{folder} is no OpenFL workspace: it has no {PLAN}", "give the folder that `fx workspace create` made"
        )
    plan = _document(folder, PLAN)
    included, findings = _included(plan, folder, defaults)
    config = resolved(plan, included)
    check_kind(config)
    return _Old(
        folder.resolve().name,
        config,
        _sources(folder, config),
        _named(folder),
        _data_paths(folder),
        findings,
    )


def _document(folder: Path, path: str) -> Document:
    """Return a YAML file, named by its path in the workspace."""
    return parse_document(read_text(folder / path), Path(path))


def _included(
    plan: Document, folder: Path, defaults: Path | None
) -> tuple[dict[str, Document], tuple[Finding, ...]]:
    """Return the files that sections include, and a finding for each section that includes one."""
    found, findings = {}, []
    for section, path in included_files(plan).items():
        place = str(plan.spot((section, DEFAULTS)))
        inside = PurePosixPath(path)
        if inside.is_absolute() or ".." in inside.parts:
            raise PlanError(
                f"{place}: {section}.defaults is {path!r}, which leads out of the workspace",
                "name a file below the workspace, such as plan/defaults/network.yaml",
            )
        roots = [folder, *([] if defaults is None else [defaults, *defaults.parents[:2]])]
        file = next((root / path for root in roots if (root / path).is_file()), None)
        words, kind = "read", FindingKind.CARRIED_OVER
        if file is None:
            kind = FindingKind.BY_HAND
            words = (
                "not in the workspace, so only the section's own keys were read: OpenFL takes the file from where "
                "it is installed; give that folder openfl-workspace/workspace by --defaults"
            )
        else:
            document = read_document(file)
            named = Path(path) if file == folder / path else file
            spots = {key: replace(spot, path=named) for key, spot in document.spots.items()}
            found[section] = Document(named, document.values, spots)
        findings.append(Finding(kind, place, f"{section}.defaults", path, "", words))
    return found, tuple(findings)


def _sources(folder: Path, config: OpenflConfig) -> dict[str, SourceModule]:
    """Return the Python files below the folders that the plan's templates begin with, by module name."""
    templates = [str(config.get(section, TEMPLATE) or "") for section in ("task_runner", "data_loader")]
    tops = {template.partition(".")[0] for template in templates if not template.startswith("openfl.")}
    tops = {top for top in tops if top.isidentifier()}
    paths: list[Path] = []
    for top in sorted(tops):
        paths += sorted((folder / top).rglob("*.py")) if (folder / top).is_dir() else []
        paths += [folder / f"{top}.py"] if (folder / f"{top}.py").is_file() else []
    if len(paths) > MAX_SOURCES:
        raise PlanError(
            f"{folder} holds {len(paths)} Python files, more than {MAX_SOURCES}", "give the workspace alone"
        )
    modules = {}
    for path in paths:
        inside = path.relative_to(folder)
        parts = inside.with_suffix("").parts
        if not all(part.isidentifier() for part in parts):
            continue  # No import can name it.
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = SourceModule(name, inside.as_posix(), _source_text(path, inside))
    return modules


def _source_text(path: Path, inside: Path) -> str:
    with path.open("rb") as source:
        raw = source.read(MAX_SOURCE_BYTES + 1)
    if len(raw) > MAX_SOURCE_BYTES:
        raise PlanError(f"{inside} has more than {MAX_SOURCE_BYTES} bytes", "this is not the file that was meant")
    return decoded(raw, inside)


def _named(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return the collaborators of `plan/cols.yaml`, each with its place; none where there is no such file."""
    if not (folder / COLLABORATORS).is_file():
        return ()
    lines = [line.strip() for line in read_text(folder / COLLABORATORS).splitlines()]
    if not any(line and not line.startswith("#") for line in lines):
        return ()
    document = _document(folder, COLLABORATORS)
    named = document.values.get("collaborators")
    if "collaborators" not in document.values or not (named is None or isinstance(named, list)):
        raise PlanError(
            f"{document.spot(('collaborators',))}: has no list `collaborators`",
            "write it as `collaborators: [one, two]`, or leave the list empty",
        )
    for index, name in enumerate(named or []):
        if not isinstance(name, str | int):
            raise PlanError(
                f"{document.spot(('collaborators', index))}: {name!r} is no name of a collaborator", "write a text"
            )
    return tuple(
        (str(name), str(document.spot(("collaborators", index)))) for index, name in enumerate(named or [])
    )


def _data_paths(folder: Path) -> dict[str, tuple[str, str]]:
    """Return by collaborator the text of `plan/data.yaml`, which is lines of name,path, with its place."""
    if not (folder / DATA).is_file():
        return {}
    found: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(read_text(folder / DATA).splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, comma, path = text.partition(",")
        if not comma or not name.strip():
            raise PlanError(f"{DATA}:{number}: {text[:60]!r} is not name,path", "write it like one,data/one")
        if name.strip() in found:
            raise PlanError(f"{DATA}:{number}: {name.strip()!r} is listed twice", "remove one of the lines")
        found[name.strip()] = path.strip(), f"{DATA}:{number}"
    return found


def _check(text: str) -> None:
    """Refuse values that no plan of fedfair may have, before anything is written."""
    validated(Plan, parse_document(text, Path("the new plan/plan.yaml")))


def _packages(collection: Collection, where: str) -> list[Finding]:
    words = f"the code imports it: install it {where}, in one version"
    return [
        Finding(FindingKind.BY_HAND, place, f"package {name}", "", "", words)
        for name, place in collection.packages.items()
    ]


def _place_of(site: str, sites: Sites, root: str | None) -> Finding:
    text = sites.paths.get(site, "")
    file = f"sites/{site}/collaborator.yaml"
    if root is None:
        words = f"state data.root in {file}: the folder with this site's own records"
        return Finding(FindingKind.BY_HAND, DATA, f"data of {site}", text, "data.root", words)
    words = "a relative path starts from the folder of collaborator.yaml"
    return Finding(FindingKind.CARRIED_OVER, DATA, f"data of {site}", text, f"data.root in {file}", words)


def _site_text(site: str, root: str | None, device: str | None) -> str:
    """Return a site's own file with the most careful terms, and what the old workspace says of it."""
    text = collaborator_text(site)
    if root is not None:
        text = text.replace("root: null}", f"root: {_quoted(root)}}}")
    return text if device is None else text.replace("device: null ", f"device: {device} ")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _module_text(origin: str, what: str, part: MigratedModel | MigratedLoader, collection: Collection) -> str:
    head = f'"""The {what} of this federation, migrated from the OpenFL workspace {origin}.\n\n'
    head += 'Every site reads this file before it approves the plan.\n"""'
    imports = sorted(collection.imports, key=lambda line: (line.startswith("from"), line)) if part.is_whole else []
    return "\n\n\n".join(["\n\n".join([head, *(["\n".join(imports)] if imports else [])]), *part.pieces]) + "\n"


def _loader_text(origin: str, loader: MigratedLoader | None, collection: Collection, name: str) -> str:
    if loader is None:
        text = UNFINISHED.format(path=f"src/{name}.py", origin="the old workspace").strip()
        loader = MigratedLoader((text,), False, ())
    return _module_text(origin, "loader", loader, collection)


def _mapping(value: Value) -> dict[str, Value]:
    return dict(value) if isinstance(value, dict) else {}


def _one_line(text: str) -> str:
    """Return a folder's name as words that no comment or docstring ends at."""
    return "".join(letter if letter.isprintable() and letter not in '"\\' else "_" for letter in text)
