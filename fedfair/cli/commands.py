"""Every command of `fedfair`: what the list says of each, and where it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import typer

from fedfair import __version__
from fedfair.cli.lazy import Entry, LazyGroup
from fedfair.process.terminal import DEBUG_HELP, console


class Commands(LazyGroup):
    """The commands of `fedfair`."""

    table: ClassVar[Mapping[str, Entry]] = {
        "simulate": Entry(
            "fedfair.cli.simulate",
            "simulate_command",
            "Run the plan in one process: same draws, same sums, same model as the deployed federation.",
        ),
        "evaluate": Entry(
            "fedfair.cli.evaluate",
            "evaluate_command",
            "Judge a saved model again, with the plan's data on this machine.",
        ),
        "sweep": Entry(
            "fedfair.cli.sweep",
            "sweep_command",
            "Run the plan for every combination of the grid, and select the best by its validation records.",
        ),
        "reproduce": Entry(
            "fedfair.cli.reproduce",
            "reproduce_command",
            "Run the paper's experiments again. What is finished is kept: the same command goes on where it "
            "stopped.",
        ),
        "report": Entry(
            "fedfair.cli.report",
            "report_command",
            "Show who is served how well: mean loss of everybody and of the worst groups.",
        ),
        "demo": Entry(
            "fedfair.cli.demo",
            "app",
            "See it work on this machine: three clinics, one aggregator, real processes.",
        ),
        "workspace": Entry(
            "fedfair.cli.workspace", "app", "Create the folder of a federation, and carry it to other hosts."
        ),
        "certs": Entry(
            "fedfair.cli.certs", "app", "Make, sign, install, renew and revoke the certificates of a federation."
        ),
        "plan": Entry("fedfair.cli.plan", "app", "Check, show and approve the plan, and pin its members' keys."),
        "aggregator": Entry(
            "fedfair.cli.aggregator",
            "app",
            "Run the aggregator: it adds up what the collaborators send, and sees nobody's data.",
        ),
        "collaborator": Entry(
            "fedfair.cli.collaborator", "app", "Take part with this site's own data, which stay here."
        ),
        "certificate": Entry(
            "fedfair.cli.certificate",
            "app",
            "State, signed, what an evaluation proves about every sizeable group; and check such a certificate.",
        ),
        "audit": Entry(
            "fedfair.cli.audit",
            "app",
            "Show what left an institution, and check that the record of it was not changed.",
        ),
        "privacy": Entry(
            "fedfair.cli.privacy", "app", "Show what was released about this site's records, and what it comes to."
        ),
    }


app = typer.Typer(
    cls=Commands,
    name="fedfair",
    help="Federated models that are fair to every sizeable group, without anyone naming the groups.",
    epilog=DEBUG_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
