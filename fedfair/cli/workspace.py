"""`fedfair workspace`: create the folder of a federation, and carry it to other hosts."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.text import Text

from fedfair.errors import PlanError
from fedfair.extras import is_installed
from fedfair.ids import parse_federation_name, parse_participant_id
from fedfair.plan.digest import format_digest
from fedfair.plan.loading import load_plan
from fedfair.process.terminal import console, error_console
from fedfair.workspace.create import PLAN_FILE, create_workspace, write_site_file
from fedfair.workspace.templates import TEMPLATES

app = typer.Typer(
    help="Create a federation's folder, export it and import it on other hosts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

AS_JSON = typer.Option(False, "--json", help="Print JSON.")


@app.command()
def create(
    folder: Path = typer.Argument(..., metavar="DIR", help="A folder that does not exist, or is empty."),
    template: str = typer.Option(
        "breast-cancer", "--template", help=f"Template to begin with: {', '.join(TEMPLATES)}."
    ),
    federation: str | None = typer.Option(
        None, "--federation", "-f", help="Name of the federation; by default the folder's."
    ),
) -> None:
    """Create a workspace with a commented plan."""
    if template not in TEMPLATES:
        raise typer.BadParameter(f"{template!r} is none of {', '.join(TEMPLATES)}", param_hint="--template")
    name = parse_federation_name(federation or folder.resolve().name)
    for path in create_workspace(folder, name, template):
        _say(f"wrote {path}")
    _say(f"next: edit {folder / 'plan' / 'plan.yaml'}, then `fedfair plan check` in {folder}")


@app.command()
def export(
    target: Path = typer.Argument(Path("workspace.zip"), metavar="ARCHIVE", help="The archive to write."),
    folder: Path = typer.Option(Path(), "--workspace", "-w", help="The workspace."),
    as_json: bool = AS_JSON,
) -> None:
    """Pack plan, roster and code for other hosts. Keys, certificates and data are never packed."""
    from fedfair.workspace import archive

    _freeze(folder / PLAN_FILE)
    raw = archive.pack(folder)
    try:
        with target.open("xb") as output:
            output.write(raw)
    except FileExistsError as error:
        raise PlanError(f"{target} exists; it was left alone", "name another file") from error
    _report(target, raw, as_json=as_json)


@app.command(name="import")
def import_command(
    source: Path = typer.Argument(
        ..., metavar="ARCHIVE", help="The archive that `fedfair workspace export` wrote."
    ),
    folder: Path = typer.Argument(Path(), metavar="DIR", help="The workspace; created if it does not exist."),
    name: str | None = typer.Option(None, "--name", "-n", help="Also write a collaborator.yaml for this site."),
    as_json: bool = AS_JSON,
) -> None:
    """Unpack an archive of another host. Existing files are never overwritten."""
    from fedfair.workspace import archive

    site = None if name is None else parse_participant_id(name)
    raw = archive.read_archive(source)
    written = archive.unpack(raw, folder)
    if site is not None:
        written.append(write_site_file(folder, site))
    if not as_json:
        for path in written:
            _say(f"wrote {path}")
    _report(source, raw, as_json=as_json)


def _freeze(plan_file: Path) -> None:
    """Put the model before round 1 beside the plan, where torch is installed and the plan says enough."""
    from fedfair.run.initial_model import REMEDY, initial_model_file, is_current

    if not plan_file.is_file():
        return
    plan = load_plan(plan_file)
    if is_current(plan_file, plan):
        return
    if is_installed("torch"):
        from fedfair.data.declared import declared_schema
        from fedfair.training.freezing import freeze_plan

        if declared_schema(plan) is not None:
            freeze_plan(plan_file)
            return
    place = initial_model_file(plan_file)
    place.unlink(missing_ok=True)
    words = f"{place} is not exported, and no aggregator starts without it; {REMEDY}"
    error_console.print(Text(f"warning: {words}", style="yellow"), soft_wrap=True)


def _report(path: Path, raw: bytes, *, as_json: bool) -> None:
    from fedfair.workspace import archive

    digest = format_digest(archive.archive_digest(raw))
    if as_json:
        console.print_json(json.dumps({"format": "fedfair/workspace/1", "archive": str(path), "digest": digest}))
    else:
        _say(f"{path}: {digest}; both hosts see the same digest, or one of them has another archive")


def _say(text: str) -> None:
    console.print(Text(text), soft_wrap=True)
