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

_COMMANDS = {
    "simulate": "Simulate the plan on one machine or a cluster, with the draws, sums and model of a deployment.",
    "evaluate": "Evaluate a saved model on this machine.",
    "predict": "Predict records with a saved model. Its file is enough; no plan is needed.",
    "sweep": "Run the plan at every point of a grid and select the best on the validation records.",
    "reproduce": "Reproduce the paper's experiments. Finished runs are kept; the same command resumes.",
    "report": "Show mean and worst-group loss of a result.",
    "status": "Show who is connected, who is waited for, and the round of a run that serves its status.",
    "join": "Join a federation: keys and request; after the lead's answer review, policy, data and approval.",
    "invite": "Create what a lead needs, where it is missing, and write the archive that sites join with.",
    "admit": "Sign the sites' requests, pin their keys in the plan, and write the archive that answers them.",
    "stand": "Let this folder stand: the lead's becomes a hub, and a site's follows it.",
}
"""The function NAME_command of a module."""

_GROUPS = {
    "demo": "Run a demonstration on this machine: four hospitals and one aggregator, each a real process.",
    "model": "Show a saved model, write its card, and export it for other systems.",
    "workspace": "Create a federation's folder, export it and import it on other hosts.",
    "migrate": "Turn a workspace of another system into fedfair's files. Its code is neither read nor run.",
    "certs": "Create, sign, install, renew and revoke the certificates of a federation.",
    "plan": "Check, show and approve the plan, and enroll its members' keys.",
    "aggregator": "Run the aggregator, which sums what the collaborators send and sees nobody's data.",
    "hub": "Run the hub of a federation that stands: several studies, each consented to by its sites.",
    "study": "Submit a study to the hub, follow it, fetch its result, and withdraw it.",
    "collaborator": "Run this site's collaborator. Its data stay here.",
    "inbox": "Show the studies proposed to this site, and approve, refuse or withdraw them with a person's key.",
    "data": "Check this site's own records. Nothing leaves the site.",
    "certificate": "Sign or verify a certificate of what an evaluation proves about every sizeable group.",
    "passport": "Collect everything that is shown about a model into one signed file, or verify such a file.",
    "audit": "Show what left a site, verify the record of it, and prove what a run came to.",
    "privacy": "Show this site's privacy releases and their total cost.",
}
"""The app of a module."""

_MODULES = {
    "invite": "fedfair.cli.lead",
    "admit": "fedfair.cli.lead",
    "aggregator": "aggregator.commands",
    "hub": "aggregator.hub.commands",
    "collaborator": "collaborator.commands",
}
"""Any other is in the module of its name."""


def _entry(name: str, attribute: str, line: str) -> Entry:
    return Entry(_MODULES.get(name, f"fedfair.cli.{name}"), attribute, line)


class Commands(LazyGroup):
    """The commands of `fedfair`."""

    table: ClassVar[Mapping[str, Entry]] = {
        **{name: _entry(name, f"{name}_command", line) for name, line in _COMMANDS.items()},
        **{name: _entry(name, "app", line) for name, line in _GROUPS.items()},
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
