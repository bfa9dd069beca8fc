"""`fedfair workspace`: create the folder of a federation, and carry it to other hosts."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import typer

from fedfair.cli.advise import ADVICE_FOLDER, write_advice
from fedfair.cli.answers import Answers, at_the_terminal
from fedfair.cli.first_look import FirstLook, first_look
from fedfair.cli.initial_model import put_initial_model
from fedfair.cli.interrupts import interrupts_deferred
from fedfair.cli.workspace_update import replace_archive, take_update
from fedfair.errors import PlanError
from fedfair.ids import parse_federation_name, parse_participant_id
from fedfair.plan.digest import format_digest
from fedfair.process.terminal import console, say
from fedfair.workspace.create import PLAN_FILE, TEMPLATES, Members, check_new, create_workspace, write_site_file

app = typer.Typer(no_args_is_help=True)

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
    host: str = typer.Option("localhost", "--host", help="Name under which sites reach the aggregator."),
    collaborators: str = typer.Option(
        "clinic-a,clinic-b", "--collaborators", help="Names of the sites, with commas between them."
    ),
    table: Path | None = typer.Option(
        None, "--from", metavar="FILE", help="With --template csv: draft the schema from this file, for review."
    ),
    label: str | None = typer.Option(None, "--label", help="With --from: the column to predict."),
    look: bool = typer.Option(
        True,
        "--look/--no-look",
        help="With --from: try settings on the file for seconds, and write the best.",
    ),
) -> None:
    """Create a workspace with a commented plan."""
    if template not in TEMPLATES:
        raise typer.BadParameter(f"{template!r} is none of {', '.join(TEMPLATES)}", param_hint="--template")
    name = parse_federation_name(federation or folder.resolve().name)
    if table is not None and template != "csv":
        raise typer.BadParameter("goes with --template csv", param_hint="--from")
    if label is not None and table is None:
        raise typer.BadParameter("goes with --from FILE", param_hint="--label")
    members = Members(host, tuple(part.strip() for part in collaborators.split(",")))
    check_new(folder, members)
    task = None if table is None else _drafted(table, label)
    seen = None if table is None or task is None or not look else _looked(table, name, members, task)
    with interrupts_deferred():
        advised = None if seen is None else seen.advised
        written = create_workspace(folder, name, template, members, task, advised)
        if seen is not None and seen.advice is not None:
            write_advice(seen.advice, folder / ADVICE_FOLDER)
    for path in written:
        say(f"wrote {path}")
    say(f"next: edit {folder / 'plan' / 'plan.yaml'}, then `fedfair plan check` in {folder}")


def _looked(table: Path, name: str, members: Members, task: str) -> FirstLook:
    """Look at a file by the plan that would be written, and say what was found."""
    seen = first_look(table, name, members, task)
    for sentence in seen.reasons:
        say(sentence)
    return seen


def _drafted(table: Path, label: str | None) -> str:
    """Draft a schema and say what is doubtful about it."""
    from fedfair.workspace.csv_draft import draft_schema

    text, notes = draft_schema(table, label)
    for note in notes:
        say(note)
    return text


@app.command()
def export(
    target: Path = typer.Argument(Path("workspace.zip"), metavar="ARCHIVE", help="The archive to write."),
    folder: Path = typer.Option(Path(), "--workspace", "-w", help="The workspace."),
    update: bool = typer.Option(
        False, "--update", help="Replace the archive of an earlier plan, and show what changes."
    ),
    as_json: bool = AS_JSON,
) -> None:
    """Pack plan, roster and code for other hosts. Keys and data are never packed."""
    from fedfair.workspace import archive

    put_initial_model(folder / PLAN_FILE)
    if update and target.exists():
        # Certificates of those who joined with it stay in it.
        joined = archive.certificates_of(archive.read_archive(target))
        raw = replace_archive(target, archive.pack(folder, joined), folder, quiet=as_json)
    else:
        raw = archive.pack(folder)
        try:
            with target.open("xb") as output:
                output.write(raw)
        except FileExistsError as error:
            raise PlanError(f"{target} exists; it was left alone", "name another file, or add --update") from error
    _report(target, raw, as_json=as_json)


@app.command(name="import")
def import_command(
    source: Path = typer.Argument(
        ..., metavar="ARCHIVE", help="The archive that `fedfair workspace export` wrote."
    ),
    folder: Path = typer.Argument(Path(), metavar="DIR", help="The workspace; created if it does not exist."),
    name: str | None = typer.Option(None, "--name", "-n", help="Also write a collaborator.yaml for this site."),
    update: bool = typer.Option(
        False, "--update", help="Put a changed plan in the place of the present one, after showing what changes."
    ),
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask for confirmation of an update."),
    as_json: bool = AS_JSON,
) -> None:
    """Unpack an archive of another host. Without --update, existing files are never overwritten."""
    from fedfair.workspace import archive

    site = None if name is None else parse_participant_id(name)
    raw = archive.read_archive(source)
    if update:
        answers = Answers(at_the_terminal if sys.stdin.isatty() and not as_json else None, yes)
        take_update(raw, str(source), folder, answers, quiet=as_json)
    else:
        written = archive.unpack(raw, folder)
        if site is not None:
            written.append(write_site_file(folder, site))
        for path in () if as_json else written:
            say(f"wrote {path}")
    _report(source, raw, as_json=as_json)


def _report(path: Path, raw: bytes, *, as_json: bool) -> None:
    digest = format_digest(hashlib.sha256(raw).digest())
    if as_json:
        console.print_json(json.dumps({"format": "fedfair/workspace/1", "archive": str(path), "digest": digest}))
    else:
        say(f"{path}: {digest}; both hosts see the same digest, or one of them has another archive")
