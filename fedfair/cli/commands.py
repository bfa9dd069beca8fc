"""Every command of `fedfair`: what the list says of each, and where it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import typer

from fedfair.cli.lazy import Entry, LazyGroup
from fedfair.errors import FedfairError
from fedfair.process.terminal import DEBUG_HELP, console
from fedfair.version import __version__


class Commands(LazyGroup):
    """The commands of `fedfair`."""

    table: ClassVar[Mapping[str, Entry]] = {
        "simulate": Entry(
            "fedfair.cli.simulate",
            "simulate_command",
            "Simulate the plan on one machine or a cluster, with the draws, sums and model of a deployment.",
        ),
        "evaluate": Entry(
            "fedfair.cli.evaluate",
            "evaluate_command",
            "Evaluate a saved model on this machine.",
        ),
        "predict": Entry(
            "fedfair.cli.predict",
            "predict_command",
            "Predict records with a saved model. Its file is enough; no plan is needed.",
        ),
        "sweep": Entry(
            "fedfair.cli.sweep",
            "sweep_command",
            "Run the plan at every point of a grid and select the best on the validation records.",
        ),
        "reproduce": Entry(
            "fedfair.cli.reproduce",
            "reproduce_command",
            "Reproduce the paper's experiments. Finished runs are kept; the same command resumes.",
        ),
        "report": Entry(
            "fedfair.cli.report",
            "report_command",
            "Show mean and worst-group loss of a result.",
        ),
        "status": Entry(
            "fedfair.cli.status",
            "status_command",
            "Show who is connected, who is waited for, and the round of a run that serves its status.",
        ),
        "join": Entry(
            "fedfair.cli.join",
            "join_command",
            "Join a federation: keys and request; after the lead's answer review, policy, data and approval.",
        ),
        "invite": Entry(
            "fedfair.cli.lead",
            "invite_command",
            "Create what a lead needs, where it is missing, and write the archive that sites join with.",
        ),
        "admit": Entry(
            "fedfair.cli.lead",
            "admit_command",
            "Sign the sites' requests, pin their keys in the plan, and write the archive that answers them.",
        ),
        "demo": Entry(
            "fedfair.cli.demo",
            "app",
            "Run a demonstration on this machine: three clinics and one aggregator, each a real process.",
        ),
        "model": Entry(
            "fedfair.cli.model",
            "app",
            "Show a saved model, write its card, and export it for other systems.",
        ),
        "workspace": Entry(
            "fedfair.cli.workspace", "app", "Create a federation's folder, export it and import it on other hosts."
        ),
        "migrate": Entry(
            "fedfair.cli.migrate",
            "app",
            "Turn a workspace of another system into fedfair's files. Its code is neither read nor run.",
        ),
        "certs": Entry(
            "fedfair.cli.certs",
            "app",
            "Create, sign, install, renew and revoke the certificates of a federation.",
        ),
        "plan": Entry(
            "fedfair.cli.plan", "app", "Check, show and approve the plan, and enroll its members' keys."
        ),
        "aggregator": Entry(
            "fedfair.cli.aggregator",
            "app",
            "Run the aggregator, which sums what the collaborators send and sees nobody's data.",
        ),
        "collaborator": Entry(
            "fedfair.cli.collaborator", "app", "Run this site's collaborator. Its data stay here."
        ),
        "data": Entry("fedfair.cli.data", "app", "Check this site's own records. Nothing leaves the site."),
        "certificate": Entry(
            "fedfair.cli.certificate",
            "app",
            "Sign or verify a certificate of what an evaluation proves about every sizeable group.",
        ),
        "audit": Entry(
            "fedfair.cli.audit",
            "app",
            "Show what left a site, and verify the record of it.",
        ),
        "privacy": Entry("fedfair.cli.privacy", "app", "Show this site's privacy releases and their total cost."),
    }


app = typer.Typer(
    cls=Commands,
    name="fedfair",
    help="Federated models that are fair to every sizeable group, without naming the groups.",
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
    version: bool = typer.Option(  # noqa: ARG001 - its callback has printed it
        False, "--version", help="Print the version.", is_eager=True, callback=_print_version
    ),
    folders: list[Path] = typer.Option(
        None, "-C", metavar="DIR", help="Run as if started in this folder; each one starts from the one before."
    ),
) -> None:
    """Take the options that belong to no command."""
    for folder in folders or ():
        _enter(folder)


def _enter(folder: Path) -> None:
    try:
        os.chdir(folder)
    except OSError as fault:
        raise FedfairError(
            f"-C {folder}: {fault.strerror}, seen from {Path.cwd()}", "name a folder that exists"
        ) from None
