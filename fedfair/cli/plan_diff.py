"""`fedfair plan diff`: what another plan changes, for a site that is to approve it."""

from __future__ import annotations

from pathlib import Path

import typer

from fedfair.errors import FedfairError, PlanError
from fedfair.process.exit_status import ExitStatus
from fedfair.process.terminal import console

DIFFERENT = 1
"""As diff has it: 0 for the same, 1 for a difference, 2 for trouble."""


def diff_command(
    old: Path = typer.Argument(..., metavar="A", help="A plan, a workspace or an archive: the one before."),
    new: Path = typer.Argument(..., metavar="B", help="The one that is to take its place."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Show what changes from one plan to another, for sites that must approve it again.

    The exit status is 0 where both are the same, 1 where they differ, and 2 in trouble. No code of a plan is run.
    """
    # Guarantees are derived with numpy, which takes longer to load than a help text may.
    from fedfair.cli.difference_text import difference_json, digest_of_plan, show_difference
    from fedfair.workspace.difference import difference, side_of

    try:
        found = difference(side_of(old, digest_of_plan), side_of(new, digest_of_plan))
    except (FedfairError, OSError) as fault:
        raise _trouble(fault) from fault
    if as_json:
        console.print_json(difference_json(found))
    else:
        show_difference(found)
    raise typer.Exit(ExitStatus.DONE if found.is_same else DIFFERENT)


def _trouble(fault: FedfairError | OSError) -> FedfairError:
    """Return a fault whose status is not that of a difference."""
    if isinstance(fault, OSError):
        return PlanError(f"{fault.filename or 'a file'} cannot be read: {fault.strerror or fault}")
    return PlanError(fault.message, fault.remedy)
