"""`fedfair migrate`: workspaces of other systems, turned into fedfair's files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer

from fedfair.ids import parse_federation_name
from fedfair.migration.openfl_plan import HEADINGS, Finding, FindingKind, of_kind
from fedfair.migration.openfl_workspace import REPORT, check_output, migrate, write
from fedfair.process.printable import printable
from fedfair.process.terminal import console, say

app = typer.Typer(no_args_is_help=True)


@app.command()
def openfl(
    workspace: Path = typer.Argument(
        ..., metavar="WORKSPACE", help="The OpenFL workspace, which holds plan/plan.yaml."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Write to this folder; by default the workspace's name with -fedfair."
    ),
    federation: str | None = typer.Option(
        None, "--federation", "-f", help="Name of the federation; by default the workspace's."
    ),
    defaults: Path | None = typer.Option(
        None,
        "--defaults",
        help="OpenFL's own folder openfl-workspace/workspace, for included files that the workspace lacks.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Turn an OpenFL workspace (task runner) into a plan and site files, and list what is left to do by hand."""
    target = output or Path(f"{workspace.resolve().name}-fedfair")
    check_output(target)
    name = None if federation is None else parse_federation_name(federation)
    migration = migrate(workspace, name, defaults)
    written = write(migration, target)
    if as_json:
        document = {
            "format": "fedfair/migration/1",
            "from": "openfl",
            "written": [str(path) for path in written],
            "findings": [asdict(finding) for finding in migration.findings],
        }
        console.print_json(json.dumps(document))
        return
    for path in written:
        _say(f"wrote {path}")
    for kind in (FindingKind.BY_HAND, FindingKind.NO_COUNTERPART):
        _show(HEADINGS[kind][0], of_kind(migration.findings, kind))
    done = [of_kind(migration.findings, kind) for kind in (FindingKind.BUILT_IN, FindingKind.CARRIED_OVER)]
    _say(f"built in: {len(done[0])}; carried over: {len(done[1])}; all of them are in {target / REPORT}")
    _say("model and loader are not carried over: docs/how-to/from-openfl.md says how to write them")
    _say(f"next: do what is left by hand, then `fedfair plan check` in {target}")


def _show(heading: str, findings: list[Finding]) -> None:
    _say(f"{heading}: {len(findings) or 'nothing'}", "bold")
    for finding in findings:
        value = f" ({finding.value})" if finding.value else ""
        _say(f"  {finding.place}: {finding.key}{value}: {finding.what_to_do}")


def _say(text: str, style: str = "") -> None:
    say(printable(text), style)
