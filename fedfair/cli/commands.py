"""Every command of `fedfair`, gathered from the groups beside this module."""

from __future__ import annotations

import typer

from fedfair import __version__
from fedfair.cli import (
    aggregator,
    audit,
    certificate,
    certs,
    collaborator,
    demo,
    evaluate,
    plan,
    privacy,
    report,
    reproduce,
    simulate,
    sweep,
    workspace,
)
from fedfair.report.terminal import DEBUG_HELP, console

app = typer.Typer(
    name="fedfair",
    help="Federated models that are fair to every sizeable group, without anyone naming the groups.",
    epilog=DEBUG_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(demo.app, name="demo")
app.add_typer(workspace.app, name="workspace")
app.add_typer(certs.app, name="certs")
app.add_typer(plan.app, name="plan")
app.add_typer(aggregator.app, name="aggregator")
app.add_typer(collaborator.app, name="collaborator")
app.add_typer(certificate.app, name="certificate")
app.add_typer(audit.app, name="audit")
app.add_typer(privacy.app, name="privacy")
app.command("simulate")(simulate.simulate_command)
app.command("evaluate")(evaluate.evaluate_command)
app.command("sweep")(sweep.sweep_command)
app.command("reproduce")(reproduce.reproduce_command)
app.command("report")(report.report_command)


def _print_version(requested: bool) -> None:
    if requested:
        console.print(f"fedfair {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", is_eager=True, callback=_print_version
    ),
) -> None:
    """Take the options that belong to no command."""
